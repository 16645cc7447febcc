"""The cluster under test while it runs: its state, and what every replica serves.

Waits for conditions of the cluster, observations, and snapshots of replicas. How a broker is started or stopped is
in `harness.runtimes`; when, is decided in `harness.run`.
"""
