"""Executable models of how partitions are compacted, on virtual time; every rule names its source.

``log`` has replicas, which hold real record batches, their replication and cleaners; ``world`` plays schedules on them;
``walk`` explores every interleaving of a small cluster, ``faults`` under faults; ``cluster`` has simulated brokers.
"""
