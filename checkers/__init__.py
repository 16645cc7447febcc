"""PySpark checkers: what does each broker believe, and where is that belief wrong?

`evidence` reads run folders into DataFrames. `replay` derives each broker's belief about each batch, and the truth.
`anomalies` has one file for each anomaly:

* `stuck_lso`              a transaction that ended on other replicas is open on this replica
* `aborted_to_committed`   data of an aborted transaction counts as committed on this replica
* `committed_to_aborted`   data of a committed transaction counts as aborted on this replica
* `tombstone_divergence`   a deleted value is alive on this replica

Audits have no history of clients, and add `hanging_transaction`, `missed_marker` and `unexplained`; their evidence is
in `undeleted_values`, `unreplicated_tails`, `side_files` and `txnindex_disagreement`. `reduction` reduces partitions
that are too big to be checked record by record; `attribution` decides which replica is wrong.

`consistency` finds what forbids the verdict ``clean`` without an anomaly, and `guarantees` checks Kafka's documented
guarantees. Every table has the column run, so that one job checks many run folders.
"""
