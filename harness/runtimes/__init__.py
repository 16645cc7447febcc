"""The runtimes of brokers in one table: processes, containers, other hosts, simulation.

Every runtime has the methods of `harness.runtimes.base.Runtime`. This package has links, firewalls, disks and clocks of
brokers; `harness.host` those of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.host.leftovers import may_have_engine
from harness.suggest import nearest
from harness.targets import KAFKA, OWN, REDPANDA, SIMULATED, Target

if TYPE_CHECKING:
    from harness.runtimes.base import PreparedRuntime, RuntimeRequest

AUTO, LOCAL, DOCKER, SSH, SIM = "auto", "local", "docker", "ssh", "sim"

PORT_BASE, KEEP, COMMAND_CONFIG = "--port-base", "--keep", "--command-config"
IMAGE, NODES, GATE, GUARD = "--image", "--nodes", "--gate", "--guard"


@dataclass(frozen=True)
class RuntimeKind:
    """A runtime: the module with its ``prepare``, and the systems that it runs.

    ``options``: options that only some runtimes accept. ``runs_jars``: brokers run jars, which may be a user's build.
    """

    module: str
    systems: tuple[str, ...]
    options: frozenset[str]
    runs_jars: bool = False

    def runs(self, target: Target) -> bool:
        """Return whether the runtime can run the brokers of a target."""
        return target.system in self.systems and (self.runs_jars or target.build is None)


# Redpanda's brokers are only available as images, and simulated brokers are part of this process.
RUNTIMES = {
    LOCAL: RuntimeKind(
        "harness.runtimes.local",
        (KAFKA, OWN),
        frozenset({PORT_BASE, KEEP, COMMAND_CONFIG, GATE, GUARD}),
        runs_jars=True,
    ),
    DOCKER: RuntimeKind(
        "harness.runtimes.docker", (KAFKA, REDPANDA), frozenset({PORT_BASE, KEEP, COMMAND_CONFIG, IMAGE, GUARD})
    ),
    SSH: RuntimeKind("harness.runtimes.ssh", (KAFKA,), frozenset({PORT_BASE, KEEP, NODES, GUARD}), runs_jars=True),
    SIM: RuntimeKind("harness.runtimes.sim", SIMULATED, frozenset()),
}
"""Every runtime by name. A new runtime is a module and an entry."""


def choose(name: str, request: RuntimeRequest) -> tuple[str, str | None]:
    """Return the name of the runtime to use, and for `AUTO` the reason for the choice.

    `AUTO` chooses hosts if they are given; else containers if an image is given, or an engine and an image are
    available, or the target has no jars; else processes. Simulated targets run in this process.
    """
    target = request.target
    if name != AUTO:
        return name, None
    if target.system in SIMULATED:
        return SIM, f"{target.name} is simulated"
    if request.access is not None:
        return SSH, "hosts are given"
    if target.system not in {KAFKA, OWN} or request.image is not None:
        return DOCKER, f"{target.name} comes as an image only" if target.system != KAFKA else "an image is given"
    if target.own or target.build or not may_have_engine():
        return (
            LOCAL,
            f"{target.name} has no image" if target.own or target.build else "this host has no container engine",
        )
    from harness.runtimes.docker import why_unavailable  # noqa: PLC0415  (its client is only imported if needed)

    reason = why_unavailable(request)
    return (LOCAL, reason) if reason else (DOCKER, f"the container engine has an image of {target.name}")


def find_runtime(name: str) -> Callable[[RuntimeRequest], PreparedRuntime]:
    """Return the ``prepare`` of the runtime with this name. Raises `UsageError` with the nearest names."""
    if name not in {AUTO, *RUNTIMES}:
        raise UsageError(nearest("runtime", name, [AUTO, *RUNTIMES]))
    return lambda request: import_module(RUNTIMES[choose(name, request)[0]].module).prepare(request)
