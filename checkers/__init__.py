"""PySpark checkers: what does each broker believe, and where is that wrong?

`evidence` reads run folders into DataFrames, `replay` derives what each broker believes of each batch,
`truth` says what is right, and then one file an anomaly:

* `stuck_lso`              a transaction that is decided elsewhere is open here
* `aborted_to_committed`   data of an aborted transaction counts as committed here
* `committed_to_aborted`   data of a committed transaction counts as aborted here
* `tombstone_divergence`   a deleted value is alive here

Audits, which know of no client, add `hanging_transaction`, `missed_marker` and `unexplained`; what they have instead is
in `survivors`, `lineage`, `own_state` and `other_spans`. What is too big to be judged record by record goes through
`scan`, `plain` and `sieve` first, and `pick` gives the checkers what is left (`reduce`).

Beside them, `exposure` collects what a verdict of ``clean`` needs, and `doubts` finds evidence that
contradicts itself. Everything is keyed by run, so that many run folders are checked in one job.
"""
