"""`harness soak`: random workloads under composed faults, round after round on one cluster, each judged by itself.

Operations and generators are data; a round that was played is a schedule that can be played again, and shrunk. What
breaks is in `nemesis`, what is wrong with replicas is decided in `checkers` and `harness.audit`.
"""
