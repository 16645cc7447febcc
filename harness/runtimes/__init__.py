"""Where brokers run, in one table: processes, containers, other hosts, simulation.

Every runtime has the methods of `harness.runtimes.base.Runtime`. Links, firewalls, disks and clocks are here where they
are a broker's, and in `harness.host` where they are the host's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.host.elsewhere import may_have_engine
from harness.suggest import nearest
from harness.targets import KAFKA, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.runtimes.base import Ready, Wanted

AUTO, LOCAL, DOCKER, SSH, SIM = "auto", "local", "docker", "ssh", "sim"


@dataclass(frozen=True)
class Choice:
    """A runtime by its name, what makes it ready, and in words why it was chosen where nobody named it."""

    name: str
    prepare: Callable[[Wanted], Ready]
    reason: str | None = None


def choose(name: str, wanted: Wanted) -> Choice:
    """Return the runtime of that name; for `AUTO`, the one for what is wanted. Raises `UsageError` as `find_runtime`.

    `AUTO` stands for the given hosts; else containers where an image is given, or where an engine answers and an image
    is at hand; else processes. What has no jars can be in containers alone, and what is simulated is in this process.
    """
    if name != AUTO:
        return Choice(name, find_runtime(name))
    name, reason = _chosen(wanted)
    return Choice(name, find_runtime(name), reason)


def find_runtime(name: str) -> Callable[[Wanted], Ready]:
    """Return what makes a runtime of that name ready. Raises `UsageError` with the nearest names."""
    table: dict[str, Callable[[Wanted], Ready]] = {
        AUTO: lambda wanted: choose(AUTO, wanted).prepare(wanted),
        LOCAL: _local,
        DOCKER: _docker,
        SSH: _ssh,
        SIM: _sim,
    }
    if name not in table:
        raise UsageError(nearest("runtime", name, list(table)))
    return table[name]


def _chosen(wanted: Wanted) -> tuple[str, str]:
    target = wanted.target
    if target.system in SIMULATED:
        return SIM, f"{target.name} is simulated"
    if wanted.access is not None:
        return SSH, "hosts are given"
    if target.system != KAFKA:
        return DOCKER, f"{target.name} comes as an image only"
    if wanted.image is not None:
        return DOCKER, "an image is given"
    if not may_have_engine():
        return LOCAL, "this host has no container engine"
    from harness.runtimes.docker import why_not_at_hand  # noqa: PLC0415  (only what is used is imported)

    lack = why_not_at_hand(wanted)
    return (LOCAL, lack) if lack else (DOCKER, f"the container engine has an image of {target.name}")


def _local(wanted: Wanted) -> Ready:
    from harness.runtimes.local import prepare  # noqa: PLC0415

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
