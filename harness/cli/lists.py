"""The commands that list targets, nemeses, anomalies and settings."""

import os
from collections.abc import Sequence
from typing import Final

from harness.cli.config_file import FILE, SETTINGS, VARIABLE, read_config_file
from harness.cli.options.common import command, envelope
from harness.console import JSON
from harness.errors import EXIT_CLEAN
from harness.plugins import PluginGroup
from harness.schedules import catalog
from harness.targets import Target
from harness.terminal import Table, stdout

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


@command("harness targets", "harness targets --format json")
def targets(output: str) -> int:
    """List the versions that can be tested."""
    from harness.targets import KAFKA, PLUGINS, SIMULATED, TARGETS  # noqa: PLC0415  (slow imports, only where needed)
    from harness.targets.jars import is_cached  # noqa: PLC0415

    def jars_column(target: Target) -> str:
        if target.system != KAFKA:
            return "none" if target.system in SIMULATED else "an image"
        return "cached" if is_cached(target) else "to be fetched"

    rows = [
        (target.name, target.version, jars_column(target), target.status, target.note) for target in TARGETS.values()
    ]
    return _show_list("targets", ("target", "version", "jars", "status", "note"), rows, output, PLUGINS)


@command("harness nemeses", "harness nemeses --format json")
def nemeses(output: str) -> int:
    """List the faults that a run can inject."""
    from nemesis import PLUGINS, SCRIPTS  # noqa: PLC0415

    rows = [(script.name, script.summary) for script in SCRIPTS.values()]
    return _show_list("nemeses", ("nemesis", "what it does"), rows, output, PLUGINS)


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
