"""Copies of brokers' disks: lists their replicas, and verifies that they belong to one cluster."""
