"""From files to DataFrames: run folders, copies of brokers' disks and spools of live clusters.

Schemas, readers and the tables that every checker starts from. `harness.broker_files` parses the bytes; this package
draws no conclusions.
"""
