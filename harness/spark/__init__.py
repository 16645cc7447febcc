"""Spark sessions that start fast enough for a run folder, and a data source for segment files."""
