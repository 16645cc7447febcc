"""PySpark checkers: derive each broker's beliefs from its own log, and report wrong beliefs.

`evidence` reads run folders into DataFrames. `replay` derives each broker's belief about each batch, and the truth.
`anomalies` has one file for each anomaly. `reduction` reduces partitions that are too big to be checked record by
record; `attribution` decides which replica is wrong. `consistency` reports other reasons against the verdict ``clean``,
and `guarantees` checks Kafka's documented guarantees.
Every table has the column run, so that one job checks many run folders.
"""
