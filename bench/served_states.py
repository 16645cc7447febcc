"""What a read_committed consumer that asks one broker ends with: the check on `judge.truth`, which reads files.

The consumer's rules are those of ``CompletedFetch``: an answer's aborted transactions count from their first offsets
on, each until an ABORT marker of its producer, and for this answer alone.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.broker_files.segments.batches import iter_batches, iter_records, marker, until_cut
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import fetch
from harness.run_folder.history import HEADER_OP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.kafka_api.address import Address
    from harness.kafka_api.fetch import ReplicaState

SOURCE = "a Fetch answer"


@dataclass
class Served:
    """The write that each key ends with, deleted keys left out, and the last stable offset up to which it was read."""

    last_stable_offset: int
    state: dict[str, int] = field(default_factory=dict)
    position: int = 0

    def consume(self, answer: ReplicaState) -> bool:
        """Take in an answer; return whether there was anything new in it."""
        self.last_stable_offset = answer.last_stable_offset
        waiting = sorted(answer.aborted, key=lambda entry: entry[1], reverse=True)
        hidden: set[int] = set()
        before = self.position
        for batch in until_cut(iter_batches(answer.records, source=SOURCE)):
            while waiting and waiting[-1][1] <= batch.last_offset:
                hidden.add(waiting.pop()[0])
            result = marker(batch, source=SOURCE)
            if result is not None and result.type == "abort":
                hidden.discard(batch.producer_id)
            elif not (batch.is_control or (batch.is_transactional and batch.producer_id in hidden)):
                for record in iter_records(batch, source=SOURCE):
                    self._take((record.key or b"").decode(), record.value, dict(record.headers)[HEADER_OP] or b"")
            self.position = max(self.position, batch.last_offset + 1)
        return self.position > before

    def _take(self, key: str, value: bytes | None, number: bytes) -> None:
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = int(number)


def read_served(address: Address, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Served]:
    """Consume each partition from this broker, to its last stable offset. Raises OSError and `HarnessError`."""
    served = {tp: Served(0) for tp in partitions}
    going = set(served)
    with closing(Connection(address)) as connection:
        while going:
            for tp, answer in connection.ask(fetch({tp: served[tp].position for tp in going})).items():
                if isinstance(answer, str):
                    raise HarnessError(f"{tp[0]}-{tp[1]} at {address}: {answer}")
                if not served[tp].consume(answer):
                    going.remove(tp)
    return served
