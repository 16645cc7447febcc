"""Additions to the compaction harness: a fault, an anomaly, a target and an application."""
