"""Select the partitions and keys that may have diverged, where partitions are too large to be checked by record.

`segments` and `consistent_partitions` read complete logs once, `candidate_keys` selects the keys that may differ, and
`reduce` gives the records of these keys to the checkers. A filter in this package may keep healthy keys; it never drops
a diverged key.
"""
