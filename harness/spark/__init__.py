"""Spark, started fast enough for data as small as that of a run folder.

Options, settings, the JVM, the session, and the data source that reads segment files. What runs on it is in
`checkers`; who starts it, and when, is in `harness.judge`.
"""
