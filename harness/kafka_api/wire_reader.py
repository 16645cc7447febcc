"""Reads whole replicas from their own brokers: implements `Reader` of `harness.kafka_api.replica`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.broker_files.segments.batches import iter_batches, until_cut
from harness.errors import HarnessError
from harness.kafka_api.offsets import log_starts
from harness.kafka_api.replica import (
    DEBUG_REPLICA_ID,
    OUT_OF_RANGE,
    ReplicaEnds,
    ReplicaState,
    describe_producers,
    fetch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.broker_files.segments.batches import Batch
    from harness.kafka_api.replica import OpenTransactions, TopicPartition
    from harness.kafka_api.wire import Connection


@dataclass(frozen=True)
class WireReader:
    """Implements `Reader` over a connection. ``lists_open``: the broker answers DescribeProducers for any replica."""

    connection: Connection
    lists_open: bool = True

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Read each partition of the broker from its start to its end; an error is given by its name.

        One answer never crosses a segment's end (`LocalLog.read`), so reading continues until an answer has no new
        records. With a consumer's replica id it ends at the last stable offset, and the aborted list is filled; with
        the debugging consumer's id it ends at the log end offset, and the list is empty. Watermarks are those of the
        last answer. Raises `CorruptLogError` where a broker serves bytes that are no record batch.
        """
        offsets = dict.fromkeys(partitions, 0)
        states: dict[TopicPartition, ReplicaState | str] = {}
        while offsets:
            for tp, answer in self._fetch(offsets, replica_id).items():
                if isinstance(answer, str):
                    states[tp] = answer
                    del offsets[tp]
                    continue
                batches = tuple(until_cut(iter_batches(answer.records, source=f"Fetch answer of {tp[0]}-{tp[1]}")))
                states[tp] = _joined(states.get(tp), answer, batches)
                if batches and batches[-1].last_offset >= offsets[tp]:
                    offsets[tp] = batches[-1].last_offset + 1
                else:
                    del offsets[tp]
        return states

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Read each replica from its position on, and no record twice where the next positions are the log ends."""
        found: dict[TopicPartition, ReplicaEnds | str] = {}
        offsets = dict(positions)
        while offsets:
            for tp, answer in self._fetch(offsets, DEBUG_REPLICA_ID).items():
                if isinstance(answer, str):
                    found[tp] = answer
                    del offsets[tp]
                    continue
                source = f"Fetch answer of {tp[0]}-{tp[1]}"
                last = deque(until_cut(iter_batches(answer.records, source=source, verify_crc=False)), maxlen=1)
                log_end = max([offsets[tp], *(batch.last_offset + 1 for batch in last)])
                found[tp] = ReplicaEnds(log_end, answer.high_watermark, answer.last_stable_offset)
                if log_end > offsets[tp]:
                    offsets[tp] = log_end
                else:
                    del offsets[tp]
        return found

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Ask for the producers of each replica (KIP-664); followers answer, too. Raises `HarnessError`."""
        if not self.lists_open:
            return dict.fromkeys(partitions)
        opened: dict[TopicPartition, OpenTransactions] = {}
        for (topic, partition), transactions in describe_producers(self.connection, partitions).items():
            if isinstance(transactions, str):
                raise HarnessError(f"{topic}-{partition} at {self.connection.address}: {transactions}")
            opened[topic, partition] = transactions
        return opened

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _fetch(self, offsets: dict[TopicPartition, int], replica_id: int) -> dict[TopicPartition, ReplicaState | str]:
        """Fetch at these offsets; of a log that has none of them, as its first records were deleted, at its start.

        ``offsets`` has the starts then.
        """
        answers = fetch(self.connection, offsets, replica_id=replica_id)
        outside = [tp for tp, answer in answers.items() if answer == OUT_OF_RANGE]
        found = log_starts(self.connection, outside) if outside else {}
        starts = {tp: start for tp, start in found.items() if isinstance(start, int) and start != offsets[tp]}
        offsets |= starts
        return answers | (fetch(self.connection, starts, replica_id=replica_id) if starts else {})


def _joined(before: ReplicaState | str | None, answer: ReplicaState, batches: tuple[Batch, ...]) -> ReplicaState:
    """Add the complete batches of an answer, which may end inside a batch, to the answers before."""
    records = answer.records[: batches[-1].position + batches[-1].size_bytes] if batches else b""
    if not isinstance(before, ReplicaState):
        return replace(answer, records=records, batches=batches)
    aborted = tuple(dict.fromkeys((*before.aborted, *answer.aborted)))
    return replace(answer, aborted=aborted, records=before.records + records, batches=before.batches + batches)
