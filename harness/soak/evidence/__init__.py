"""The evidence of a round: what clients know, what replicas hold, and what brokers answer."""
