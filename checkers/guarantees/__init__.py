"""The guarantees of compaction, each checked independently: one guarantee in each file, all listed in `all_guarantees`.

The four anomalies are ways in which replicas come to differ; the guarantees are those that Kafka documents ("What
guarantees does log compaction provide?"), and how its cleaner treats control batches. Each checker reads the evidence
of what a replica held and of what clients did, and reports a violation only where that evidence proves it. The
docstring of each file lists what the checker verifies and what it does not.
"""
