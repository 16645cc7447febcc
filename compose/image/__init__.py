"""The part of a built image that is neither Java nor Kafka."""
