"""Readers of the files that brokers store: segments, side files, internal topics, copies of disks and their storage."""
