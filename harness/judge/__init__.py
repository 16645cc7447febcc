"""From a run folder to its verdict.

Spark is started, the checkers run, and their rows become `verdict.json`. The checkers are in `checkers`;
pages over verdicts are in `harness.report`.
"""
