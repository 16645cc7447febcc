"""The third judge of a round: which brokers have wrong offsets of groups, by the history of clients.

Every operation of a round commits another offset (see `harness.soak.draw.workload`), which identifies the operation. Of
operations that overlap no client knows the order.

Verified: of each group and partition that clients committed offsets for, every replica of ``__consumer_offsets``, and
every broker once it coordinates, have an offset that may be the last one, and none pending once its transaction has
ended. An offset of an aborted transaction never counts, and a deleted group has no offset.

Not verified: members of groups, and offsets whose order no client knows; of those, each may be the last one.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS
from harness.judge.consequences import STUCK_GROUP
from harness.judge.group_offsets import GroupKey, GroupView
from harness.kafka_api import partition_named
from harness.run_folder.history import FAIL, INVOKE, OK, RECREATE
from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import GROUPS, Symptom
from harness.soak.evidence.client_log import ABORTED, COMMITTED, OUTCOMES, UNKNOWN, transaction_of, transactions_of

SEND_OFFSET, COMMIT_OFFSET, DELETE_GROUP = "send offset", "commit offset", "delete group"
NAMELESS: Final = ""
KNOWN_REFUSAL: Final = re.compile(r"IllegalStateException: Group \S+ is not a (?!streams )\w+ group")
"""Records of a group of another protocol, whose tombstones this broker has missed (``GroupMetadataManager.replay``; see
docs/explanation/group-coordinators.md)."""


@dataclass(frozen=True)
class OffsetChange:
    """An offset that is committed, or deleted where ``offset`` is None.

    ``began``, ``answered``: by the order of the history; `inf` where no answer says that it was done.
    ``ended``: when its transaction was acknowledged as ended; outside of transactions, as ``answered``.
    """

    offset: int | None
    began: float
    answered: float
    ended: float
    outcome: str
    in_transaction: bool = False

    @property
    def is_certain(self) -> bool:
        """True for a change that was certainly made, and is committed."""
        return self.outcome == COMMITTED and self.answered < inf

    def replaces(self, other: "OffsetChange") -> bool:
        """Return whether this change is certain, and certainly later.

        A coordinator orders the offsets of transactions by when they were sent (``OffsetMetadataManager``). Only a
        deletion does not: the old coordinator deletes no pending offset (`harness.models.world.groups`).
        """
        return self.is_certain and self.began > (other.ended if self.offset is None else other.answered)


@dataclass(frozen=True)
class GroupLog:
    """Changes by group and partition."""

    changes: Mapping[GroupKey, Sequence[OffsetChange]] = field(default_factory=dict)

    def possible(self, key: GroupKey) -> dict[int | None, OffsetChange | None]:
        """Return the offsets that a group may have in the end (None: none), each with the change that makes it so."""
        counting = [change for change in self.changes.get(key, ()) if change.outcome != ABORTED]
        offsets: dict[int | None, OffsetChange | None] = {
            change.offset: change for change in counting if not any(other.replaces(change) for other in counting)
        }
        if not any(change.is_certain and change.offset is not None for change in counting):
            offsets.setdefault(None, None)
        return offsets

    def change(self, key: GroupKey, offset: int | None) -> OffsetChange | None:
        """Return the change that committed this offset; None where no client did."""
        changes = () if offset is None else self.changes.get(key, ())
        return next((change for change in changes if change.offset == offset), None)


def group_log_of(events: Sequence[Mapping[str, Any]]) -> GroupLog:
    """Return the changes of offsets in a history."""
    outcomes = transactions_of(events)
    answers = {event["op"]: (event["type"], float(at)) for at, event in enumerate(events) if event["type"] != INVOKE}
    is_end = [event["f"] in OUTCOMES and event["type"] == OK for event in events]
    ends = {transaction_of(event): float(at) for at, event in enumerate(events) if is_end[at]}
    changes: dict[GroupKey, list[OffsetChange]] = defaultdict(list)
    deletions = []
    for at, event in enumerate(events):
        if event["type"] != INVOKE:
            continue
        f, (kind, answered) = event["f"], answers.get(event["op"], ("", inf))
        answered = answered if kind == OK else inf
        if f in {SEND_OFFSET, COMMIT_OFFSET}:
            ended, outcome = answered, {OK: COMMITTED, FAIL: ABORTED}.get(kind, UNKNOWN)
            if in_transaction := f == SEND_OFFSET:
                ended = ends.get(transaction_of(event), inf)
                outcome = outcomes.get(transaction_of(event), UNKNOWN)
            changes[event["group"], partition_named(event["input"])].append(
                OffsetChange(event["committed"], float(at), answered, ended, outcome, in_transaction)
            )
        elif f in {DELETE_GROUP, RECREATE}:
            # Coordinators hear of a topic's deletion some time later, and its offsets may be committed again.
            outcome = COMMITTED if kind == OK and f == DELETE_GROUP else UNKNOWN
            deletions.append((event, OffsetChange(None, float(at), answered, answered, outcome)))
    for event, deletion in deletions:
        for (group, tp), of_key in changes.items():
            if group == event.get("group") or (event["f"] == RECREATE and tp[0] == event["topic"]):
                of_key.append(deletion)
    return GroupLog(changes)


@dataclass(frozen=True)
class GroupTruth:
    """Wrong offsets: view, anomaly or `NAMELESS`, and a sentence. ``unknown``: keys with several truths."""

    wrongs: Sequence[tuple[GroupView, str, str]] = ()
    views: int = 0
    keys: int = 0
    unknown: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of offsets in ``verdict.json``."""
        return {"keys": self.keys, "views": self.views, "unknown": self.unknown, "wrong": len(self.wrongs)}

    def symptoms(self) -> Iterator[Symptom]:
        """Yield the errors of each broker by name, as of any other partition."""
        sentences: dict[tuple[int, int, str], list[str]] = defaultdict(list)
        for view, name, sentence in self.wrongs:
            sentences[view.broker, view.partition, name].append(sentence)
        for (broker, partition, anomaly), errors in sorted(sentences.items()):
            tp = (CONSUMER_OFFSETS, partition)
            yield Symptom(GROUPS, broker, tp, anomaly=anomaly, count=len(errors), explanation=errors[0], witness=errors)


