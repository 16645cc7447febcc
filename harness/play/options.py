"""The options of a run, and which of them contradict each other, or would be ignored by the runtime or the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.run_folder.store import PROTECTION_FILES, UNPROTECTED
from harness.runtimes import AUTO, COMMAND_CONFIG, GATE, GUARD, IMAGE, KEEP, NODES, PORT_BASE, RUNTIMES, SSH
from harness.schedules.catalog import SERVED
from harness.schedules.schedule import Schedule
from harness.schedules.timers import DAYS
from harness.spark.options import SparkOptions
from harness.targets import OWN, REDPANDA, Target
from harness.targets.settings import BROKER, TOPIC, raise_if_unfit

if TYPE_CHECKING:
    from harness.host.nodes import Access

PROTECTIONS = (UNPROTECTED, *PROTECTION_FILES)
"""Protections that keep cleaners waiting for replicas out of the ISR: none, ``--gate`` or ``--guard``."""


@dataclass(frozen=True)
class RunOptions:
    """The options of the user; ``topic_settings`` and ``broker_settings`` win over the timers'.

    A ``schedule`` takes the place of ``anomaly``, which is "" then; ``schedule_path``: where it was read.
    """

    target: str
    anomaly: str
    schedule: Schedule | None = None
    schedule_path: Path | None = field(default=None, compare=False)
    nemesis: str = "kill"
    client: str = "librdkafka"
    timers: str = "fast"
    brokers: int = 3
    replication_factor: int = 3
    partitions: int = 1
    absent: int = 1
    results: Path = Path("results")
    seed: int | None = None
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float | None = None
    keep: bool = False
    application: str | None = None
    gate: bool = False
    gate_options: str | None = None
    guard: bool = False
    port_base: int | None = None
    runtime: str = AUTO
    image: str | None = None
    access: Access | None = None
    command_config: Path | None = None
    spark: SparkOptions = field(default_factory=SparkOptions)


FIELDS: Final[Mapping[str, str]] = {
    IMAGE: "image", NODES: "access", PORT_BASE: "port_base", KEEP: "keep", COMMAND_CONFIG: "command_config",
    GATE: "gate", GUARD: "guard",
}  # fmt: skip
"""Options that not every runtime takes, with their fields, which are empty where an option is not given."""

CONTRADICTIONS: Final[Mapping[str, Callable[[RunOptions], bool]]] = {
    "--runtime ssh needs hosts: give --nodes HOST,HOST,HOST or --nodes-file FILE": (
        lambda options: options.runtime == SSH and options.access is None
    ),
    "--gate-options are for --gate: give both": lambda options: bool(options.gate_options) and not options.gate,
    "--gate and --guard: a run shows what one of them does; choose one": lambda options: options.gate and options.guard,
    "--timers days: runs of --anomaly served do not put clocks forward; choose other timers": (
        lambda options: options.timers == DAYS.name and options.anomaly == SERVED
    ),
}
"""Combinations of options that are wrong for every target, by their messages."""


def raise_if_contradictory(options: RunOptions, target: Target) -> None:
    """Raise `UsageError` for the first contradiction, and for a setting that the target's brokers would not take."""
    raise_if_unfit(target, {TOPIC: options.topic_settings, BROKER: options.broker_settings})
    runtimes = [name for name, row in RUNTIMES.items() if row.runs(target)]
    if options.runtime != AUTO and options.runtime not in runtimes:
        raise UsageError(
            f"--runtime {options.runtime}: {target.name} does not run there; choose {' or '.join(runtimes)}"
        )
    for reason, holds in CONTRADICTIONS.items():
        if holds(options):
            raise UsageError(reason)
    given = [flag for flag, name in FIELDS.items() if getattr(options, name)]
    of_kafka = [flag for flag in (COMMAND_CONFIG, GATE) if flag in given and target.system in {OWN, REDPANDA}]
    if of_kafka:
        raise UsageError(f"{of_kafka[0]} is for Kafka's brokers only, and contradicts --target {target.name}")
    possible, chosen = set(runtimes), f"--target {target.name}"
    if options.runtime != AUTO:
        possible, chosen = {options.runtime}, f"--runtime {options.runtime}"
    for flag in given:
        takers = [name for name, row in RUNTIMES.items() if flag in row.options]
        if not possible & set(takers):
            raise UsageError(f"{flag} is for --runtime {' or '.join(takers)}, and contradicts {chosen}")
        if not possible <= set(takers):
            possible, chosen = possible & set(takers), flag
