"""Targets: one row for each line of Kafka or Redpanda versions, with the newest patch of it.

Locks of jars, images and the settings that each version knows. How a target is started is in `harness.runtimes`;
what differs between systems is in `harness.systems`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.schedules.groups import CLASSIC, CONSUMER
from harness.suggest import nearest, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.targets.builds import Build

KAFKA, REDPANDA = "kafka", "redpanda"
SIM_KAFKA, SIM_REDPANDA, SIM_CLOUD_TOPICS = "sim-kafka", "sim-redpanda", "sim-cloud-topics"
SIMULATED = (SIM_KAFKA, SIM_REDPANDA, SIM_CLOUD_TOPICS)
"""Systems that are models of this project (`models.cluster`); a target each, and Kafka's at older versions too."""


@dataclass(frozen=True)
class Target:
    """One version of a system under test: of Kafka, as Maven Central has it, or of Redpanda, as an image has it.

    ``system``: by which rules it is set up and asked, see `harness.systems`. ``topic_settings`` and ``broker_settings``
    are what makes this target what it is; ``has_store``: it keeps data in an object store beside the brokers;
    ``unpromised``: guarantees (`harness.judge.guarantees`) that it does not give, and why.
    ``excluded_modules`` are ``group:artifact`` names that Kafka's POMs ask for and that are left out; the ``note``
    says why, or what else is special. ``build``: a user's own Kafka, or a patch, in place of the jars of Maven Central.
    """

    name: str
    version: str
    scala: str = "2.13"
    excluded_modules: tuple[str, ...] = ()
    note: str = ""
    system: str = KAFKA
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    has_store: bool = False
    unpromised: Mapping[str, str] = field(default_factory=dict)
    build: Build | None = None

    @property
    def group_protocols(self) -> tuple[str, ...]:
        """The protocols by which members join groups here; none where scenarios about groups cannot be run.

        The consumer protocol is in production from 4.0 on (KIP-848). Groups of Redpanda were not tried.
        """
        if self.system != KAFKA:
            return ()
        return (CLASSIC, CONSUMER) if _line(self) >= _FIRST_WITH_CONSUMER_PROTOCOL else (CLASSIC,)


# fmt: off
_KAFKA = (
    Target("kafka-3.9", "3.9.2", note="the last version that can also run with ZooKeeper"),
    Target("kafka-4.0", "4.0.2", note="the first version without ZooKeeper, and with transactions v2 by default"),
    Target("kafka-4.1", "4.1.2"),
    Target("kafka-4.2", "4.2.2", note="the newest line that the published post names"),
    Target("kafka-4.3", "4.3.1"),
    Target("kafka-4.4", "4.4.0", excluded_modules=("org.apache.kafka:kafka-tools-api",), note="kafka-tools-api 4.4.0 is not on Maven Central; brokers do without"),  # noqa: E501
)

# Without it markers are kept for ever, and a pass would be worth nothing (Redpanda's documentation).
_REMOVES_MARKERS = {"log_compaction_tx_batch_removal_enabled": "true"}
_NO_MARKERS = {"control-batches": "the shared copy has no markers, and transactions are decided before"}
"""The post on Cloud Topics: what is compacted is free of control batches."""
_IN_THE_STORE = {
    "cloud_storage_enabled": "true",
    "cloud_topics_enabled": "true",
    "cloud_topics_compaction_interval_ms": "1000",
}

_REDPANDA = (
    Target("redpanda-25.2", "25.2.11", system=REDPANDA, note="before coordinated compaction: tombstones may diverge, markers are never removed"),  # noqa: E501
    Target("redpanda-25.3", "25.3.10", system=REDPANDA, broker_settings=_REMOVES_MARKERS, note="the first line with coordinated compaction"),  # noqa: E501
    Target("redpanda-26.1", "26.1.14", system=REDPANDA, broker_settings=_REMOVES_MARKERS),
    Target("redpanda-26.2", "26.2.2", system=REDPANDA, broker_settings=_REMOVES_MARKERS),
    Target("redpanda-26.2-cloud", "26.2.2", system=REDPANDA, broker_settings={**_REMOVES_MARKERS, **_IN_THE_STORE}, topic_settings={"redpanda.storage.mode": "cloud"}, has_store=True, unpromised=_NO_MARKERS, note="Cloud Topics, on MinIO"),  # noqa: E501
)
_SIMULATED = (
    Target(SIM_KAFKA, "4.4", system=SIM_KAFKA, note="simulated: each replica cleaned on its own timers"),
    Target(f"{SIM_KAFKA}-4.3", "4.3", system=SIM_KAFKA, note="the same, by the rules of 4.0 to 4.3"),
    Target(f"{SIM_KAFKA}-3.9", "3.9", system=SIM_KAFKA, note="the same, by the rules of 3.9"),
    Target(SIM_REDPANDA, "model", system=SIM_REDPANDA, note="simulated: replicas that compact together"),
    Target(SIM_CLOUD_TOPICS, "model", system=SIM_CLOUD_TOPICS, unpromised=_NO_MARKERS, note="simulated: one shared copy, compacted by any broker"),  # noqa: E501
)
# fmt: on

_FIRST_WITH_CONSUMER_PROTOCOL = (4, 0)
_VERSION = re.compile(r"(?P<major>\d{1,4})\.(?P<minor>\d{1,4})", re.ASCII)
_NAME = re.compile(
    r"(?P<system>[a-z]+)-(?P<line>\d+\.\d+)(?P<patch>\.\d{1,4}(-rc\d{1,4})?)?(?P<kind>-cloud)?", re.ASCII
)

