"""Select the partitions and keys that may have diverged, where partitions are too large to be checked by record.

A filter in this package may keep healthy keys; it never drops a diverged key.
"""
