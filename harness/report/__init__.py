"""A run to look at: one HTML file that needs nothing but itself.

run folder -> `story` (what was done, and when), `logs` (every broker's log, offset by offset) -> pictures -> `page`.
"""
