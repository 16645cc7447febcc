"""Partitions that are too big to be checked record by record: which of them may have diverged, and in which keys.

`scan` and `consistent_partitions` read whole logs once, `candidate_keys` and `fast_path` select the keys that may
differ, and `read_records` reads their records for the checkers. A filter in this package may keep healthy keys; it
never drops a diverged one.
"""
