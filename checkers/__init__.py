"""PySpark checkers: derive each broker's beliefs from its own log, and report wrong beliefs.

`evidence` reads run folders into DataFrames. `replay` derives each broker's belief about each batch, and the truth.
`anomalies` contains one file for each anomaly:

* `stuck_lso`              a transaction that ended on other replicas is open on this replica
* `aborted_to_committed`   data of an aborted transaction counts as committed on this replica
* `committed_to_aborted`   data of a committed transaction counts as aborted on this replica
* `tombstone_divergence`   a deleted value is back on this replica

Audits have no history of clients, and add `hanging_transaction`, `missed_marker` and `unexplained`. `reduction` reduces
partitions that are too big to be checked record by record; `attribution` decides which replica is wrong. `consistency`
reports other reasons against the verdict ``clean``, and `guarantees` checks Kafka's documented guarantees.
Every table has the column run, so that one job checks many run folders.
"""
