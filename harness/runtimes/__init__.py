"""Where a cluster's brokers live: runtimes with the verbs of `harness.runtimes.base.Runtime`, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.runtimes.elsewhere import may_have_engine
from harness.suggest import nearest
from harness.targets import KAFKA, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.runtimes.base import Ready, Wanted

AUTO, SIM = "auto", "sim"


def find_runtime(name: str) -> Callable[[Wanted], Ready]:
    """Return what makes a runtime of that name ready. Raises `UsageError` with the nearest names."""
    table: dict[str, Callable[[Wanted], Ready]] = {
        AUTO: _auto,
        "local": _local,
        "docker": _docker,
        "ssh": _ssh,
        SIM: _sim,
    }
    if name not in table:
        raise UsageError(nearest("runtime", name, list(table)))
    return table[name]


def _local(wanted: Wanted) -> Ready:
    from harness.runtimes.local import prepare  # noqa: PLC0415  (only what is used is imported)

    return prepare(wanted)


def _docker(wanted: Wanted) -> Ready:
    from harness.runtimes.docker import prepare  # noqa: PLC0415

    return prepare(wanted)


def _ssh(wanted: Wanted) -> Ready:
    from harness.runtimes.ssh import prepare  # noqa: PLC0415

    return prepare(wanted)


def _sim(wanted: Wanted) -> Ready:
    from harness.runtimes.sim import prepare  # noqa: PLC0415

    return prepare(wanted)


def _auto(wanted: Wanted) -> Ready:
    """The given hosts; else containers where an engine answers and an image is at hand; else processes.

    What has no jars can be in containers alone, and what is simulated is in this process.
    """
    if wanted.target.system in SIMULATED:
        return _sim(wanted)
    if wanted.access is not None:
        return _ssh(wanted)
    if wanted.target.system != KAFKA:
        return _docker(wanted)
    if may_have_engine():
        from harness.runtimes.docker import is_at_hand  # noqa: PLC0415

        if is_at_hand(wanted):
            return _docker(wanted)
    return _local(wanted)
