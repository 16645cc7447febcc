"""Where brokers run, in one table: processes, containers, other hosts, simulation.

Every runtime has the methods of `harness.runtimes.base.Runtime`. Links, firewalls, disks and clocks are here where they
are a broker's, and in `harness.host` where they are the host's.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.host.elsewhere import may_have_engine
from harness.suggest import nearest
from harness.targets import KAFKA, REDPANDA, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.runtimes.base import Ready, Wanted
    from harness.targets import Target

AUTO, LOCAL, DOCKER, SSH, SIM = "auto", "local", "docker", "ssh", "sim"

PORT_BASE, KEEP, COMMAND_CONFIG = "--port-base", "--keep", "--command-config"
IMAGE, NODES, GATE, GUARD = "--image", "--nodes", "--gate", "--guard"


@dataclass(frozen=True)
class Row:
    """A runtime: the module whose ``prepare`` makes it ready, the systems that it runs, and the options that it takes.

    ``options``: only those that not every runtime takes. ``runs_jars``: the brokers are of the target's jars, which may
    be a user's own build.
    """

    module: str
    systems: tuple[str, ...]
    options: frozenset[str]
    runs_jars: bool = False

    def runs(self, target: Target) -> bool:
        """Whether it can run the brokers of a target."""
        return target.system in self.systems and (self.runs_jars or target.build is None)

    def prepare(self, wanted: Wanted) -> Ready:
        """Make the runtime ready; its module is imported only now. Raises `UsageError` for what it lacks."""
        ready: Ready = import_module(self.module).prepare(wanted)
        return ready


# Redpanda's brokers come as images only, and simulated ones are part of this process.
RUNTIMES = {
    LOCAL: Row(
        "harness.runtimes.local", (KAFKA,), frozenset({PORT_BASE, KEEP, COMMAND_CONFIG, GATE, GUARD}), runs_jars=True
    ),
    DOCKER: Row(
        "harness.runtimes.docker", (KAFKA, REDPANDA), frozenset({PORT_BASE, KEEP, COMMAND_CONFIG, IMAGE, GUARD})
    ),
    SSH: Row("harness.runtimes.ssh", (KAFKA,), frozenset({PORT_BASE, KEEP, NODES, GUARD}), runs_jars=True),
    SIM: Row("harness.runtimes.sim", SIMULATED, frozenset()),
}
"""Every runtime by its name. A new one is a module and a row."""


def choose(name: str, wanted: Wanted) -> tuple[str, str | None]:
    """Return the name of the runtime to use, and in words why it was chosen where nobody named it (`AUTO`).

    `AUTO` stands for the given hosts; else containers where an image is given, or where an engine answers and an image
    is at hand; else processes. What has no jars can be in containers alone, and what is simulated is in this process.
    """
    return _chosen(wanted) if name == AUTO else (name, None)


def find_runtime(name: str) -> Callable[[Wanted], Ready]:
    """Return what makes a runtime of that name ready. Raises `UsageError` with the nearest names."""
    if name not in {AUTO, *RUNTIMES}:
        raise UsageError(nearest("runtime", name, [AUTO, *RUNTIMES]))
    return lambda wanted: RUNTIMES[choose(name, wanted)[0]].prepare(wanted)


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
    if target.build is not None or not may_have_engine():
        return LOCAL, f"{target.name} has no image" if target.build else "this host has no container engine"
    from harness.runtimes.docker import why_not_at_hand  # noqa: PLC0415  (only what is used is imported)

    lack = why_not_at_hand(wanted)
    return (LOCAL, lack) if lack else (DOCKER, f"the container engine has an image of {target.name}")
