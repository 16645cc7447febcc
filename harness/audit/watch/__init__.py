"""`harness watch`: continuous, read-only audits of a cluster.

`checks` asks brokers every minute, in seconds; `run` compares partitions meanwhile, the oldest comparison first;
`store` keeps the latest verdict of each partition; `status` makes metrics, health and pages.
"""
