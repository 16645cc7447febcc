"""`harness guard`: pauses compaction of a topic, from outside, while an assigned replica is not caught up.

`decide` decides without requests; `channel` stores the previous settings in a topic of the cluster, so that any machine
can restore them. `harness.audit` finds replicas that have diverged; `harness.protect.gate` delays compaction inside a
broker.
"""
