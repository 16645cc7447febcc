"""The gate: a Java agent that keeps a broker's cleaner from a partition while an assigned replica is out of the ISR."""
