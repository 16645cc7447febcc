"""Read run folders, copies of brokers' disks and spools of live clusters into DataFrames.

`harness.broker_files` parses the bytes; this package draws no conclusions.
"""
