"""The anomalies by name, and every scenario that looks for one, in one table."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from harness.errors import UsageError
from harness.plugins import PluginGroup, Registry
from harness.schedules.operations import ABORT, COMMIT, Begin, End, Operation, Write
from harness.schedules.scenario import CLASSIC, CONSUMER, Deletion, Kind, Scenario
from harness.suggest import known_name

ALL = "all"
GROUP = "group"
"""The key of writes that concern a group as a whole."""
GROUPS = "groups"
"""Every scenario about consumer groups, whatever its anomaly."""
SERVED = "served"
"""Every scenario that is judged by what clients are served, in a run without a fault."""
SUPERSEDED_KEY = "superseded"
"""The key whose first record shows by its removal that the topic was compacted up to there."""


class Anomaly(StrEnum):
    """The four ways in which replicas of a compacted partition come to disagree for ever."""

    TOMBSTONE_DIVERGENCE = "tombstone-divergence"
    ABORTED_TO_COMMITTED = "aborted-to-committed"
    COMMITTED_TO_ABORTED = "committed-to-aborted"
    STUCK_LSO = "stuck-lso"


@dataclass(frozen=True)
class PluginAnomaly:
    """An anomaly of another package, offered by an entry point of the group ``compaction_harness.anomalies``.

    ``finder``: the module with its ``FINDER`` (`checkers.finding.Finder`), which is imported by checks only.
    ``scenarios``: runs that look for it; without any, only audits do.
    """

    name: str
    finder: str
    scenarios: tuple[Scenario, ...] = ()


def put(process: str, key: str, value: str) -> Write:
    """Return the write of a value."""
    return Write(process, key, value=value)


delete = partial(Write, deletes=True)
"""The write of a tombstone."""
commit, abort = partial(End, outcome=COMMIT), partial(End, outcome=ABORT)
"""The end of the transaction that the first write of the process began."""

SCENARIOS = (
    Scenario(
        "tombstone-divergence", Anomaly.TOMBSTONE_DIVERGENCE, "delete",
        "A key is deleted while a replica is down; it never sees the tombstone and keeps the value.",
        before=(put("plain", "K", "value-before-delete"),), outage=(delete("plain", "K"),),
    ),
    Scenario(
        "aborted-to-committed", Anomaly.ABORTED_TO_COMMITTED, "value",
        "A transaction is aborted while a replica is down; the next COMMIT there covers its data too.",
        before=(put("tx", "poison", "SHOULD_NOT_SEE_THIS"),), outage=(abort("tx"),),
        late=(put("tx", "good", "data"), commit("tx")),
    ),
    Scenario(
        "aborted-to-committed-delete", Anomaly.ABORTED_TO_COMMITTED, "delete",
        "A delete is aborted while a replica is down; the next COMMIT there deletes what should have stayed.",
        before=(put("plain", "K", "never-deleted"), delete("tx", "K")), outage=(abort("tx"),),
        late=(put("tx", "good", "data"), commit("tx")),
    ),
    Scenario(
        "committed-to-aborted-value", Anomaly.COMMITTED_TO_ABORTED, "value",
        "A transaction is committed while a replica is down; the next ABORT there hides its data too.",
        before=(put("tx", "K", "committed-value"),), outage=(commit("tx"), put("plain", "K", "newer-value")),
        late=(put("tx", "garbage", "to-be-aborted"), abort("tx")),
    ),
    Scenario(
        "committed-to-aborted-delete", Anomaly.COMMITTED_TO_ABORTED, "delete",
        "A delete is committed while a replica is down; the next ABORT there undoes the delete.",
        before=(put("plain", "K", "v0-deleted-later"), delete("tx", "K")), outage=(commit("tx"),),
        late=(put("tx", "garbage", "to-be-aborted"), abort("tx")),
    ),
    Scenario(
        "stuck-lso", Anomaly.STUCK_LSO, "value",
        "A transaction is committed while a replica is down; it stays open there and freezes read_committed.",
        before=(put("tx", "K", "V"),), outage=(commit("tx"), put("plain", "K", "newer-value")),
    ),
)  # fmt: skip

GROUP_SCENARIOS = (
    Scenario(
        "group-stuck-lso", Anomaly.STUCK_LSO, "offset",
        "Offsets of a group are committed in a transaction while a replica is down; they stay pending there.",
        before=(put("tx", "0", "60"),), outage=(commit("tx"), put("plain", "0", "61")), kind=Kind.OFFSETS,
    ),
    Scenario(
        "group-aborted-to-committed", Anomaly.ABORTED_TO_COMMITTED, "offset",
        "A transaction with a group's offsets is aborted while a replica is down; the next COMMIT covers them.",
        before=(put("plain", "0", "10"), put("tx", "0", "60")), outage=(abort("tx"),),
        late=(put("tx", "1", "5"), commit("tx")), kind=Kind.OFFSETS,
    ),
    Scenario(
        "group-committed-to-aborted", Anomaly.COMMITTED_TO_ABORTED, "offset",
        "Offsets of a group are committed while a replica is down; the next ABORT there hides them.",
        before=(put("tx", "0", "60"),), outage=(commit("tx"), put("plain", "0", "61")),
        late=(put("tx", "1", "5"), abort("tx")), kind=Kind.OFFSETS,
    ),
    Scenario(
        "group-deleted", Anomaly.TOMBSTONE_DIVERGENCE, "group",
        "A group is deleted while a replica is down; it never sees the tombstones and keeps the offsets.",
        before=(put("plain", "0", "10"),), outage=(delete("plain", "0"),), kind=Kind.OFFSETS,
    ),
    Scenario(
        "group-input-recreated", Anomaly.TOMBSTONE_DIVERGENCE, "input",
        "A group's input topic is deleted and created again; the replica that was down keeps the old offset.",
        before=(put("plain", "0", "40"),), outage=(delete("plain", "0"),), kind=Kind.OFFSETS, deletes=Deletion.INPUT,
    ),
    Scenario(
        "group-expired", Anomaly.TOMBSTONE_DIVERGENCE, "expiry",
        "A group's offset expires while a replica is down; it never sees the tombstone and keeps an older one.",
        before=(put("plain", "0", "10"),), outage=(delete("plain", "0"),), kind=Kind.OFFSETS, deletes=Deletion.EXPIRY,
    ),
    Scenario(
        "group-upgraded", Anomaly.TOMBSTONE_DIVERGENCE, "protocol",
        "A group changes to the consumer protocol while a replica is down; it keeps the classic group.",
        before=(put("member", GROUP, CLASSIC),), outage=(delete("member", GROUP),), kind=Kind.MEMBERS,
        group_protocols=frozenset({CLASSIC, CONSUMER}),
    ),
)  # fmt: skip
"""The scenarios of `GROUPS`. The meaning of keys and values depends on the kind, see `Scenario`."""

CONTROL = Scenario(
    "control", None, "control",
    "The same settings without a replica on the absent broker: shows that cleaners work at all.",
    before=(put("plain", "D", "value-before-delete"), put("tx", "K", "V")),
    outage=(delete("plain", "D"), commit("tx"), put("plain", "K", "newer-value")),
)  # fmt: skip

_MARKS = (put("plain", SUPERSEDED_KEY, "older"), put("plain", SUPERSEDED_KEY, "newer"))
_COMMITTED, _SECRET = put("plain", "K", "committed-value"), "SHOULD_NOT_SEE_THIS"

_SERVED: tuple[tuple[str, str, tuple[Operation, ...]], ...] = (
    ("plain", "A value is superseded: shows that compaction works, for topics whose open transaction stops it, too.",
     _MARKS),
    ("aborted", "A transaction is aborted, another is committed: a consumer is delivered the second only.",
     (put("tx", "poison", _SECRET), abort("tx"), put("tx", "good", "data"), commit("tx"), *_MARKS)),
    ("value", "A new value is aborted: compaction must keep the committed value.",
     (_COMMITTED, put("tx", "K", _SECRET), abort("tx"), *_MARKS)),
    ("delete", "A delete is aborted: compaction must keep the committed value.",
     (_COMMITTED, delete("tx", "K"), abort("tx"), *_MARKS)),
    ("open", "A new value is in a transaction that stays open: compaction must keep the committed value.",
     (_COMMITTED, Begin("tx"), put("tx", "K", _SECRET))),
)  # fmt: skip
SERVED_SCENARIOS = tuple(
    Scenario(f"served-{payload}", SERVED, payload, summary, operations, (), kind=Kind.SERVED)
    for payload, summary, operations in _SERVED
)


_BUILT_IN = {
    **{str(anomaly): tuple(s for s in SCENARIOS if s.anomaly == anomaly) for anomaly in Anomaly},
    GROUPS: GROUP_SCENARIOS,
    SERVED: SERVED_SCENARIOS,
    ALL: (*SCENARIOS, *GROUP_SCENARIOS),
}


def _why_unfit(plugin: PluginAnomaly) -> str | None:
    taken = {CONTROL.name, *(scenario.name for scenario in (*_BUILT_IN[ALL], *SERVED_SCENARIOS))}
    for scenario in plugin.scenarios:
        if scenario.anomaly != plugin.name or scenario.kind is not Kind.RECORDS or scenario.name in taken:
            return f"the scenario {scenario.name} has a built-in name, another anomaly, or another kind"
    return None


PLUGINS = PluginGroup("anomalies", (PluginAnomaly,), frozenset(_BUILT_IN), _why_unfit)
ANOMALIES: Mapping[str, tuple[Scenario, ...]] = Registry(PLUGINS, _BUILT_IN, lambda plugin: plugin.scenarios)
"""Scenarios by the name of their anomaly; those of plugins are not among `GROUPS` and `ALL`."""


def all_scenarios() -> tuple[Scenario, ...]:
    """Return every scenario that looks for an anomaly, those of plugins last."""
    return (*_BUILT_IN[ALL], *SERVED_SCENARIOS, *_of_plugins())


def scenarios_by_name() -> dict[str, Scenario]:
    """Return every scenario that looks for an anomaly."""
    return {scenario.name: scenario for scenario in all_scenarios()}


def _of_plugins() -> tuple[Scenario, ...]:
    return tuple(scenario for plugin in PLUGINS.contents.values() for scenario in plugin.scenarios)


def scenarios_for(anomaly: str, group_protocols: Collection[str] = (CLASSIC, CONSUMER)) -> tuple[Scenario, ...]:
    """Return the scenarios of one anomaly, of ``groups``, of several of these (with commas between), or of ``all``.

    ``served`` stands alone. The scenarios of an anomaly are on topics of data. ``group_protocols``: of the target;
    without any, ``all`` has no scenario about groups. Raises `UsageError` with the nearest names.
    """
    names = anomaly.split(",")
    for name in names:
        known_name("anomaly", name, ANOMALIES)
    if SERVED in names:
        if len(names) > 1:
            raise UsageError(f"--anomaly {anomaly}: {SERVED} is a run of its own, without a fault")
        return SERVED_SCENARIOS
    if GROUPS in names and not group_protocols:
        raise UsageError(
            f"--anomaly {anomaly}: scenarios about consumer groups need a real Kafka: this target has no group"
            " coordinator, or none that they were tried on"
        )
    return (
        *(s for s in (*SCENARIOS, *_of_plugins()) if ALL in names or s.anomaly in names),
        *(
            s
            for s in GROUP_SCENARIOS
            if group_protocols and s.group_protocols <= {*group_protocols} and {ALL, GROUPS} & set(names)
        ),
    )
