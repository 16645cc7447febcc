"""`harness soak`: random workloads under composed faults, round after round on one cluster, each judged by itself.

Operations and generators are data; a round that was played is a schedule that can be played again, and shrunk. Faults
are in `nemesis`; `checkers` and `harness.audit` decide which replicas are wrong.
"""
