"""Kafka's wire protocol, where client libraries do not reach.

Requests to one broker at a time: Fetch as a consumer or follower, transactions, offsets, cluster state, Redpanda's
admin API. Clients that write are in `harness.clients`.
"""

TopicPartition = tuple[str, int]
