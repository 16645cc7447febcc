"""The guarantees of compaction, each checked independently: one guarantee in each file, all listed in `all_guarantees`.

Kafka documents the guarantees ("What guarantees does log compaction provide?"), except for the treatment of control
batches by its cleaner. Each checker reports a violation only where the evidence proves it.
"""
