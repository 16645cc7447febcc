"""What compaction promises, each promise checked by itself: one guarantee a file, all of them listed in `every`.

The four anomalies are ways in which replicas come to disagree; these are what Kafka documents ("What guarantees does
log compaction provide?") and how its cleaner treats control batches. Each reads what a replica was seen to hold and
what clients know, and calls a guarantee violated only where that proves it. What is compared, and what is not, each
file's docstring says.
"""
