"""From files to DataFrames: run folders, copies of brokers' disks and spools of live clusters.

Schemas, readers and the tables that every checker starts from. The bytes are parsed in `harness.brokers`;
nothing is concluded here.
"""
