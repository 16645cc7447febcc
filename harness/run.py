"""``harness run``: from options to a run that is conducted to its verdict."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness import aftermath, manifest
from harness.catalog import CONTROL, scenarios_for
from harness.clients import find_client
from harness.clock import RealClock
from harness.conduct import Job, conduct
from harness.errors import UsageError
from harness.java import find_java
from harness.placement import place, ports_for
from harness.runner import Test
from harness.runtimes.network import why_impossible
from harness.store import create_run_folder, new_run_id
from harness.targets import find_target
from harness.targets.jars import jars_for
from harness.timers import find_timers
from nemesis import find_nemesis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.manifest import Manifest
    from harness.outcome import Progress, RunResult


@dataclass(frozen=True)
class RunOptions:
    """What the user asked for; ``topic_settings`` and ``broker_settings`` win over the timers'."""

    target: str
    anomaly: str
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
    aftermath: bool = False
    port_base: int | None = None


def run(options: RunOptions, progress: Progress) -> RunResult:
    """Run the scenarios in one outage and judge what was collected. Raises as `conduct` does."""
    clock = RealClock(time_limit_s=options.time_limit_s)
    target = find_target(options.target)
    test = test_of(options)
    if options.aftermath:
        aftermath.raise_if_pointless(test)
    if test.nemesis.needs_network and (reason := why_impossible()):
        raise UsageError(f"the nemesis {test.nemesis.name} gives each broker a link of its own, to cut it: {reason}")
    find_client(test.client)
    java = find_java()
    jars = jars_for(target, on_progress=progress.jars)
    ports = ports_for(test.placement, options.port_base)
    folder = create_run_folder(options.results, target.name, options.anomaly, new_run_id())

    def begin() -> Manifest:
        return manifest.begin(folder, target=target, anomaly=options.anomaly, test=test, java=java, jars=jars)

    job = Job(
        test=test,
        folder=folder,
        java=java,
        jars=jars,
        ports=ports,
        begin=begin,
        keep=options.keep,
        aftermath=options.aftermath,
    )
    return conduct(job, clock, progress)


def test_of(options: RunOptions) -> Test:
    """Return the test that the options ask for. Raises `UsageError` for names and numbers that do not fit."""
    timers, nemesis = find_timers(options.timers), find_nemesis(options.nemesis)
    return Test(
        scenarios=(*scenarios_for(options.anomaly), CONTROL),
        nemesis=nemesis,
        timers=timers,
        topic_settings={**timers.topic, **options.topic_settings},
        broker_settings={**timers.broker, **nemesis.broker_settings, **options.broker_settings},
        placement=place(
            brokers=options.brokers,
            replication_factor=options.replication_factor,
            partitions=options.partitions,
            absent=options.absent,
        ),
        seed=secrets.randbelow(2**31) if options.seed is None else options.seed,
        client=options.client,
    )


def parse_settings(pairs: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return topic and broker settings of ``--set topic.NAME=VALUE`` and ``--set broker.NAME=VALUE``.

    Raises `UsageError` for anything else.
    """
    settings: dict[str, dict[str, str]] = {"topic": {}, "broker": {}}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        scope, _, setting = name.partition(".")
        if not equals or scope not in settings or not setting:
            raise UsageError(f"--set {pair}: give topic.NAME=VALUE or broker.NAME=VALUE")
        settings[scope][setting.strip()] = value.strip()
    return settings["topic"], settings["broker"]
