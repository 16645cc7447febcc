"""`harness watch`: continuous, read-only audits of a cluster.

`status` asks brokers every minute, and makes metrics, health and pages; `run` compares partitions meanwhile, the oldest
comparison first; `store` keeps the latest verdict of each partition.
"""
