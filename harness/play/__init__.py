"""One run: boot a cluster, play a schedule, collect the evidence. `harness.judge` decides about the evidence."""
