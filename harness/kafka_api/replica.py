"""Reads whole replicas from their own brokers, without moving leadership."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from harness.broker_files.segments.batches import Batch, iter_batches, until_cut
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.error_names import OUT_OF_RANGE
from harness.kafka_api.fetch import DEBUG_REPLICA_ID, ReplicaState, fetch, list_log_starts
from harness.kafka_api.transactions import OpenTransactions, describe_producers, open_transactions


@dataclass(frozen=True)
class ReplicaEnds:
    """The offsets at which a replica ends, for brokers and for consumers."""

    log_end: int
    high_watermark: int
    last_stable_offset: int


class ReplicaReader(Protocol):
    """Reads the replicas of one broker as the broker serves them, until `close`. Its methods raise OSError."""

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Return each replica from its start to its end, or an error by its name."""

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Return where each replica ends, or an error by its name. ``positions``: offsets that it is known to reach."""

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Return the open transactions. Raises `HarnessError` for a replica that is just being created or moved."""

    def close(self) -> None:
        """Release the broker."""


@dataclass(frozen=True)
class WireReader:
    """Implements `ReplicaReader` over a connection. ``lists_open``: any replica's broker answers DescribeProducers."""

    connection: Connection
    lists_open: bool = True

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Read each partition; watermarks are those of the last answer.

        With a consumer's replica id a replica ends at the last stable offset, and the aborted list is filled; with the
        debugging consumer's id it ends at the log end offset, and the list is empty. Raises `CorruptLogError` where a
        broker serves bytes that are not a record batch.
        """
        states: dict[TopicPartition, ReplicaState | str] = {}
        for tp, answer in self._answers(dict.fromkeys(partitions, 0), replica_id, verify_crc=True):
            states[tp] = answer if isinstance(answer, str) else _joined(states.get(tp), answer)
        return states

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Read each replica from its position on, and no record twice where the next positions are the log ends."""
        ends: dict[TopicPartition, ReplicaEnds | str] = {}
        offsets = dict(positions)
        for tp, answer in self._answers(offsets, DEBUG_REPLICA_ID, verify_crc=False):
            if isinstance(answer, str):
                ends[tp] = answer
            else:
                log_end = max([offsets[tp], *(batch.last_offset + 1 for batch in answer.batches[-1:])])
                ends[tp] = ReplicaEnds(log_end, answer.high_watermark, answer.last_stable_offset)
        return ends

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Ask for the producers of each replica. Raises `HarnessError`."""
        if not self.lists_open:
            return dict.fromkeys(partitions)
        opened: dict[TopicPartition, OpenTransactions] = {}
        for tp, producers in self.connection.ask(describe_producers(partitions)).items():
            if isinstance(producers, str):
                raise HarnessError(f"{tp[0]}-{tp[1]} at {self.connection.address}: {producers}")
            opened[tp] = open_transactions(producers)
        return opened

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _answers(
        self, offsets: dict[TopicPartition, int], replica_id: int, *, verify_crc: bool
    ) -> Iterator[tuple[TopicPartition, ReplicaState | str]]:
        """Fetch from these offsets on until an answer has no new records, as no answer crosses a segment's end.

        ``offsets`` has the next offset of each unfinished replica. Batches that are cut (`LocalLog.read`) are left out.
        """
        while offsets:
            for tp, answer in self._fetch(offsets, replica_id).items():
                batches: tuple[Batch, ...] = ()
                if isinstance(answer, str):
                    yield tp, answer
                else:
                    source = f"Fetch answer of {tp[0]}-{tp[1]}"
                    batches = tuple(until_cut(iter_batches(answer.records, source=source, verify_crc=verify_crc)))
                    records = answer.records[: batches[-1].position + batches[-1].size_bytes] if batches else b""
                    yield tp, replace(answer, records=records, batches=batches)
                if batches and batches[-1].last_offset >= offsets[tp]:
                    offsets[tp] = batches[-1].last_offset + 1
                else:
                    del offsets[tp]

    def _fetch(self, offsets: dict[TopicPartition, int], replica_id: int) -> dict[TopicPartition, ReplicaState | str]:
        """Fetch at these offsets; where a log has none of them, at its start, which ``offsets`` has then."""
        answers = self.connection.ask(fetch(offsets, replica_id=replica_id))
        outside = [tp for tp, answer in answers.items() if answer == OUT_OF_RANGE]
        log_starts = self.connection.ask(list_log_starts(outside)) if outside else {}
        starts = {tp: start for tp, start in log_starts.items() if isinstance(start, int) and start != offsets[tp]}
        offsets |= starts
        return answers | (self.connection.ask(fetch(starts, replica_id=replica_id)) if starts else {})


def _joined(before: ReplicaState | str | None, answer: ReplicaState) -> ReplicaState:
    if not isinstance(before, ReplicaState):
        return answer
    return replace(
        answer,
        aborted=tuple(dict.fromkeys((*before.aborted, *answer.aborted))),
        records=before.records + answer.records,
        batches=before.batches + answer.batches,
    )