_OF_BUILD = re.compile(r"kafka-(?P<version>\d+\.\d+[\w.-]*)-(?P<kind>build|patch)-(?P<digest>[0-9a-f]{8})", re.ASCII)
PATCHED_BY = "+"
"""Between the name of a version and the path of a patch."""

TARGETS: dict[str, Target] = {row.name: row for row in (*_KAFKA, *_REDPANDA, *_SIMULATED)}
WITH_JARS: dict[str, Target] = {row.name: row for row in _KAFKA}
"""Those whose brokers run on this host's Java, oldest first."""


def find_target(name: str) -> Target:
    """Return the target called ``name``: a line such as ``kafka-4.1``, or any exact patch, ``kafka-4.1.1``.

    A path stands for a Kafka of the user's own, ``NAME+PATH`` for a version with a patch in front
    (`harness.targets.builds`). The name of that target is stored with a copy, and finds it from then on.

    A patch takes everything but its version from the row of its line. Raises UsageError with the nearest
    names and the list of all when there is none; for a version of a known system, with the versions that there are.
    """
    if name in TARGETS:
        return TARGETS[name]
    if is_of_build(name):
        return _of_build(name)
    parts, line = _NAME.fullmatch(name), line_of(name)
    if parts is None or line not in TARGETS:
        raise UsageError(
            _other_versions(name) or f"{nearest('target', name, list(TARGETS))}; an exact patch is kafka-4.1.1, say"
        )
    return replace(TARGETS[line], name=name, version=f"{parts['line']}{parts['patch']}")


def is_of_build(name: str) -> bool:
    """Whether a text stands for a user's own build: by its path, by that of a patch, or by the name of its copy."""
    return "/" in name or name.endswith((".tgz", ".tar.gz")) or _OF_BUILD.fullmatch(name) is not None


def patched(name: str, patch: Path | None) -> str:
    """Return what stands for a target with a patch in front. Raises `UsageError` for one that is a build already."""
    if patch is not None and is_of_build(name):
        raise UsageError(f"--patch {patch} goes in front of a known version, and {name} is none: leave one of them out")
    return name if patch is None else f"{name}{PATCHED_BY}{patch.absolute()}"


def _of_build(name: str) -> Target:
    """Return the target of a build: a patch is its version, any other follows the nearest line that is known."""
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
    what = f"Kafka {build.version} of {build.path}"
    if build.kind == builds.PATCH:
        line, what = find_target(f"{KAFKA}-{build.version}"), f"Kafka {build.version} with {build.path} in front"
    rules = f"rules and settings are those of {_nearest_line(build.version).name}"
    return replace(line, name=build.name, version=build.version, note=f"{what}; {rules}", build=build)


def _nearest_line(version: str) -> Target:
    """Return the newest line that is not newer than a version of Kafka. Raises `UsageError` where there is none."""
    numbers = _VERSION.match(version)
    oldest, newest = _KAFKA[0], _KAFKA[-1]
    wanted = (int(numbers["major"]), int(numbers["minor"])) if numbers else (0, 0)
    if wanted < _line(oldest):
        raise UsageError(f"the build is Kafka {version}, older than the oldest that can be tested, {oldest.name}")
    if wanted[0] > _line(newest)[0] + 1:
        raise UsageError(f"the build is of version {version}, and no Kafka that is known: the newest is {newest.name}")
    return max((row for row in _KAFKA if _line(row) <= wanted), key=_line)


def _other_versions(name: str) -> str | None:
    """Return a sentence about a version that is older or newer than those of a system; None for any other name."""
    system, _, version = name.partition("-")
    numbers = _VERSION.match(version)
    rows = [row for row in TARGETS.values() if row.system == system and row.name == line_of(f"{row.name}.0")]
    if numbers is None or not rows:
        return None
    wanted, oldest, newest = (int(numbers["major"]), int(numbers["minor"])), rows[0], rows[-1]
    if _line(oldest) <= wanted <= _line(newest):
        return None
    why = "older than the oldest" if wanted < _line(oldest) else "newer than the newest"
    lines = ", ".join(row.name for row in rows)
    return (
        f"there is no target {quoted(name)}: it is {why}; there are {lines}, and exact patches of these;"
        f" the newest is {newest.name}"
    )


def _line(row: Target) -> tuple[int, int]:
    major, minor = row.version.split(".")[:2]
    return int(major), int(minor)


def line_of(name: str) -> str:
    """Return the name of the line that a target is of: of an exact patch the row that it is taken from, else itself.

    Of a user's own build, the nearest line.
    """
    if build := _OF_BUILD.fullmatch(name):
        return _nearest_line(build["version"]).name
    parts = _NAME.fullmatch(name)
    return f"{parts['system']}-{parts['line']}{parts['kind'] or ''}" if parts else name


def title_of(name: str, version: str) -> str:
    """Return what a column of that target is called: system, version, and what is special beside it."""
    if build := _OF_BUILD.fullmatch(name):
        return f"{KAFKA} {version} {build['kind']} {build['digest']}"
    parts = _NAME.fullmatch(name)
    return f"{parts['system']} {version} {(parts['kind'] or '').removeprefix('-')}".rstrip() if parts else name


def at_version(name: str, version: str) -> Target:
    """Return the target of that name as it was at a version: a short name stands for newer patches in time.

    Raises `UsageError` as `find_target` does.
    """
    target, parts = find_target(name), _NAME.fullmatch(name)
    if target.version == version or parts is None:
        return target
    return find_target(f"{parts['system']}-{version}{parts['kind'] or ''}")


def exact_name(target: Target) -> str:
    """Return the name of a target with its exact patch, which stands for the same in every release."""
    parts = _NAME.fullmatch(target.name)
    return f"{parts['system']}-{target.version}{parts['kind'] or ''}" if parts else target.name
