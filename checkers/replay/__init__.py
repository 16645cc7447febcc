"""What each broker believes: the outcome of every transactional batch, derived from its own log alone.

The truth to compare with, producer spans, and the two together (`judged`). No file is read here, and no anomaly
is named.
"""
