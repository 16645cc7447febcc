"""Test tiers: a pytest plugin that selects the tests which a commit needs and leaves the others to the night.

``--tier full`` runs every test. ``--tier commit``, the default when no test is named on the command line, selects by
the measured seconds of each test (`measurements`), by what each test exercises (`features`), and by what changed
since the last commit at which every test passed (`changes`). `selection` has the rule, `plugin` the hooks.

pytest-split keeps durations but selects nothing, and testmon selects by line coverage, which does not see brokers,
subprocesses and Spark's Python workers. Hence this package.
"""
