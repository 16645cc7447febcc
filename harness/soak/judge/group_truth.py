"""Which brokers are wrong about the offsets of groups, by what clients know: the third judge of a round.

Verified: of each group and partition that clients committed offsets for, every replica of ``__consumer_offsets`` and
the coordinator of now have an offset that may be the last one, and none pending once its transaction has ended. An
offset of an aborted transaction never counts, and a deleted group has none.

Not verified: members of groups, and offsets whose order no client knows; of those, each may be the last one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS
from harness.judge.soak_verdict import CLIENTS, RoundFinding
from harness.schedules.catalog import Anomaly
from harness.soak.evidence.client_log import ABORTED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.soak.evidence.group_log import Change, GroupKey, GroupLog
    from harness.soak.evidence.group_views import GroupView

NO_OFFSET: Final = "no offset"
NAMELESS: Final = ""
NO_KEY: Final = ("", ("", 0))
KNOWN_REFUSAL: Final = re.compile(r"IllegalStateException: Group \S+ is not a \w+ group")
"""Records of a group of another protocol, whose tombstones this broker has missed (``GroupMetadataManager.replay``; see
docs/explanation/group-coordinators.md)."""


@dataclass(frozen=True)
class WrongOffset:
    """What a broker is wrong about. ``name``: of the anomaly; `NAMELESS` where none explains it."""

    name: str
    key: GroupKey
    here: str
    truth: str


@dataclass(frozen=True)
class GroupTruth:
    """What is wrong, by view. ``keys``: groups' partitions that were judged; ``unknown``: with more than one truth."""

    wrongs: Sequence[tuple[GroupView, WrongOffset]] = ()
    views: int = 0
    keys: int = 0
    unknown: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """What was judged, as ``verdict.json`` has it."""
        return {"keys": self.keys, "views": self.views, "unknown": self.unknown, "wrong": len(self.wrongs)}

    def findings(self) -> Iterator[RoundFinding]:
        """Yield a finding for each broker and name, as of any other partition."""
        grouped: dict[tuple[int, int, str], list[tuple[GroupView, WrongOffset]]] = {}
        for view, wrong in self.wrongs:
            grouped.setdefault((view.broker, view.partition, wrong.name), []).append((view, wrong))
        for (broker, partition, name), some in sorted(grouped.items(), key=lambda one: one[0]):
            yield RoundFinding(
                anomaly=name,
                broker=broker,
                topic=CONSUMER_OFFSETS,
                partition=partition,
                count=len(some),
                found_by=(CLIENTS,),
                explanation=_words(*some[0]),
                witness=[_words(*one) for one in some],
            )


def compare_groups(log: GroupLog, views: Iterable[GroupView]) -> GroupTruth:
    """Hold every view against what clients know."""
    every = list(views)
    possible = {key: log.possible(key) for key in log.changes}
    wrongs = [(view, wrong) for view in every for wrong in _wrong(log, possible, view)]
    unknown = sum(len(some) > 1 for some in possible.values())
    return GroupTruth(wrongs, len(every), len(possible), unknown)


def _wrong(
    log: GroupLog, possible: Mapping[GroupKey, Mapping[int | None, Change | None]], view: GroupView
) -> Iterator[WrongOffset]:
    if view.refusal:
        name = str(Anomaly.TOMBSTONE_DIVERGENCE) if KNOWN_REFUSAL.search(view.refusal) else NAMELESS
        yield WrongOffset(name, NO_KEY, view.refusal, "")
        return
    for key, allowed in possible.items():
        here, truth = view.committed.get(key), " or ".join(sorted(map(_text, allowed)))
        if key in view.pending:
            changes = [log.change(key, offset) for offset in view.pending[key]]
            if all(one is not None and one.outcome != UNKNOWN for one in changes) and _is_ended(log, key):
                yield WrongOffset(str(Anomaly.STUCK_LSO), key, "an offset is pending", truth)
        elif here not in allowed:
            yield WrongOffset(_name(log, key, here, allowed), key, _text(here), truth)


def _is_ended(log: GroupLog, key: GroupKey) -> bool:
    """Whether every transaction that has sent an offset for it has ended, as clients know: then none is pending."""
    return all(one.outcome != UNKNOWN for one in log.changes[key] if one.in_transaction)


def _name(log: GroupLog, key: GroupKey, here: int | None, allowed: Mapping[int | None, Change | None]) -> str:
    change = None if here is None else log.change(key, here)
    if change is not None and change.outcome == ABORTED and change.in_transaction:
        return str(Anomaly.ABORTED_TO_COMMITTED)
    if allowed.keys() == {None} and change is not None:
        return str(Anomaly.TOMBSTONE_DIVERGENCE)
    due = list(allowed.values())
    if len(due) == 1 and due[0] is not None and due[0].in_transaction and (here is None or change is not None):
        return str(Anomaly.COMMITTED_TO_ABORTED)
    return NAMELESS


def _text(offset: int | None) -> str:
    return NO_OFFSET if offset is None else f"offset {offset}"


def _words(view: GroupView, wrong: WrongOffset) -> str:
    if view.refusal:
        return f"no group has a coordinator: broker {view.broker} cannot load the partition: {view.refusal}"
    group, (topic, partition) = wrong.key
    return (
        f"group {group}, {topic}-{partition}: by {view.source}, broker {view.broker} has {wrong.here}, "
        f"by clients {wrong.truth}"
    )
