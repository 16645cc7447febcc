"""Options and values that several commands share.

The commands themselves are in `harness.cli.main` and in the `cli` module of each package;
printing and escaping are in `harness.terminal`.
"""
