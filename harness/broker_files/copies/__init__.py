"""Copies of brokers' disks: their replicas, and the check that they belong to one cluster.

Folders or URIs are listed and identified here; they are read by `checkers.evidence`.
Findings about them are in `harness.audit`.
"""
