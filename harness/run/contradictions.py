"""Options of a run that contradict each other, or that the chosen runtime or target would ignore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.runtimes import AUTO, DOCKER, LOCAL, SIM, SSH
from harness.targets import KAFKA, REDPANDA, SIMULATED, find_target
from harness.targets.settings import BROKER, TOPIC, raise_if_unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.run.options import RunOptions
    from harness.targets import Target

RUNTIMES_OF: Final[Mapping[str, Sequence[str]]] = {
    KAFKA: (LOCAL, DOCKER, SSH),
    REDPANDA: (DOCKER,),
    **dict.fromkeys(SIMULATED, (SIM,)),
}
"""Where brokers of a system can live: Redpanda's come as images only, and simulated ones are part of this process."""

TAKEN_BY: Final[Mapping[str, tuple[Callable[[RunOptions], bool], Sequence[str]]]] = {
    "--image": (lambda options: options.image is not None, (DOCKER,)),
    "--nodes": (lambda options: options.access is not None, (SSH,)),
    "--port-base": (lambda options: options.port_base is not None, (LOCAL, DOCKER, SSH)),
    "--keep": (lambda options: options.keep, (LOCAL, DOCKER, SSH)),
    "--command-config": (lambda options: options.command_config is not None, (LOCAL, DOCKER, SSH)),
}
"""Options that not every runtime has a use for: whether one is given, and which runtimes have."""


def raise_if_contradictory(options: RunOptions) -> None:
    """Raise `UsageError` for the first contradiction, and for a setting that the target's brokers would not take."""
    target = find_target(options.target)
    raise_if_unfit(target, {TOPIC: options.topic_settings, BROKER: options.broker_settings})
    runtimes = RUNTIMES_OF[target.system]
    if options.runtime != AUTO and options.runtime not in runtimes:
        raise UsageError(f"--runtime {options.runtime}: {_where(target)}; choose {' or '.join(runtimes)}")
    if options.runtime == SSH and options.access is None:
        raise UsageError("--runtime ssh needs hosts: give --nodes HOST,HOST,HOST or --nodes-file FILE")
    if options.command_config is not None and target.system == REDPANDA:
        raise UsageError(
            f"--command-config {options.command_config}: the harness sets up no logins on Redpanda's brokers"
        )
    possible, chosen = set(runtimes), f"--target {target.name}"
    if options.runtime != AUTO:
        possible, chosen = {options.runtime}, f"--runtime {options.runtime}"
    for flag, (is_given, takers) in TAKEN_BY.items():
        if not is_given(options):
            continue
        if not possible & set(takers):
            raise UsageError(f"{flag} is for --runtime {' or '.join(takers)}, and contradicts {chosen}")
        if not possible <= set(takers):
            possible, chosen = possible & set(takers), flag


def _where(target: Target) -> str:
    if target.system in SIMULATED:
        return f"{target.name} is simulated, in this process"
    if target.system == REDPANDA:
        return f"{target.name} is an image that is pulled"
    return f"{target.name} is real, and not one of {', '.join(SIMULATED)}"
