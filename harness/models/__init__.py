"""Executable models of how partitions are compacted, on virtual time; every rule names its source.

``replication`` models Kafka's: a leader, and replicas that copy it, each with its own cleaner (``cleaner``) and beliefs
(``replica``); ``steps`` plays a schedule on them, ``delivery`` is what consumers get. Replicas hold real record batches
(``batch``), so that the readers of brokers' files read them too. ``exhaustive`` explores every interleaving of a small
state space.
"""
