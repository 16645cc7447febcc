"""Operations of clients: producers, consumers, and members of groups."""

from harness.schedules.operations.operation import operation

COMMIT, ABORT = "commit", "abort"
"""Outcomes of a transaction."""


@operation(
    lambda write: (
        f"{write.process} {'deletes' if write.deletes else 'puts'} {write.key}"
        f"{f' in {write.topic}-{write.partition}' * bool(write.topic)}"
    )
)
class Write:
    """A record; a tombstone where ``deletes``. A transactional client without an open transaction begins one with it.

    Without a ``value``, the player chooses one.
    """

    process: str
    key: str
    deletes: bool = False
    topic: str = ""
    partition: int = 0
    value: str = ""


@operation(
    lambda batch: (
        f"{batch.process} writes "
        + " ".join(f"{'-' * (at in batch.tombstones)}{key}" for at, key in enumerate(batch.keys))
    )
)
class WriteBatch:
    """Several records in one batch. ``tombstones``: the positions of keys that are deleted, from 0."""

    process: str
    keys: tuple[str, ...]
    tombstones: tuple[int, ...] = ()


@operation("{process} begins")
class Begin:
    """The beginning of a transaction."""

    process: str


@operation("{process} {outcome}s")
class End:
    """The end of the client's open transaction: commit or abort."""

    process: str
    outcome: str


@operation("{process} {outcome}s, having written nothing here")
class EndElsewhere:
    """The end of a transaction that had registered the partition, and wrote nothing to it: a lone marker."""

    process: str
    outcome: str


@operation("{process} begins again, which aborts its transaction")
class Restart:
    """A new producer of the same transactional id: the coordinator aborts the open transaction with a higher epoch."""

    process: str


@operation("{process} dies")
class Die:
    """The client is gone, and its transaction stays open. Its next operation is of a new client of the same id."""

    process: str


@operation("{process} sends offset {offset} of {topic}-{partition} for {group}")
class SendOffset:
    """A group's offset, committed as part of the client's transaction (KIP-447)."""

    process: str
    group: str
    topic: str
    partition: int
    offset: int


@operation("{process} commits offset {offset} of {topic}-{partition} for {group}")
class CommitOffset:
    """A group's offset, committed by a consumer that manages its partitions itself."""

    process: str
    group: str
    topic: str
    partition: int
    offset: int


@operation("{process} joins {group} ({protocol})")
class JoinGroup:
    """A member joins a group by a protocol."""

    process: str
    group: str
    protocol: str


@operation("{process} leaves {group}")
class LeaveGroup:
    """A member leaves its group."""

    process: str
    group: str


@operation("{process} visits {group} of {topic} ({protocol})")
class VisitGroup:
    """A member joins a group of a topic by a protocol, reads its records, and leaves."""

    process: str
    group: str
    topic: str
    protocol: str


@operation("{process} deletes group {group}")
class DeleteGroup:
    """A group without members is deleted."""

    process: str
    group: str
