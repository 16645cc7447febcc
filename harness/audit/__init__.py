"""`harness audit`: have the replicas of a user's cluster diverged?

Reads copies of disks or a live cluster, runs the checkers, and writes findings with attribution and advice.
Detection is in `checkers.anomalies`, attribution in `checkers.attribution`; the sentences are here.
"""
