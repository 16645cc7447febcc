"""Partitions that are too big to be checked record by record: which of them may have diverged, and which keys.

`scan` and `plain` read whole logs once, `sieve` and `settled` leave the keys in doubt, and `pick` reads their records
for the same checkers as ever. A filter here may keep a healthy key, and never drops a diverged one.
"""
