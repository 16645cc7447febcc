"""``harness doctor``, ``clean`` and ``images``, and the lists of targets, nemeses, anomalies and settings."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import cloup

import nemesis
from harness.cli.config_file import FILE, SETTINGS, VARIABLE, read_config_file
from harness.cli.options.common import Group, command, envelope
from harness.cli.options.parameters import TARGET, Text
from harness.console import JSON, ConsoleProgress
from harness.errors import EXIT_CLEAN, EXIT_USAGE, HarnessError, UsageError
from harness.host import leftovers
from harness.host.java import find_java
from harness.plugins import PluginGroup
from harness.schedules import catalog
from harness.spark import background
from harness.targets import KAFKA, PLUGINS, SIMULATED, TARGETS, Target, find_target
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    from harness.doctor import Check

STYLES: Final = {"missing": "red", "ok": "green", "optional": "yellow"}
"""Colours of the states of checks, in the order in which they are shown."""
INDENT: Final = " " * 10
WIDTH: Final = 100 - len(INDENT)
VARIABLES: Final = (
    (VARIABLE, f"the file of settings; else {FILE} of the current folder"),
    ("JAVA_HOME", "the Java runtime; else java of the path"),
    ("TMPDIR", "the folder of the brokers' data; for long timers, one that survives a reboot"),
    ("COMPACTION_HARNESS_CACHE", "the folder of jars, class archives and compiled code; else below XDG_CACHE_HOME"),
    ("XDG_CACHE_HOME", "the folder of caches; else ~/.cache"),
    ("NUMBA_CACHE_DIR", "the folder of compiled code; else below COMPACTION_HARNESS_CACHE"),
    ("COMPACTION_HARNESS_BACKGROUND", "0: make no class archive in the background"),
    ("COMPACTION_HARNESS_MAVEN_ROOT", "a mirror of Maven Central, for jars and nightly --latest"),
    ("COMPACTION_HARNESS_DOCKER_HUB_ROOT", "a mirror of Docker Hub, for nightly --latest"),
    ("DOCKER_HOST", "the address of the container engine"),
    ("PYSPARK_PYTHON", "the Python of Spark's workers on other hosts"),
    ("HADOOP_CONF_DIR", "the folder of a YARN cluster's settings; else YARN_CONF_DIR"),
    ("YARN_CONF_DIR", "the folder of a YARN cluster's settings"),
    ("HADOOP_USER_NAME", "the user for WebHDFS; else the user of this process"),
    ("AWS_REGION", "the region of S3; else AWS_DEFAULT_REGION, else as AWS answers"),
    ("AWS_DEFAULT_REGION", "the region of S3"),
)
"""Environment variables, and what each is for; docs/reference/settings.md shows the same table."""


FETCH: Final = Group("Cache").option(
    "--fetch", TARGET, "Download the jars of this target; repeatable.", name="targets", multiple=True
)


@command("harness doctor", "harness doctor --fetch kafka-3.9 --fetch kafka-4.4", options=[FETCH])
def doctor(targets: tuple[str, ...], output: str) -> int:
    """Check what this machine is missing, and how to get it.

    Exit codes: 0 nothing that every run needs is missing, 254 something is, 255 failed.
    """
    from harness.doctor import diagnose  # noqa: PLC0415

    if targets:
        _fetch(targets)
    checks = diagnose()
    if output == JSON:
        stdout().json(envelope(checks=[{**vars(check), "status": check.status} for check in checks]))
    else:
        _show_checks(checks)
    return EXIT_CLEAN if all(check.ok for check in checks) else EXIT_USAGE


def _fetch(targets: Sequence[str]) -> None:
    from harness.judge.sessions import CHECKS  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    progress = ConsoleProgress()
    for target in [find_target(name) for name in targets]:
        jars = jars_for(target, on_progress=progress.jars, verify=True)
        progress.stage(f"{target.name} ({target.version}): {len(jars.digests)} jars in {jars.directory}")
    archive = background.make_archive(find_java(), CHECKS, wait_s=background.LIMIT_S)
    progress.stage(f"Spark's classes: {archive or 'another process still makes their archive'}")


def _show_checks(checks: Sequence[Check]) -> None:
    out, counts = stdout(), Counter(check.status for check in checks)
    for status, style in STYLES.items():
        for check in checks:
            if check.status == status:
                first, *more = textwrap.wrap(f"{check.name}: {check.found}", WIDTH)
                out.line(styled(f"{status:8}", style), f"  {first}")
                for line in (*more, *textwrap.wrap(check.remedy, WIDTH, initial_indent="-> ", subsequent_indent="   ")):
                    out.line(INDENT, line)
    parts = ", ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
    out.line(f"{parts}: ", "install what is missing" if counts["missing"] else "ready for `harness run`")


@command(
    "harness clean",
    "harness clean 2026-11-21T20-29-10Z-0c7f",
    options=[cloup.Argument(["run_ids"], nargs=-1, type=Text(), metavar="[RUN_ID]...")],
    formats=False,
)
def clean(run_ids: tuple[str, ...]) -> int:
    """Remove what ended runs left on this machine.

    Runs in progress stay. Kept clusters stay too, unless their run is named.
    """
    owners = leftovers.find_leftovers()
    if unknown := set(run_ids) - {directory.name for directory in owners}:
        raise UsageError(f"there is no such RUN_ID: nothing is left of {', '.join(sorted(unknown))}")
    for directory, owner in owners.items():
        if owner and (spared := _why_spared(owner, directory.name, run_ids)):
            stdout().line(f"spared {directory.name}: {spared}")
    removed, failed = [], []
    for directory, owner in owners.items():
        if directory.name in run_ids or (not run_ids and leftovers.is_abandoned(directory, owner)):
            try:
                removed.append(f"{directory.name}: {leftovers.remove(directory)} processes and {directory}")
            except HarnessError as error:
                failed.append(str(error))
    removed += leftovers.remove_orphans()
    for text in removed:
        stdout().line(f"removed {text}")
    if failed:
        raise HarnessError("; ".join(failed))
    if not removed:
        stdout().line("nothing to remove")
    return EXIT_CLEAN


def _why_spared(owner: leftovers.Owner, run_id: str, run_ids: tuple[str, ...]) -> str | None:
    """Return the reason to spare a run; None for a run that is removed or was not named.

    Raises `UsageError` for a named run that is still in progress.
    """
    if not owner.kept and owner.lives():
        if run_id in run_ids:
            raise UsageError(f"{run_id} is still in progress (process {owner.pid}); end that first")
        return f"its run is in progress (process {owner.pid})"
    if run_ids or not (owner.kept or owner.resumable):
        return None
    why = "kept" if owner.kept else f"resume it with `harness run --resume {owner.run_dir}`"
    return f"{why}; remove it with `harness clean {run_id}`"


@cloup.group()
def images() -> None:
    """Build container images for --runtime docker."""


@command(
    "harness images build kafka-3.9",
    "harness images build kafka-4.4.0",
    options=[cloup.Argument(["target_name"], type=TARGET, metavar="TARGET")],
    of=images,
    formats=False,
)
def build(target_name: str) -> int:
    """Build an image like apache/kafka from the brokers' jars and this host's Java. Pulls nothing."""
    from harness.host import engine  # noqa: PLC0415  (docker, which a guard's image does not have)
    from harness.targets.images import build_image  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    target, java, client = find_target(target_name), find_java(), engine.connect()
    progress = ConsoleProgress()
    jars = jars_for(target, on_progress=progress.jars, verify=True)
    progress.stage(f"build {target.name} ({target.version})")
    image = build_image(client, target, jars, java)
    stdout().line(f"{image.reference}  {image.id}")
    return EXIT_CLEAN


@command("harness targets", "harness targets --format json")
def targets(output: str) -> int:
    """List the versions that can be tested."""
    from harness.targets.jars import is_cached  # noqa: PLC0415

    def jars_column(target: Target) -> str:
        if target.system != KAFKA:
            return "none" if target.system in SIMULATED else "an image"
        return "cached" if is_cached(target) else "to be fetched"

    rows = [(row.name, row.version, jars_column(row), row.status, row.note) for row in TARGETS.values()]
    return _show_list("targets", ("target", "version", "jars", "status", "note"), rows, output, PLUGINS)


@command("harness nemeses", "harness nemeses --format json")
def nemeses(output: str) -> int:
    """List the faults that a run can inject."""
    rows = [(script.name, script.summary) for script in nemesis.SCRIPTS.values()]
    return _show_list("nemeses", ("nemesis", "what it does"), rows, output, nemesis.PLUGINS)


@command("harness anomalies", "harness anomalies --format json")
def anomalies(output: str) -> int:
    """List the anomalies that a run can look for."""
    rows = [(str(scenario.anomaly), scenario.payload, scenario.summary) for scenario in catalog.all_scenarios()]
    return _show_list("anomalies", ("anomaly", "payload", "what happens"), rows, output, catalog.PLUGINS)


@command("harness settings", "HARNESS_CONFIG=ci/harness.toml harness settings --format json")
def settings(output: str) -> int:
    """List settings of harness.toml and the environment, and the source of each value."""
    config = read_config_file()
    values = [(setting.name, setting.option, config.values.get(setting.name), str(config.path)) for setting in SETTINGS]
    values += [
        (setting.name.replace("cluster", f"clusters.{name}", 1), setting.option, own[setting.name], str(config.path))
        for name, own in config.clusters.items()
        for setting in SETTINGS
        if setting.name in own
    ]
    values += [(name, purpose, os.environ.get(name), "environment") for name, purpose in VARIABLES]
    rows = [(name, purpose, _text(value), "" if value is None else source) for name, purpose, value, source in values]
    return _show_list("settings", ("setting", "for", "value", "from"), rows, output)


def _text(value: str | list[str] | None) -> str:
    return " ".join(value) if isinstance(value, list) else value or ""


def _show_list(
    name: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], output: str, plugins: PluginGroup | None = None
) -> int:
    """Print a list whose first column has names. ``plugins``: adds the packages that offer them, if there are any."""
    if plugins and plugins.contents:
        head, rows = (*head, "origin"), [(*row, plugins.origin(row[0])) for row in rows]
    if output == JSON:
        stdout().json(envelope(**{name: [dict(zip(head, row, strict=True)) for row in rows]}))
    else:
        stdout().table(Table(head, rows))
    return EXIT_CLEAN


LISTS: Final = (targets, nemeses, anomalies, settings)
