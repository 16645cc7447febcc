"""`harness soak`: random workloads under composed faults, round after round on one cluster, each judged by itself."""
