"""The data that brokers store and serve, and its readers.

Segments and side files, the wire protocol, copies of disks, and their storage. Starting brokers is in
`harness.runtimes`; `checkers` finds anomalies in the data.
"""
