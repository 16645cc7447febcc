"""Repairs partitions whose replicas have diverged: rebuilds wrong replicas from right ones, by an audit's findings.

What decides who is wrong is `harness.audit`; what pauses compaction for other reasons is not here.
"""
