"""`harness guard`: compaction of a topic is paused, from outside, while an assigned replica is not caught up.

What to do is decided in `decide`, apart from requests; `channel` keeps what was found in a topic of the cluster, so
that any machine can put it back. Whether replicas have diverged already is `harness.audit`; the gate inside a broker is
`harness.protect.gate`.
"""
