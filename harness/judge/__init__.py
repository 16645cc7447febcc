"""From a run folder to its verdict: the rows of `checkers` become `verdict.json`."""
