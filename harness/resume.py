"""``harness run --resume``: goes on with a run that was cut off while its window was open.

The window is where a run with long timers spends its days: nothing is left to be done but to wait until the
brokers that stayed have removed what is critical. What goes on is the run folder (history, observations,
manifest) and the brokers' data, which are kept for that; every process starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness import aftermath, leftovers
from harness.catalog import CONTROL
from harness.clients import find_client
from harness.clock import RealClock
from harness.conduct import Job, conduct
from harness.errors import UsageError
from harness.explore.schedule import looked_for, schedule_of
from harness.java import find_java
from harness.manifest import HIDDEN, Manifest, open_run
from harness.placement import place, ports_for
from harness.protocol.security import read_security
from harness.runner import Test
from harness.runtimes import find_runtime
from harness.runtimes.base import Wanted
from harness.spark.options import SparkOptions
from harness.systems import find_system
from harness.targets import at_version, find_target
from harness.targets.jars import jars_for_client
from harness.timers import find_timers
from harness.verdict import COMPLETE
from nemesis import find_nemesis

if TYPE_CHECKING:
    from pathlib import Path

    from harness.outcome import Progress, RunResult
    from harness.store import RunFolder

NEEDED = (
    "target", "anomaly", "nemesis", "timers", "topic_settings", "broker_settings", "brokers", "absent_brokers",
    "replication_factor", "partitions", "seed", "client", "runtime",
)  # fmt: skip
"""What has to be in a manifest for its run to go on."""


@dataclass(frozen=True)
class ResumeOptions:
    """What the user asked for."""

    run_dir: Path
    time_limit_s: float | None = None
    keep: bool = False
    aftermath: bool = False
    port_base: int | None = None
    command_config: Path | None = None
    spark: SparkOptions = field(default_factory=SparkOptions)


def resume(options: ResumeOptions, progress: Progress) -> RunResult:
    """Go on with a run and judge what was collected. Raises `UsageError` where there is nothing to go on with."""
    clock = RealClock(time_limit_s=options.time_limit_s)
    folder, content = _open_cut_off(options.run_dir)
    test = _test_of(content)
    if test.nemesis.away_again is None:
        raise UsageError(
            f"{folder.path} cannot go on: what the nemesis {test.nemesis.name} did ended with the harness; run it anew"
        )
    if HIDDEN in test.broker_settings.values():
        raise UsageError(
            f"{folder.path} cannot go on: secrets among its brokers' settings were not stored; run it anew"
        )
    security = read_security(options.command_config) if options.command_config else None
    if content.get("security") and security is None:
        raise UsageError(f"{folder.path} needs the login that it began with: give --command-config")
    if options.aftermath:
        aftermath.raise_if_pointless(test)
    java = find_java()
    target = at_version(content["target"]["name"], content["target"]["version"])
    wanted = Wanted(target, java, progress.jars, needs=test.nemesis.needs)
    ready = find_runtime(content["runtime"]["name"])(wanted)
    needed = find_client(test.client).needs_jars
    jars = ready.jars or jars_for_client(target, needed=needed, on_progress=progress.jars)

    def begin() -> Manifest:
        told = Manifest(folder, content)
        told.go_on()
        return told

    job = Job(
        test=test,
        folder=folder,
        java=java,
        ready=ready,
        classpath=jars.classpath if jars else "",
        ports=ports_for(test.placement, options.port_base),
        begin=begin,
        is_resumed=True,
        keep=options.keep,
        aftermath=options.aftermath,
        security=security,
        spark=options.spark,
    )
    return conduct(job, clock, progress)


def _open_cut_off(run_dir: Path) -> tuple[RunFolder, dict[str, Any]]:
    """Return a run's folder and manifest where it can go on. Raises `UsageError` with the reason where not."""
    folder, content, recorded = open_run(run_dir, NEEDED)
    if content["status"] == COMPLETE:
        raise UsageError(f"{run_dir} went to its end; `harness check` judges it again")
    owner = leftovers.read_owner(leftovers.work_root() / folder.run_id)
    if (owner or recorded).lives():
        raise UsageError(f"{run_dir} is still going on (process {(owner or recorded).pid})")
    if owner is None:
        raise UsageError(f"{run_dir} cannot go on: its brokers' data are gone; run it anew")
    if owner.kept:
        raise UsageError(f"{run_dir} cannot go on: its cluster was kept; `harness clean {folder.run_id}` removes it")
    if not owner.resumable:
        raise UsageError(f"{run_dir} cannot go on: it was cut off before its window opened; run it anew")
    return folder, content


def _test_of(content: dict[str, Any]) -> Test:
    """Return the test that a manifest describes."""
    nemesis = find_nemesis(content["nemesis"])
    system_name = find_target(content["target"]["name"]).system
    told = content.get("schedule")
    schedule = schedule_of(told, "the manifest") if told else None
    return Test(
        scenarios=(*looked_for(content["anomaly"], schedule), CONTROL),
        nemesis=nemesis,
        timers=find_timers(content["timers"]),
        topic_settings=content["topic_settings"],
        broker_settings=content["broker_settings"],
        placement=place(
            brokers=len(content["brokers"]),
            replication_factor=content["replication_factor"],
            partitions=content["partitions"],
            absent=len(content["absent_brokers"]),
            quorum=nemesis.quorum,
            has_odd_replicas=find_system(system_name).has_odd_replicas,
        ),
        seed=content["seed"],
        client=content["client"],
        system_name=system_name,
    )
