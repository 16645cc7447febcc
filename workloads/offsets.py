"""Committed offsets as records: a producer of the records that a group coordinator writes.

Operations on groups end in records of ``__consumer_offsets``, so scenarios about groups have the same operations as
others: a write commits an offset, in a transaction or not, and a tombstone is a `Deletion`. This producer uses a real
client library, and then looks for the record in the coordinator's log. Histories and checkers see records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness import clients
from harness.broker_files.internal_topics.decode import OffsetKey, decode_offset_key, encode_offset_key
from harness.broker_files.segments.batches import Batch, iter_records
from harness.clients import OPERATION_TIMEOUT_S, Answered, ClientError, Headers, LibraryGroups
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition
from harness.schedules.scenario import Deletion, input_topic

SOURCE: Final = "the coordinator's log"


@dataclass(frozen=True)
class Coordinators:
    """The ways in which a producer of offsets reaches the cluster, in addition to its library.

    ``log``: returns the batches in the log of a partition's leader. ``delete_topic`` deletes a topic, and
    ``create_topic`` creates it again, with records. ``expire``: commits an offset of a group that its coordinator
    deletes at its next check.
    """

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
            self._last[partition] = self._newest(partition, key, after=after, is_tombstone=is_tombstone)
            return self._last[partition] > after

        self.clock.wait_until(is_there, within_s, f"{awaited} in {partition[0]}-{partition[1]}")
        return self._last[partition]

    def _newest(self, partition: TopicPartition, key: bytes, *, after: int, is_tombstone: bool) -> int:
        try:
            batches = self.log(partition)
        except OSError:
            return after
        offsets = [
            record.offset
            for batch in batches
            if not batch.is_control and batch.last_offset > after
            for record in iter_records(batch, source=SOURCE)
            if record.key == key and (record.value is None) == is_tombstone and record.offset > after
        ]
        return max(offsets, default=after)


def offset_key(scenario: str, group: str, step_key: str) -> bytes:
    """Return the key of the record that a step writes; ``step_key``: the number of an input partition."""
    return encode_offset_key(OffsetKey(group, input_topic(scenario), int(step_key)))


@dataclass
class OffsetsProducer:
    """Implements `LibraryProducer`: keys are those of `offset_key`, values are offsets, None is a `Deletion`."""

    library: LibraryGroups
    coordinators: Coordinators
    transactional_id: str | None
    deletes: Deletion = Deletion.GROUP
    _producer: clients.GroupsProducer | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.transactional_id is not None:
            self._producer = self.library.producer(self.transactional_id)

    def transact(self, step: clients.TransactionStep) -> None:
        """See `LibraryProducer`."""
        if self._producer is None:
            raise ValueError("this producer of offsets has no transactional id")
        self._producer.transact(step)

    def send(self, to: TopicPartition, key: str | bytes, value: str | None, headers: Headers, reply: Answered) -> None:  # noqa: ARG002  (a coordinator writes no headers)
        """Do it, and answer with the offset of the record that the coordinator wrote."""
        content = key.encode() if isinstance(key, str) else key
        parts = decode_offset_key(content)
        if parts is None:
            raise ValueError(f"no key of a committed offset: {key!r}")
        try:
            self._act(parts, value)
            # At once: cleaners remove a tombstone as soon as its retention is over.
            awaited = "the committed offset" if value is not None else "the tombstone"
            offset = self.coordinators.wait_for(
                to, content, awaited, is_tombstone=value is None, within_s=OPERATION_TIMEOUT_S
            )
            if value is None and self.deletes is Deletion.INPUT:
                self.coordinators.create_topic(parts.topic)
            reply(None, offset)
        except ClientError as error:
            reply(str(error), -1)

    def flush(self) -> int:
        """Return 0: every write was answered."""
        return 0

    def _act(self, key: OffsetKey, value: str | None) -> None:
        partition = (key.topic, key.partition)
        if value is not None:
            commit = self.library.commit if self._producer is None else self._producer.send_offsets
            commit(key.group, {partition: int(value)})
            return
        match self.deletes:
            case Deletion.GROUP:
                self.library.delete(key.group)
            case Deletion.INPUT:
                self.coordinators.delete_topic(key.topic)
            case Deletion.EXPIRY:
                self.coordinators.expire(key.group, partition)
