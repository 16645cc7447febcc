"""The harness: from a schedule through a run and its evidence to a verdict and a report.

A package sees those below it only: the layers are in ``[tool.importlinter]`` of pyproject.toml. The packages are
described in docs/architecture.md.
"""

DISTRIBUTION = "compaction-harness"
"""The name under which the project is installed."""
