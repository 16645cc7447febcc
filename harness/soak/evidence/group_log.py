"""Offsets that groups committed, by the history of clients: the offsets that a group may have in the end.

Derived from the history. Every operation of a round commits another offset (see `harness.soak.draw.workload`), so that
an offset identifies the operation that committed it. Operations of several clients overlap: an operation that began
after another was answered is later; of all others no client knows the order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harness.soak.evidence.client_log import (
    ABORTED,
    COMMITTED,
    FAIL,
    INVOKE,
    OK,
    OUTCOMES,
    RECREATE,
    UNKNOWN,
    transaction_of,
    transactions_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.kafka_api.messages import TopicPartition

SEND_OFFSET, COMMIT_OFFSET, DELETE_GROUP = "send offset", "commit offset", "delete group"
NEVER: Final = float("inf")

GroupKey = tuple[str, "TopicPartition"]
"""A group, and the partition whose offset it commits."""


@dataclass(frozen=True)
class OffsetChange:
    """An offset that is committed, or deleted where ``offset`` is None.

    ``began``, ``answered``: by the order of the history; `NEVER` where no answer says that it was done.
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
        """Whether the change was made, and counts."""
        return self.outcome == COMMITTED and self.answered < NEVER

    def replaces(self, other: OffsetChange) -> bool:
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
        """Return the offsets that the group may have in the end, each with the change that makes it so.

        None stands for no offset: of a deletion, or where it is not certain that any was committed.
        """
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
    answers = {event["op"]: (event["type"], at) for at, event in enumerate(events) if event["type"] != INVOKE}
    ends = {
        transaction_of(event): float(at)
        for at, event in enumerate(events)
        if event["f"] in OUTCOMES and event["type"] == OK
    }
    changes: dict[GroupKey, list[OffsetChange]] = defaultdict(list)
    deletions = []
    for at, event in enumerate(events):
        if event["type"] != INVOKE:
            continue
        kind, answered_at = answers.get(event["op"], ("", 0))
        answered = float(answered_at) if kind == OK else NEVER
        if event["f"] in {SEND_OFFSET, COMMIT_OFFSET}:
            topic, _, partition = event["input"].rpartition("-")
            ended, outcome = answered, {OK: COMMITTED, FAIL: ABORTED}.get(kind, UNKNOWN)
            in_transaction = event["f"] == SEND_OFFSET
            if in_transaction:
                ended = ends.get(transaction_of(event), NEVER)
                outcome = outcomes.get(transaction_of(event), UNKNOWN)
            changes[event["group"], (topic, int(partition))].append(
                OffsetChange(event["committed"], float(at), answered, ended, outcome, in_transaction)
            )
        elif event["f"] in {DELETE_GROUP, RECREATE}:
            # Coordinators hear of a topic's deletion some time later, and its offsets may be committed again.
            outcome = COMMITTED if kind == OK and event["f"] == DELETE_GROUP else UNKNOWN
            deletions.append((event, OffsetChange(None, float(at), answered, answered, outcome)))
    for event, deletion in deletions:
        for (group, tp), of_key in changes.items():
            if group == event.get("group") or (event["f"] == RECREATE and tp[0] == event["topic"]):
                of_key.append(deletion)
    return GroupLog(changes)
