"""Derive each broker's beliefs and the truth (`judged`). Reads no files and names no anomalies."""
