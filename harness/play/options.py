"""What ``harness run`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.judge.protected import FILES, UNPROTECTED
from harness.runtimes import AUTO
from harness.spark.options import SparkOptions
from harness.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.host.nodes import Access
    from harness.schedules.sentences import Schedule

PROTECTIONS = (UNPROTECTED, *FILES)
"""What keeps cleaners waiting for replicas that are away: nothing, ``--gate`` or ``--guard``."""


def find_protection(name: str) -> str:
    """Return the name. Raises `UsageError` with the nearest names where there is no such protection."""
    if name not in PROTECTIONS:
        raise UsageError(nearest("protection", name, list(PROTECTIONS)))
    return name


@dataclass(frozen=True)
class RunOptions:
    """What the user asked for; ``topic_settings`` and ``broker_settings`` win over the timers'.

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
    aftermath: bool = False
    gate: bool = False
    gate_options: str | None = None
    guard: bool = False
    port_base: int | None = None
    runtime: str = AUTO
    image: str | None = None
    access: Access | None = None
    command_config: Path | None = None
    spark: SparkOptions = field(default_factory=SparkOptions)
