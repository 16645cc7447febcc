"""Reasons against the verdict ``clean`` other than anomalies and damaged files."""
