"""Repair of diverged partitions: wrong replicas are rebuilt from right replicas, by an audit's findings."""
