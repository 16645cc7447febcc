"""What of an image of ours is neither Java nor Kafka."""
