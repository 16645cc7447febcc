"""What clients know of the offsets that groups have committed: which they may have in the end, and which never.

Derived from the history. Every operation of a round commits another offset (see `harness.soak.draw.workload`), so that
an offset tells which operation it is of. Operations of several clients overlap: what began after another one was
answered is later, and of all others no client knows the order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harness.soak.evidence.client_log import ABORTED, COMMITTED, FAIL, INVOKE, OK, RECREATE, UNKNOWN, transactions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.kafka_api.messages import TopicPartition

SEND_OFFSET, COMMIT_OFFSET, DELETE_GROUP = "send offset", "commit offset", "delete group"
NEVER: Final = float("inf")

GroupKey = tuple[str, "TopicPartition"]
"""A group, and the partition whose offset it commits."""


@dataclass(frozen=True)
class Change:
    """An offset that is committed, or deleted where ``offset`` is None.

    ``began``, ``answered``: by the order of the history; `NEVER` where there is no answer that says it was done.
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
        """Whether it was done, and counts."""
        return self.outcome == COMMITTED and self.answered < NEVER

    def replaces(self, other: Change) -> bool:
        """Whether this is certain, and certainly later.

        A coordinator orders the offsets of transactions by when they were sent (``OffsetMetadataManager``). Only a
        deletion does not: the old coordinator deletes no pending offset (`harness.models.world.groups`).
        """
        return self.is_certain and self.began > (other.ended if self.offset is None else other.answered)


@dataclass(frozen=True)
class GroupLog:
    """Changes by group and partition."""

    changes: Mapping[GroupKey, Sequence[Change]] = field(default_factory=dict)

    def possible(self, key: GroupKey) -> dict[int | None, Change | None]:
        """Return the offsets that the group may have in the end, each with the change that makes it so.

        None stands for no offset: of a deletion, or where it is not certain that any was committed.
        """
        counting = [one for one in self.changes.get(key, ()) if one.outcome != ABORTED]
        last = [one for one in counting if not any(other.replaces(one) for other in counting)]
        found: dict[int | None, Change | None] = {one.offset: one for one in last}
        if not any(one.is_certain and one.offset is not None for one in counting):
            found.setdefault(None, None)
        return found

    def change(self, key: GroupKey, offset: int) -> Change | None:
        """Return what committed this offset; None where no client did."""
        return next((one for one in self.changes.get(key, ()) if one.offset == offset), None)


def group_log_of(events: Sequence[Mapping[str, Any]]) -> GroupLog:
    """Return what the clients of a history know of offsets."""
    outcomes = transactions_of(events)
    answers = {event["op"]: (event["type"], at) for at, event in enumerate(events) if event["type"] != INVOKE}
    ends = {
        (event.get("transactional_id"), event.get("txn")): float(at)
        for at, event in enumerate(events)
        if event["f"] in {"commit", "abort"} and event["type"] == OK
    }
    changes: dict[GroupKey, list[Change]] = defaultdict(list)
    for at, event in enumerate(events):
        if event["type"] == INVOKE and event["f"] in {SEND_OFFSET, COMMIT_OFFSET}:
            topic, _, partition = event["input"].rpartition("-")
            kind, answered = _answer(answers, event)
            ended, outcome = answered, {OK: COMMITTED, FAIL: ABORTED}.get(kind, UNKNOWN)
            is_sent = event["f"] == SEND_OFFSET
            if is_sent:
                named = (event.get("transactional_id"), event.get("txn"))
                ended, outcome = ends.get(named, NEVER), outcomes.get(named, UNKNOWN)
            changes[event["group"], (topic, int(partition))].append(
                Change(event["committed"], float(at), answered, ended, outcome, in_transaction=is_sent)
            )
    for at, event in enumerate(events):
        if event["type"] == INVOKE and event["f"] in {DELETE_GROUP, RECREATE}:
            kind, answered = _answer(answers, event)
            # Of a topic's deletion coordinators hear some time later, and some of its offsets may be committed anew.
            outcome = COMMITTED if kind == OK and event["f"] == DELETE_GROUP else UNKNOWN
            for key in _concerned(changes, event):
                changes[key].append(Change(None, float(at), answered, answered, outcome))
    return GroupLog({key: tuple(some) for key, some in changes.items()})


def _answer(answers: Mapping[int, tuple[str, int]], event: Mapping[str, Any]) -> tuple[str, float]:
    kind, at = answers.get(event["op"], ("", 0))
    return kind, float(at) if kind == OK else NEVER


def _concerned(keys: Iterable[GroupKey], event: Mapping[str, Any]) -> Iterator[GroupKey]:
    for group, tp in keys:
        if group == event.get("group") or (event["f"] == RECREATE and tp[0] == event["topic"]):
            yield group, tp
