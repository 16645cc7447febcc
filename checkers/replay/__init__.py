"""What each broker believes: the outcome of every transactional batch, derived from its own log alone.

Also the truth that beliefs are compared with, and beliefs and truth together (`judged`). This package reads no files
and names no anomalies.
"""
