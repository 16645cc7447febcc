"""``harness run --resume``: continues a run that was interrupted while its window was open.

A run with long timers spends its days in the window, in which it only waits for cleaners. The run folder and the
brokers' data are kept; every process starts from scratch.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.host import leftovers
from harness.host.cache import owned
from harness.host.clock import RealClock
from harness.judge.progress import Progress
from harness.judge.verdict import RunResult
from harness.play.options import RunOptions
from harness.play.run import conduct
from harness.play.run_plan import plan_run, prepare_run
from harness.run_folder import inventory
from harness.run_folder.manifest import HIDDEN, Manifest, open_run
from harness.run_folder.store import COMPLETE, RunFolder
from harness.schedules.schedule import schedule_of
from harness.targets import at_version
from nemesis import find_script

AS_IT_BEGAN = (
    "anomaly", "nemesis", "timers", "topic_settings", "broker_settings", "replication_factor", "partitions", "seed",
    "client",
)  # fmt: skip
"""Options that a manifest has under their names."""
NEEDED = (*AS_IT_BEGAN, "target", "brokers", "absent_brokers", "runtime")
"""Fields that a manifest must have for its run to be continued."""
GIVEN_ANEW = frozenset({"time_limit_s", "keep", "port_base", "command_config", "spark"})
"""Options that are not taken from the run folder."""


def resume(run_dir: Path, progress: Progress, **given_anew: Any) -> RunResult:
    """Continue a run, and judge it; ``given_anew``: all options of that name. Raises `UsageError`."""
    with owned(run_dir):
        clock = RealClock(time_limit_s=given_anew["time_limit_s"])
        folder, content = _open_cut_off(run_dir)
        options = replace(options_of(content), **given_anew)
        nemesis = find_script(options.nemesis)
        if nemesis.resume is None:
            raise UsageError(
                f"{folder.path} cannot be continued: the fault of the nemesis {nemesis.name} ended with the"
                " harness; run it again"
            )
        if HIDDEN in options.broker_settings.values():
            raise UsageError(
                f"{folder.path} cannot be continued: secrets among its brokers' settings were not stored; run it again"
            )
        if content.get("security") and options.command_config is None:
            raise UsageError(f"{folder.path} needs the login that it began with: give --command-config")
        prepared = prepare_run(plan_run(options), progress)
        return conduct(prepared, folder, Manifest(folder, content).go_on, clock, progress, is_resumed=True)


def options_of(content: Mapping[str, Any]) -> RunOptions:
    """Return the options of a manifest's run, with all settings: this release may have other timers."""
    schedule, image = content.get("schedule"), content["runtime"].get("image")
    application, gate = content.get("application"), content.get("gate")
    return RunOptions(
        **{name: content[name] for name in AS_IT_BEGAN},
        target=at_version(content["target"]["name"], content["target"]["version"]).name,
        schedule=schedule_of(schedule, "the manifest") if schedule else None,
        brokers=len(content["brokers"]),
        absent=len(content["absent_brokers"]),
        runtime=content["runtime"]["name"],
        image=image["reference"] if image else None,
        application=application["name"] if application else None,
        gate=gate is not None,
        gate_options=(gate["options"] or None) if gate else None,
        guard=content.get("guard") is not None,
    )


def _open_cut_off(run_dir: Path) -> tuple[RunFolder, dict[str, Any]]:
    """Return the folder and manifest of a run that can be continued. Raises `UsageError` with the reason otherwise."""
    folder, content, recorded = open_run(run_dir, NEEDED)
    if content["status"] == COMPLETE:
        raise UsageError(f"{run_dir} went to its end; `harness check` judges it again")
    owner = leftovers.read_owner(leftovers.work_root() / folder.run_id)
    if (owner or recorded).lives():
        raise UsageError(f"{run_dir} is still in progress (process {(owner or recorded).pid})")
    if owner is None:
        raise UsageError(f"{run_dir} cannot be continued: its brokers' data no longer exist; run it again")
    if owner.kept:
        raise UsageError(
            f"{run_dir} cannot be continued: its cluster was kept; `harness clean {folder.run_id}` removes it"
        )
    if not owner.resumable:
        raise UsageError(f"{run_dir} cannot be continued: it was interrupted before its window opened; run it again")
    with inventory.comparing(folder, content) as differences:
        differences()
    return folder, content
