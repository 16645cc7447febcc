"""Kafka's protocol where client libraries do not reach: one broker asked directly, and what it said."""
