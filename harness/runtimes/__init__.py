"""The runtimes of brokers in one table: processes, containers, other hosts, simulation.

Every runtime has the methods of `harness.runtimes.base.Runtime`. This package has links, firewalls, disks and clocks of
brokers; `harness.host` those of the host.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from harness.host.leftovers import may_have_engine
from harness.runtimes.base import PreparedRuntime, RuntimeRequest
from harness.suggest import known_name
from harness.targets import KAFKA, OWN, REDPANDA, SIMULATED, Target

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

    `AUTO` chooses hosts if they are given; else containers if an image is given, or the target has no jars, or an
    engine and an image are available and containers have the abilities that the run needs; else processes. Simulated
    targets run in this process.
    """
    target = request.target
    if name != AUTO:
        return name, None
    rules = (
        (target.system in SIMULATED, SIM, f"{target.name} is simulated"),
        (request.access is not None, SSH, "hosts are given"),
        (request.image is not None, DOCKER, "an image is given"),
        (not RUNTIMES[LOCAL].runs(target), DOCKER, f"{target.name} comes as an image only"),
        (not RUNTIMES[DOCKER].runs(target), LOCAL, f"{target.name} has no image"),
        (not may_have_engine(), LOCAL, "this host has no container engine"),
    )
    for applies, runtime, reason in rules:
        if applies:
            return runtime, reason
    from harness.runtimes.docker import why_unavailable  # noqa: PLC0415  (its client is only imported if needed)

    problem = why_unavailable(request)
    return (LOCAL, problem) if problem else (DOCKER, f"the container engine has an image of {target.name}")


def find_runtime(name: str) -> Callable[[RuntimeRequest], PreparedRuntime]:
    """Return the ``prepare`` of the runtime with this name. Raises `UsageError` with the nearest names."""
    known_name("runtime", name, (AUTO, *RUNTIMES))
    return lambda request: import_module(RUNTIMES[choose(name, request)[0]].module).prepare(request)
