"""Records of group coordinators: producers that have a coordinator write committed offsets, or classic groups.

Operations on groups end in records of ``__consumer_offsets``, so scenarios about groups have the same operations as
others. A real client library executes each operation, and then the record is looked for in the coordinator's log.
Histories and checkers see records.
"""

# ruff: noqa: D102 (methods of `harness.clients.LibraryProducer`)

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from harness.broker_files.internal_topics.decode import OffsetKey, decode_offset_key, encode_offset_key
from harness.broker_files.segments.batches import Batch, iter_records
from harness.clients import (
    NO_OFFSET,
    OPERATION_TIMEOUT_S,
    Answered,
    ClientError,
    GroupsProducer,
    Headers,
    LibraryGroups,
    TransactionStep,
)
from harness.errors import WaitTimeoutError
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition
from harness.schedules.scenario import CONSUMER, Deletion, input_topic
from workloads.group_consumers import Group

POLL_S: Final = 0.05
JOIN_TIMEOUT_S: Final = 60.0
"""More than for other operations: a client may try a paused broker first, and wait for its answer some times."""
OFFSET_OF_MEMBERS: Final = 20
"""Committed for the first input partition: coordinators delete a group without offsets and members at their next check
(`GroupCoordinatorShard.cleanupGroupMetadata`)."""


@dataclass(frozen=True)
class Coordinators:
    """The ways in which a producer reaches the coordinators, in addition to its library.

    ``leader``: returns a partition's leader, and ``log`` the batches in its log. ``delete_topic`` deletes a topic, and
    ``create_topic`` creates it again, with records. ``expire``: commits an offset of a group that its coordinator
    deletes at its next check.
    """

    leader: Callable[[TopicPartition], int]
    log: Callable[[TopicPartition], Sequence[Batch]]
    delete_topic: Callable[[str], None]
    create_topic: Callable[[str], None]
    expire: Callable[[str, TopicPartition], None]
    clock: Clock
    _last: dict[TopicPartition, int] = field(default_factory=dict)

    def wait_for(
        self,
        partition: TopicPartition,
        key: bytes,
        awaited: str,
        *,
        is_tombstone: bool,
        within_s: float,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> int:
        """Wait for a record with the key behind the last awaited record of the partition; return its offset.

        ``meanwhile`` is called before each look. Coordinators delete some offsets at their own pace.
        """
        after = self._last.get(partition, -1)

        def is_there() -> bool:
            meanwhile()
            try:
                batches = self.log(partition)
            except OSError:
                return False
            offsets = [
                record.offset
                for batch in batches
                if not batch.is_control and batch.last_offset > after
                for record in iter_records(batch, source="the coordinator's log")
                if record.key == key and (record.value is None) == is_tombstone and record.offset > after
            ]
            self._last[partition] = max(offsets, default=after)
            return bool(offsets)

        try:
            self.clock.wait_until(is_there, within_s, f"{awaited} in {partition[0]}-{partition[1]}")
        except WaitTimeoutError as error:
            error.replica = (self.leader(partition), *partition)
            raise
        return self._last[partition]


@dataclass(frozen=True)
class CoordinatorProducer:
    """Implements `LibraryProducer`: ``write`` has a coordinator write a record, and returns the record's offset."""

    write: Callable[[TopicPartition, bytes, str | None], int]
    producer: GroupsProducer | None = None

    def transact(self, step: TransactionStep) -> None:
        if self.producer is None:
            raise TypeError("this producer has no transactional id")
        self.producer.transact(step)

    def send(self, to: TopicPartition, key: str | bytes, value: str | None, headers: Headers, reply: Answered) -> None:  # noqa: ARG002  (a coordinator writes no headers)
        try:
            offset = self.write(to, key.encode() if isinstance(key, str) else key, value)
        except ClientError as error:
            reply(error, NO_OFFSET)
        else:
            reply(None, offset)

    def flush(self) -> int:
        return 0


def offset_key(scenario: str, group: str, step_key: str) -> bytes:
    """Return the key of the record that a step writes; ``step_key``: the number of an input partition."""
    return encode_offset_key(OffsetKey(group, input_topic(scenario), int(step_key)))


def offsets_producer(
    library: LibraryGroups,
    coordinators: Coordinators,
    transactional_id: str | None,
    *,
    deletes: Deletion = Deletion.GROUP,
) -> CoordinatorProducer:
    """Return a producer of committed offsets: keys are those of `offset_key`, and None deletes as ``deletes`` says."""
    producer = None if transactional_id is None else library.producer(transactional_id)

    def write(to: TopicPartition, key: bytes, value: str | None) -> int:
        parts = decode_offset_key(key)
        if parts is None:
            raise ValueError(f"no key of a committed offset: {key!r}")
        partition = (parts.topic, parts.partition)
        if value is not None:
            (library.commit if producer is None else producer.send_offsets)(parts.group, {partition: int(value)})
        elif deletes is Deletion.GROUP:
            library.delete(parts.group)
        elif deletes is Deletion.INPUT:
            coordinators.delete_topic(parts.topic)
        else:
            coordinators.expire(parts.group, partition)
        # At once: cleaners remove a tombstone as soon as its retention is over.
        awaited = "the committed offset" if value is not None else "the tombstone"
        offset = coordinators.wait_for(to, key, awaited, is_tombstone=value is None, within_s=OPERATION_TIMEOUT_S)
        if value is None and deletes is Deletion.INPUT:
            coordinators.create_topic(parts.topic)
        return offset

    return CoordinatorProducer(write, producer)


def memberships_producer(
    library: LibraryGroups, coordinators: Coordinators, groups: Mapping[TopicPartition, Group]
) -> CoordinatorProducer:
    """Return a producer of the records that a coordinator writes for a classic group; keys: of `encode_group_key`.

    A put commits an offset, and then a member joins the group by the protocol that the value names, and leaves: the
    record shows the group without members. A delete is a member that joins by the consumer protocol (KIP-848) and
    leaves: the group changes its type, and the coordinator writes a tombstone for the classic group
    (`GroupMetadataManager.maybeDeleteEmptyClassicGroup`, `convertToConsumerGroup`).
    """

    def write(to: TopicPartition, key: bytes, value: str | None) -> int:
        group, deliveries = groups[to], list[object]()
        find = partial(coordinators.wait_for, to, key, is_tombstone=value is None, within_s=JOIN_TIMEOUT_S)
        if value is not None:
            library.commit(group.name, {group.inputs[0]: OFFSET_OF_MEMBERS})
        with closing(library.consumer(group.name, group.topic, value or CONSUMER)) as member:

            def is_delivered() -> bool:
                deliveries.extend(member.poll(POLL_S))
                return bool(deliveries)

            if value is None:
                # While the member joins: cleaners remove a tombstone as soon as its retention is over.
                offset = find(f"the tombstone of group {group.name}", meanwhile=is_delivered)
            # A client that is closed before its join is answered does not leave: the coordinator would keep its
            # partitions for it until its session times out.
            joined = f"a member of group {group.name} to be delivered a record"
            coordinators.clock.wait_until(is_delivered, JOIN_TIMEOUT_S, joined)
            if value is not None:
                find(f"group {group.name} with its member")
        return offset if value is None else find(f"group {group.name} without members")

    return CoordinatorProducer(write)
