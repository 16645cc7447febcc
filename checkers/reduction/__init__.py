"""Select the partitions and keys that may have diverged, where partitions are too large to be checked by record.

`scan` and `consistent_partitions` read complete logs once, `candidate_keys` and `fast_path` select the keys that may
differ, and `read_records` reads their records for the checkers. A filter in this package may keep healthy keys; it
never drops a diverged key.
"""