def compare_groups(log: GroupLog, views: Sequence[GroupView]) -> GroupTruth:
    """Compare every view with the history of clients."""
    possible = {key: log.possible(key) for key in log.changes}
    wrongs = [(view, *wrong) for view in views for wrong in _wrong(log, possible, view)]
    return GroupTruth(wrongs, len(views), len(possible), sum(len(offsets) > 1 for offsets in possible.values()))


def _wrong(
    log: GroupLog, possible: Mapping[GroupKey, Mapping[int | None, OffsetChange | None]], view: GroupView
) -> Iterator[tuple[str, str]]:
    """Yield the name and the sentence of each error of a view."""
    if view.refusal:
        name = str(Anomaly.TOMBSTONE_DIVERGENCE) if KNOWN_REFUSAL.search(view.refusal) else STUCK_GROUP
        yield name, f"groups had no coordinator: broker {view.broker} could not load the partition: {view.refusal}"
        if not (view.committed or view.pending):
            return
    for key, allowed in possible.items():
        group, (topic, partition) = key
        words = f"group {group}, {topic}-{partition}: by {view.source}, broker {view.broker} has"
        here, truth = view.committed.get(key), " or ".join(sorted(map(_text, allowed)))
        if key in view.pending:
            sent = [log.change(key, offset) for offset in view.pending[key]]
            # Once every transaction that has sent an offset has ended, as clients know, none is pending.
            transactional = [change for change in log.changes[key] if change.in_transaction]
            if all(change is not None and change.outcome != UNKNOWN for change in (*sent, *transactional)):
                yield str(Anomaly.STUCK_LSO), f"{words} a pending offset, by clients {truth}"
        elif here not in allowed:
            yield _name(log, key, here, allowed), f"{words} {_text(here)}, by clients {truth}"


def _name(log: GroupLog, key: GroupKey, here: int | None, allowed: Mapping[int | None, OffsetChange | None]) -> str:
    change = log.change(key, here)
    if change is not None and change.outcome == ABORTED and change.in_transaction:
        return str(Anomaly.ABORTED_TO_COMMITTED)
    if allowed.keys() == {None} and change is not None:
        return str(Anomaly.TOMBSTONE_DIVERGENCE)
    due = list(allowed.values())
    if len(due) == 1 and due[0] is not None and due[0].in_transaction and (here is None or change is not None):
        return str(Anomaly.COMMITTED_TO_ABORTED)
    return NAMELESS


def _text(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"
