"""Copies of brokers' disks: which replicas are there, and whether they belong to one cluster.

Folders or URIs are listed and identified here; they are read by `checkers.evidence`.
What an audit says of them is in `harness.audit`.
"""
