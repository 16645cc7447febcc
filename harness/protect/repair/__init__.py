"""Repair of diverged partitions: wrong replicas are rebuilt from right replicas, by an audit's findings.

`steps` decides the next step of a partition without requests; a repair's durable state is in the topic of the guard
(`channel`). `harness.audit` decides which replica is wrong; `harness.protect.guard` pauses compaction meanwhile.
"""
