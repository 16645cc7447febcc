"""Repairs partitions whose replicas have diverged: wrong replicas are rebuilt from right ones, by an audit's findings.

A partition's way is decided in `steps`, apart from requests; what a repair has to know after a crash is in the topic of
the guard (`channel`). Who is wrong is decided by `harness.audit`; what pauses compaction meanwhile is
`harness.protect.guard`.
"""
