"""Records of groups that contradict each other, and so keep the new group coordinator from loading its log (KIP-848).

It throws IllegalStateException where a record does not fit the group so far: until another broker leads, **no group of
that partition has a coordinator**. A log with every record never leads there; a log without some tombstones may.
Source: ``GroupMetadataManager.replay`` for each kind of record, ``getOrMaybeCreatePersistedConsumerGroup`` (4.3),
``CoordinatorLoaderImpl``, ``CoordinatorRuntime.CoordinatorContext.load``. One group with one member is modelled. Not
modelled: share groups and streams groups, which have rules of the same form.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.models.log.invariants import ModelTruth
from harness.models.log.replica import Replica
from harness.schedules.operations import DeleteGroup, JoinGroup, LeaveGroup, Operation

NOT_LOADED: Final = "coordinator-not-loaded"
"""The coordinator fails to load the partition: none of its groups can fetch or commit offsets, join or continue."""
MEMBER_BACK: Final = "member-back"
"""A member that has left is in the group again, and keeps its partitions until its session times out."""
GROUP_BACK: Final = "deleted-group-back"
"""A group that was deleted exists again."""

CLASSIC: Final = "classic-group"
"""``GroupMetadata``: a classic group and its members."""
GROUP, TARGET, TARGET_OF_MEMBER, MEMBER, ASSIGNMENT = "group", "target", "target-of-m", "member-m", "assignment-of-m"
"""``ConsumerGroupMetadata``, ``…TargetAssignmentMetadata``, ``…TargetAssignmentMember``, ``…MemberMetadata``,
``…CurrentMemberAssignment``: keys of the records of a group of the consumer protocol."""

JOINS: Final = (MEMBER, GROUP, TARGET_OF_MEMBER, TARGET, ASSIGNMENT)
LEAVES: Final = (f"-{ASSIGNMENT}", f"-{TARGET_OF_MEMBER}", f"-{MEMBER}", GROUP, TARGET)
DELETED: Final = (f"-{TARGET}", f"-{GROUP}")
_JOINS, _JOINS_CLASSICALLY = JoinGroup("m", "g", "consumer"), JoinGroup("m", "g", "classic")
_LEAVES, _DELETES = LeaveGroup("m", "g"), DeleteGroup("a", "g")
SCRIPTS: Final[Mapping[str, Sequence[tuple[Operation, Sequence[str]]]]] = {
    "a member leaves, and its group is deleted": ((_JOINS, JOINS), (_LEAVES, LEAVES), (_DELETES, DELETED)),
    "a classic group is upgraded": (
        (_JOINS_CLASSICALLY, (CLASSIC,)),
        (_LEAVES, (CLASSIC,)),
        (_JOINS, (f"-{CLASSIC}", *JOINS)),
    ),
    "a classic group is deleted, and is one of the consumer protocol later": (
        (_JOINS_CLASSICALLY, (CLASSIC,)),
        (_DELETES, (f"-{CLASSIC}",)),
        (_JOINS, JOINS),
    ),
}
"""Operations on a group, in order, and the keys of the records of one batch, tombstones with a minus.

Source: ``GroupMetadataManager.consumerGroupJoin``, ``consumerGroupFenceMember``, ``maybeDeleteEmptyClassicGroup``,
``ConsumerGroup.createGroupTombstoneRecords``.
"""


class LoadFailedError(Exception):
    """The coordinator throws IllegalStateException where it replays a record."""


@dataclass(slots=True)
class Loaded:
    """The group so far: a classic group, a group of the consumer protocol, or none.

    ``parts``: the keys of the records in force; `MEMBER` without `ASSIGNMENT` is a member that has left.
    """

    is_classic: bool = False
    is_consumer: bool = False
    parts: set[str] = field(default_factory=set)

    def apply(self, key: str, *, deletes: bool) -> None:
        """Replay a record. Raises `LoadFailedError`."""
        if key == CLASSIC:
            self.is_classic, self.is_consumer = not deletes, False
            self.parts.clear()
        elif self.is_classic:
            raise LoadFailedError("the group is not a consumer group")
        elif deletes:
            self._delete(key)
        else:
            self.is_consumer = True
            if key == ASSIGNMENT or (key == MEMBER and MEMBER not in self.parts):
                self.parts |= {MEMBER, ASSIGNMENT}
            elif key != GROUP:
                self.parts.add(key)

    def _delete(self, key: str) -> None:
        if key == MEMBER and MEMBER in self.parts and self.parts & {ASSIGNMENT, TARGET_OF_MEMBER}:
            raise LoadFailedError("a member is deleted that has an assignment")
        if key == TARGET and TARGET_OF_MEMBER in self.parts:
            raise LoadFailedError("a target assignment is deleted that has members")
        if key == GROUP and self.parts:
            raise LoadFailedError("a group is deleted that has members")
        self.parts.discard(key)
        if key == GROUP:
            self.is_consumer = False


def load(records: Iterable[tuple[str, bool]]) -> Loaded:
    """Replay records, given as key and whether it is a tombstone. Raises `LoadFailedError`."""
    loaded = Loaded()
    for key, deletes in records:
        loaded.apply(key, deletes=deletes)
    return loaded


def group_consequences(replica: Replica, truth: ModelTruth) -> Iterator[str]:
    """Yield the consequences for the group if the broker of this replica, which has caught up, coordinates it."""
    right = load((record.key, record.deletes) for record in truth.wrote)
    records = (record for batch in replica.batches() if not batch.control for record in batch.records)
    try:
        here = load(((record.key or b"").decode(), record.value is None) for record in records)
    except LoadFailedError:
        yield NOT_LOADED
        return
    if MEMBER in here.parts - right.parts:
        yield MEMBER_BACK
    if (here.is_classic or here.is_consumer) and not (right.is_classic or right.is_consumer):
        yield GROUP_BACK
