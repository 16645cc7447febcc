"""Executable models of how partitions are compacted: virtual time, and every rule with where it was taken from.

``partition`` is Kafka's: a leader, replicas that copy it, each with a cleaner (``cleaner``) and beliefs (``replica``)
of its own. What a replica holds are real record batches (``batch``): what reads brokers' files reads these.
``cloud_topics`` is Redpanda's over one shared copy. ``exhaustive`` walks through every interleaving of a small world.
"""
