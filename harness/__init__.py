"""The harness: from a schedule through a run and its evidence to a verdict and a report.

A package sees those below it only: the layers are in ``[tool.importlinter]`` of pyproject.toml. The packages are
described in docs/architecture.md. `harness.api` has the functions for other programs, which are exported here.
"""

from importlib import import_module

__all__ = (
    "HarnessError", "UsageError", "absent", "assert_replicas_agree", "audit_disk", "audit_live", "check",
    "local_cluster", "run",
)  # fmt: skip

DISTRIBUTION = "compaction-harness"
"""The name under which the project is installed."""

_EXPORTS = {
    **dict.fromkeys(("run", "check", "audit_disk", "audit_live"), "harness.api.commands"),
    **dict.fromkeys(("local_cluster", "absent", "assert_replicas_agree"), "harness.api.clusters"),
    **dict.fromkeys(("HarnessError", "UsageError"), "harness.errors"),
}
"""The modules of exported names, imported at the first use (PEP 562)."""

TYPE_CHECKING = False  # the import of typing takes longer than all the rest
if TYPE_CHECKING:
    from harness.api.clusters import absent, assert_replicas_agree, local_cluster
    from harness.api.commands import audit_disk, audit_live, check, run
    from harness.errors import HarnessError, UsageError


def __getattr__(name: str) -> object:
    """Return an exported name."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_EXPORTS[name]), name)
    return value
