"""What commands have in common: options, values, and how results are shown.

The commands themselves are in `harness.cli` and in the `cli` module of each room;
printing and escaping are `harness.terminal`.
"""
