"""Derive each broker's beliefs, the outcomes of transactional batches by its own log, and the truth (`judged`).

This package reads no files and names no anomalies.
"""
