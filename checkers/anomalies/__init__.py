"""One anomaly a file: which rows of the evidence show it, and what a finding says.

The four of a run, and three more of audits, which know of no client. What a broker believes is in `checkers.replay`;
who is wrong is decided in `checkers.attribution`.
"""
