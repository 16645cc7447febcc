"""The cluster under test while it runs: waits for conditions, observations, and snapshots of replicas."""
