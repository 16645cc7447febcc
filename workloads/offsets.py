"""Committed offsets as records: a producer whose records are those that a group coordinator writes.

What clients do with groups ends in records of ``__consumer_offsets``, so scenarios about groups have the same steps as
others: a put commits an offset, in a transaction or not, and a delete deletes the group. This producer does that by a
real client library, and then looks in the coordinator's log for the record. Histories and checkers see records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from harness.brokers.segments.batches import iter_records
from harness.brokers.segments.offset_key import OffsetKey, decode_offset_key, encode_offset_key
from harness.clients import OPERATION_TIMEOUT_S, ClientError
from harness.plan.groups import input_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness import clients
    from harness.brokers.protocol.replica import TopicPartition
    from harness.brokers.segments.batches import Batch
    from harness.clients import Answered, LibraryGroups
    from harness.host.clock import Clock

SOURCE: Final = "the coordinator's log"


@dataclass(frozen=True)
class Coordinators:
    """How a producer of offsets reaches what it needs beside its library.

    ``log``: returns the batches in the log of a partition's leader. ``delete_topic`` deletes a topic, and
    ``create_topic`` creates it again, with records.
    """

    log: Callable[[TopicPartition], Sequence[Batch]]
    delete_topic: Callable[[str], None]
    create_topic: Callable[[str], None]
    clock: Clock


def offset_key(scenario: str, group: str, step_key: str) -> bytes:
    """Return the key of the record that a step writes; ``step_key``: the number of an input partition."""
    return encode_offset_key(OffsetKey(group, input_topic(scenario), int(step_key)))


@dataclass
class OffsetsProducer:
    """Implements `LibraryProducer`: keys are those of `offset_key`, values are offsets, None deletes the group.

    ``deletes_input``: None deletes the group's input topic instead, and creates it again.
    """

    library: LibraryGroups
    coordinators: Coordinators
    transactional_id: str | None
    deletes_input: bool = False
    _producer: clients.OffsetsProducer | None = field(default=None, init=False)
    _last: dict[TopicPartition, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Make the library's producer where there are transactions."""
        if self.transactional_id is not None:
            self._producer = self.library.producer(self.transactional_id)

    def init_transactions(self) -> None:
        """Obtain a producer id."""
        self._transactional.init_transactions()

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._transactional.begin_transaction()

    def commit_transaction(self) -> None:
        """Commit it."""
        self._transactional.commit_transaction()

    def abort_transaction(self) -> None:
        """Abort it."""
        self._transactional.abort_transaction()

    def send(
        self,
        to: TopicPartition,
        key: str | bytes,
        value: str | None,
        headers: list[tuple[str, bytes]],  # noqa: ARG002  (a coordinator writes none)
        answered: Answered,
    ) -> None:
        """Do it, and answer with the offset of the record that the coordinator wrote."""
        content = key.encode() if isinstance(key, str) else key
        parts = decode_offset_key(content)
        if parts is None:
            raise ValueError(f"no key of a committed offset: {key!r}")
        try:
            self._act(parts, value)
            # At once: cleaners remove a tombstone as soon as its retention is over.
            offset = self._find(to, content, is_tombstone=value is None)
            if value is None and self.deletes_input:
                self.coordinators.create_topic(parts.topic)
            answered(None, offset)
        except ClientError as error:
            answered(str(error), -1)

    def flush(self) -> int:
        """Return 0: every answer is there."""
        return 0

    @property
    def _transactional(self) -> clients.OffsetsProducer:
        if self._producer is None:
            raise ValueError("this producer of offsets has no transactional id")
        return self._producer

    def _act(self, key: OffsetKey, value: str | None) -> None:
        if value is None:
            if self.deletes_input:
                self.coordinators.delete_topic(key.topic)
            else:
                self.library.delete(key.group)
        elif self._producer is None:
            self.library.commit(key.group, {(key.topic, key.partition): int(value)})
        else:
            self._producer.send_offsets(key.group, {(key.topic, key.partition): int(value)})

    def _find(self, to: TopicPartition, key: bytes, *, is_tombstone: bool) -> int:
        """Wait for a newer record with the key. A deleted topic's offsets are removed by a broker at its own pace."""
        found = [-1]

        def is_there() -> bool:
            try:
                batches = self.coordinators.log(to)
            except OSError:
                return False
            offsets = [
                record.offset
                for batch in batches
                if not batch.is_control and batch.last_offset > self._last.get(to, -1)
                for record in iter_records(batch, source=SOURCE)
                if record.key == key and (record.value is None) == is_tombstone
            ]
            found[0] = max(offsets, default=-1)
            return found[0] > self._last.get(to, -1)

        what = f"the {'tombstone' if is_tombstone else 'committed offset'} in {to[0]}-{to[1]}"
        self.coordinators.clock.wait_until(is_there, OPERATION_TIMEOUT_S, what)
        self._last[to] = found[0]
        return found[0]
