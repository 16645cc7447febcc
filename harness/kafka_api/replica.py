"""Reads whole replicas from their own brokers, without moving leadership."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from harness.broker_files.segments.batches import iter_batches, until_cut
from harness.errors import HarnessError
from harness.kafka_api.error_names import OUT_OF_RANGE
from harness.kafka_api.fetch import DEBUG_REPLICA_ID, ReplicaState, fetch
from harness.kafka_api.offsets import list_log_starts
from harness.kafka_api.transactions import describe_producers, open_transactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.broker_files.segments.batches import Batch
    from harness.kafka_api.connection import Connection
    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.transactions import OpenTransactions


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
        ...

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Return where each replica ends, or an error by its name. ``positions``: offsets that it is known to reach."""
        ...

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Return the open transactions of the broker's replicas; None where the broker does not list them.

        Raises `HarnessError` for a replica that is just being created or moved.
        """
        ...

    def close(self) -> None:
        """Release the broker."""
        ...


@dataclass(frozen=True)
class WireReader:
    """Implements `ReplicaReader` over a connection.

    ``lists_open``: the broker answers DescribeProducers for any replica.
    """

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
        ends: dict[TopicPartition, ReplicaEnds | str] = {}
        offsets = dict(positions)
        while offsets:
            for tp, answer in self._fetch(offsets, DEBUG_REPLICA_ID).items():
                if isinstance(answer, str):
                    ends[tp] = answer
                    del offsets[tp]
                    continue
                source = f"Fetch answer of {tp[0]}-{tp[1]}"
                last = deque(until_cut(iter_batches(answer.records, source=source, verify_crc=False)), maxlen=1)
                log_end = max([offsets[tp], *(batch.last_offset + 1 for batch in last)])
                ends[tp] = ReplicaEnds(log_end, answer.high_watermark, answer.last_stable_offset)
                if log_end > offsets[tp]:
                    offsets[tp] = log_end
                else:
                    del offsets[tp]
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

    def _fetch(self, offsets: dict[TopicPartition, int], replica_id: int) -> dict[TopicPartition, ReplicaState | str]:
        """Fetch at these offsets; of a log that has none of them, as its first records were deleted, at its start.

        ``offsets`` has the starts then.
        """
        answers = self.connection.ask(fetch(offsets, replica_id=replica_id))
        outside = [tp for tp, answer in answers.items() if answer == OUT_OF_RANGE]
        log_starts = self.connection.ask(list_log_starts(outside)) if outside else {}
        starts = {tp: start for tp, start in log_starts.items() if isinstance(start, int) and start != offsets[tp]}
        offsets |= starts
        return answers | (self.connection.ask(fetch(starts, replica_id=replica_id)) if starts else {})


def _joined(before: ReplicaState | str | None, answer: ReplicaState, batches: tuple[Batch, ...]) -> ReplicaState:
    """Add the complete batches of an answer, which may end inside a batch, to the answers before."""
    records = answer.records[: batches[-1].position + batches[-1].size_bytes] if batches else b""
    if not isinstance(before, ReplicaState):
        return replace(answer, records=records, batches=batches)
    aborted = tuple(dict.fromkeys((*before.aborted, *answer.aborted)))
    return replace(answer, aborted=aborted, records=before.records + records, batches=before.batches + batches)
