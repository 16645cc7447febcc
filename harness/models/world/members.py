"""What keeps a group coordinator from loading its log: records of groups that contradict each other.

The new coordinator replays the records of groups of the consumer protocol (KIP-848), and of classic groups, in the
order of the log. It throws IllegalStateException where a record does not fit the group so far. The partition's
coordinator has then failed, until another broker leads: **no group of that partition has a coordinator**. A log with
every record never leads there; one that lacks tombstones may.

Source: ``GroupMetadataManager.replay`` for each kind of record, ``getOrMaybeCreatePersistedConsumerGroup`` (4.3),
``CoordinatorLoaderImpl``, ``CoordinatorRuntime.CoordinatorContext.load``.

One group with one member is modelled. Not modelled: share groups and streams groups, which have rules of the same form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.schedules.operations.clients import DeleteGroup, JoinGroup, LeaveGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.models.log.invariants import Truth
    from harness.models.log.replica import Replica
    from harness.schedules.operations.operation import Operation

NOT_LOADED: Final = "coordinator-not-loaded"
"""The coordinator fails to load the partition: none of its groups can fetch or commit offsets, join or continue."""

MEMBER_BACK: Final = "member-back"
"""A member that has left is there again, and keeps its partitions until its session times out."""
GROUP_BACK: Final = "deleted-group-back"
"""A group that was deleted is there again."""

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
    "a member leaves, and its group is deleted": (
        (_JOINS, JOINS),
        (_LEAVES, LEAVES),
        (_DELETES, DELETED),
    ),
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
class Group:
    """A group of the consumer protocol so far. ``has_left``: None without the member, whether it has left with it."""

    has_left: bool | None = None
    has_target: bool = False
    has_target_epoch: bool = False


@dataclass(slots=True)
class Loaded:
    """The group so far: a classic one, one of the consumer protocol, or none."""

    is_classic: bool = False
    group: Group | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a group."""
        return self.is_classic or self.group is not None

    @property
    def has_member(self) -> bool:
        """Whether the group of the consumer protocol has its member."""
        return self.group is not None and self.group.has_left is not None

    def apply(self, key: str, *, deletes: bool) -> None:
        """Replay a record. Raises `LoadFailedError`."""
        if key == CLASSIC:
            self.is_classic, self.group = not deletes, None
            return
        if self.is_classic:
            raise LoadFailedError("the group is not a consumer group")
        if not deletes:
            self.group = self.group or Group()
            _put(self.group, key)
        elif self.group is not None:
            _delete(self.group, key)
            if key == GROUP:
                self.group = None


def _put(group: Group, key: str) -> None:
    if key == MEMBER:
        group.has_left = bool(group.has_left)
    elif key == ASSIGNMENT:
        group.has_left = False
    elif key == TARGET_OF_MEMBER:
        group.has_target = True
    elif key == TARGET:
        group.has_target_epoch = True


def _delete(group: Group, key: str) -> None:
    if key == ASSIGNMENT and group.has_left is not None:
        group.has_left = True
    elif key == TARGET_OF_MEMBER:
        group.has_target = False
    elif key == MEMBER and group.has_left is not None:
        if not group.has_left or group.has_target:
            raise LoadFailedError("a member is deleted that has an assignment")
        group.has_left = None
    elif key == TARGET:
        if group.has_target:
            raise LoadFailedError("a target assignment is deleted that has members")
        group.has_target_epoch = False
    elif key == GROUP and (group.has_left is not None or group.has_target or group.has_target_epoch):
        raise LoadFailedError("a group is deleted that has members")


def load(records: Iterable[tuple[str, bool]]) -> Loaded:
    """Replay records, given as key and whether it is a tombstone. Raises `LoadFailedError`."""
    loaded = Loaded()
    for key, deletes in records:
        loaded.apply(key, deletes=deletes)
    return loaded


def load_replica(replica: Replica) -> Loaded:
    """Return the group as the broker of this replica loads it. Raises `LoadFailedError`."""
    return load(
        ((one.key or b"").decode(), one.value is None)
        for batch in replica.batches()
        if not batch.control
        for one in batch.records
    )


def group_consequences(replica: Replica, truth: Truth) -> Iterator[str]:
    """Yield the names of what goes wrong for the group if the broker of this replica coordinates it from now on.

    The replica has caught up.
    """
    right = load((one.key, one.deletes) for one in truth.wrote)
    try:
        here = load_replica(replica)
    except LoadFailedError:
        yield NOT_LOADED
        return
    if here.has_member and not right.has_member:
        yield MEMBER_BACK
    if here.exists and not right.exists:
        yield GROUP_BACK
