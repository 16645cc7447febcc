"""Targets: a row for each line of Kafka or Redpanda versions, with its newest patch; locks of jars, images, settings.

`harness.runtimes` starts targets; `harness.systems` has the differences between systems.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.plugins import PluginGroup, Registry
from harness.schedules.scenario import CLASSIC, CONSUMER, STREAMS
from harness.suggest import nearest, quoted
from harness.targets.own import EVERYTHING, Abilities, SystemFile, is_of_system, read_system

if TYPE_CHECKING:
    from harness.targets.builds import Build

KAFKA, REDPANDA, OWN = "kafka", "redpanda", "own"
SIM_KAFKA, SIM_REDPANDA = "sim-kafka", "sim-redpanda"
SIMULATED = (SIM_KAFKA, SIM_REDPANDA)
"""Systems that are models of this project (`harness.models.cluster`)."""
EXPERIMENTAL, YOUR_OWN = "experimental", "your own"
"""Targets that this project never ran, and targets of a user's file; lists and reports show it."""


@dataclass(frozen=True)
class Target:
    """One version of a system under test: of Kafka from Maven Central, or of Redpanda from an image.

    ``system``: see `harness.systems`. ``broker_settings``: the settings that define this target. ``excluded_modules``:
    ``group:artifact`` dependencies of Kafka's POMs that are left out. ``note``: the reason for that, or another
    feature. ``build``: a user's Kafka, or a patch, that replaces the jars of Maven Central. ``own``: a user's system.
    ``status``: EXPERIMENTAL, YOUR_OWN, or "".
    """

    name: str
    version: str
    scala: str = "2.13"
    excluded_modules: tuple[str, ...] = ()
    note: str = ""
    system: str = KAFKA
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    build: Build | None = None
    own: SystemFile | None = None
    status: str = ""

    @property
    def supports(self) -> Abilities:
        """The abilities of a user's own system, all for another target."""
        return self.own.supports if self.own else EVERYTHING

    @property
    def group_protocols(self) -> tuple[str, ...]:
        """The protocols by which members can join groups; empty if scenarios about groups cannot be run.

        The consumer protocol is production-ready from 4.0 on (KIP-848). Groups of Redpanda were not tried.
        """
        if self.system != KAFKA:
            return self.own.supports.groups if self.own else ()
        return (CLASSIC, CONSUMER) if _line(self.version) >= _FIRST_WITH_CONSUMER_PROTOCOL else (CLASSIC,)

    def group_protocols_with(self, broker_settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return the same for brokers with these settings: one of them permits protocols that are early access."""
        permitted = broker_settings.get("group.coordinator.rebalance.protocols")
        if permitted is None or not self.group_protocols:
            return self.group_protocols
        names = {name.strip().lower() for name in permitted.split(",")}
        return tuple(protocol for protocol in (CLASSIC, CONSUMER, STREAMS) if protocol in names)


# fmt: off
_KAFKA = (
    Target("kafka-3.9", "3.9.2", note="the last version that can also run with ZooKeeper"),
    Target("kafka-4.0", "4.0.2", note="the first version without ZooKeeper, and with transactions v2 by default"),
    Target("kafka-4.1", "4.1.2"),
    Target("kafka-4.2", "4.2.2", note="the newest line that the published post names"),
    Target("kafka-4.3", "4.3.1"),
    Target("kafka-4.4", "4.4.0", excluded_modules=("org.apache.kafka:kafka-tools-api",), note="kafka-tools-api 4.4.0 is not on Maven Central; brokers do without"),  # noqa: E501
)

# Without this setting markers are never removed, and a clean verdict would mean nothing (Redpanda's documentation).
_REMOVES_MARKERS = {"log_compaction_tx_batch_removal_enabled": "true"}

_REDPANDA = (
    Target("redpanda-25.2", "25.2.11", system=REDPANDA, status=EXPERIMENTAL, note="before coordinated compaction: tombstones may diverge, markers are never removed"),  # noqa: E501
    Target("redpanda-25.3", "25.3.10", system=REDPANDA, status=EXPERIMENTAL, broker_settings=_REMOVES_MARKERS, note="the first line with coordinated compaction"),  # noqa: E501
    Target("redpanda-26.1", "26.1.14", system=REDPANDA, status=EXPERIMENTAL, broker_settings=_REMOVES_MARKERS),
    Target("redpanda-26.2", "26.2.2", system=REDPANDA, status=EXPERIMENTAL, broker_settings=_REMOVES_MARKERS),
)
_SIMULATED = (
    Target(SIM_KAFKA, "4.4", system=SIM_KAFKA, note="simulated: each replica cleaned on its own timers"),
    Target(f"{SIM_KAFKA}-4.3", "4.3", system=SIM_KAFKA, note="the same, by the rules of 4.0 to 4.3"),
    Target(f"{SIM_KAFKA}-3.9", "3.9", system=SIM_KAFKA, note="the same, by the rules of 3.9"),
    Target(SIM_REDPANDA, "model", system=SIM_REDPANDA, note="simulated: replicas that compact together"),
)
# fmt: on

_FIRST_WITH_CONSUMER_PROTOCOL = (4, 0)
_VERSION = re.compile(r"(?P<major>\d{1,4})\.(?P<minor>\d{1,4})", re.ASCII)
_NAME = re.compile(r"(?P<system>[a-z]+)-(?P<line>\d+\.\d+)(?P<patch>\.\d{1,4}(-rc\d{1,4})?)?", re.ASCII)

_OF_BUILD = re.compile(r"kafka-(?P<version>\d+\.\d+[\w.-]*)-(?P<kind>build|patch)-(?P<digest>[0-9a-f]{8})", re.ASCII)
PATCHED_BY = "+"
"""The separator between the name of a version and the path of a patch."""

_BUILT_IN = {row.name: row for row in (*_KAFKA, *_REDPANDA, *_SIMULATED)}
PLUGINS = PluginGroup("targets", (Target,), frozenset(_BUILT_IN))
TARGETS: Mapping[str, Target] = Registry(PLUGINS, _BUILT_IN)
WITH_JARS: dict[str, Target] = {row.name: row for row in _KAFKA}
"""The targets whose brokers run on this host's Java, oldest first."""


def find_target(name: str) -> Target:
    """Return the target of a name: a line such as ``kafka-4.1``, or any exact patch, ``kafka-4.1.1``.

    A path that ends with ``.toml`` is a user's own system (`harness.targets.own`), another path a user's Kafka, and
    ``NAME+PATH`` a version with a patch in front (`harness.targets.builds`). The name of the returned target finds the
    stored copy later. An exact patch differs from the row of its line in the version only.

    Raises `UsageError` with the nearest names, or with the versions of a known system.
    """
    if name in TARGETS:
        return TARGETS[name]
    if is_of_system(name):
        stored, own = read_system(name)
        return Target(stored, own.version, note=f"your own system {own.name}", system=OWN, own=own, status=YOUR_OWN)
    if is_of_build(name):
        return _of_build(name)
    parts, line = _NAME.fullmatch(name), line_of(name)
    if parts is None or line not in TARGETS:
        unknown = f"{nearest('target', name, list(TARGETS))}; an exact patch is kafka-4.1.1, say"
        raise UsageError(_other_versions(name) or unknown)
    return replace(TARGETS[line], name=name, version=f"{parts['line']}{parts['patch']}")


def is_of_build(name: str) -> bool:
    """Return whether a name is the path of a user's build or patch, or the name of its copy."""
    return "/" in name or name.endswith((".tgz", ".tar.gz")) or _OF_BUILD.fullmatch(name) is not None


def patched(name: str, patch: Path | None) -> str:
    """Return the name of a target with a patch in front. Raises `UsageError` for a user's build."""
    if patch is not None and is_of_build(name):
        raise UsageError(f"--patch {patch} needs a known version, and {name} is a build: leave out one of them")
    return name if patch is None else f"{name}{PATCHED_BY}{patch.absolute()}"


def _of_build(name: str) -> Target:
    """Return the target of a build: of a patch with its version, of another build with the nearest known line."""
    from harness.targets import builds  # noqa: PLC0415  (only where needed)

    of_version, plus, patch = name.partition(PATCHED_BY)
    if plus and "/" not in of_version:
        base = find_target(of_version)
        if base.system != KAFKA or base.build is not None:
            raise UsageError(f"{quoted(name)}: a patch goes in front of a version of Kafka, such as kafka-4.4")
        build = builds.read_patch(base.version, Path(patch))
    elif _OF_BUILD.fullmatch(name):
        build = builds.find_build(name)
    else:
        build = builds.read_build(Path(name))
    line = _nearest_line(build.version)
    description = f"Kafka {build.version} of {build.path}"
    if build.kind == builds.PATCH:
        line, description = find_target(f"{KAFKA}-{build.version}"), f"Kafka {build.version} with {build.path} in front"
    rules = f"it has the rules and settings of {_nearest_line(build.version).name}"
    return replace(line, name=build.name, version=build.version, note=f"{description}; {rules}", build=build)


def _nearest_line(version: str) -> Target:
    """Return the newest line that is not newer than a version of Kafka. Raises `UsageError` without such a line."""
    line, oldest, newest = _line(version), _KAFKA[0], _KAFKA[-1]
    if line < _line(oldest.version):
        raise UsageError(f"the build is Kafka {version}, older than the oldest that can be tested, {oldest.name}")
    if line[0] > _line(newest.version)[0] + 1:
        raise UsageError(f"the build is of version {version}, an unknown Kafka: the newest is {newest.name}")
    return [target for target in _KAFKA if _line(target.version) <= line][-1]


def _other_versions(name: str) -> str | None:
    """Return a sentence about a version that is older or newer than all versions of a system, else None."""
    system, _, version = name.partition("-")
    rows = [row for row in TARGETS.values() if row.system == system and row.name == line_of(f"{row.name}.0")]
    if _VERSION.match(version) is None or not rows:
        return None
    line, oldest, newest = _line(version), rows[0], rows[-1]
    if _line(oldest.version) <= line <= _line(newest.version):
        return None
    why = "older than the oldest" if line < _line(oldest.version) else "newer than the newest"
    lines = ", ".join(row.name for row in rows)
    return (
        f"unknown target {quoted(name)}: it is {why}; there are {lines}, and exact patches of these;"
        f" the newest is {newest.name}"
    )


def _line(version: str) -> tuple[int, int]:
    """Return major and minor version; zeros for another text."""
    numbers = _VERSION.match(version)
    return (int(numbers["major"]), int(numbers["minor"])) if numbers else (0, 0)


def line_of(name: str) -> str:
    """Return the name of a target's line: of an exact patch its row, of a user's build the nearest row, else itself."""
    if build := _OF_BUILD.fullmatch(name):
        return _nearest_line(build["version"]).name
    parts = _NAME.fullmatch(name)
    return f"{parts['system']}-{parts['line']}" if parts else name


def title_of(name: str, version: str) -> str:
    """Return the title of a target's column: system and version, or the build."""
    if build := _OF_BUILD.fullmatch(name):
        return f"{KAFKA} {version} {build['kind']} {build['digest']}"
    parts = _NAME.fullmatch(name)
    return f"{parts['system']} {version}" if parts else name


def at_version(name: str, version: str) -> Target:
    """Return the target of a name at a version, as the patch of a short name changes with releases.

    Raises `UsageError` as `find_target` does.
    """
    target = find_target(name)
    return target if target.version == version else find_target(exact_name(replace(target, version=version)))


def exact_name(target: Target) -> str:
    """Return the name of a target with its exact patch, which is the same in every release."""
    parts = _NAME.fullmatch(target.name)
    return f"{parts['system']}-{target.version}" if parts else target.name
