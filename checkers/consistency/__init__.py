"""Reasons against the verdict ``clean`` other than anomalies: evidence that contradicts itself, or is missing.

`side_files` compares a broker with its own log, `txnindex_disagreement` compares replicas; `doubts` and `exposure` are
for runs. `checkers.evidence` reports damaged files while it reads them.
"""
