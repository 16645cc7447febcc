"""HTML pages: one run in one file that needs no network, and a site over many runs.

run folder -> `story` (what was done, and when), `logs` (every broker's log by offset) -> pictures -> `page`.
Pages show what checkers decided, and decide nothing.
"""
