"""The cluster under test while it runs: its state, and what every replica serves.

Waits for conditions of the cluster, observations, and snapshots of replicas. Starting and stopping brokers is
in `harness.runtimes`; `harness.play` decides when.
"""
