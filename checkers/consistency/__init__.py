"""What forbids `clean` although no anomaly was found: evidence that contradicts itself, or is missing.

A broker's side files and wire answers against its own log, `doubts`, and `exposure`. Damaged files are
found while they are read (`checkers.evidence`).
"""
