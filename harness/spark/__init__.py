"""Spark sessions that start fast enough for the small data of a run folder, and a data source for segment files.

`checkers` has the jobs, and `harness.judge` starts the sessions.
"""
