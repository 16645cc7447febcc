"""A real broker's answers about its replicas."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka.protocol.admin import DescribeProducersRequest

from harness.brokers.protocol.replica import ReplicaState, fetch
from harness.brokers.protocol.wire import Connection
from harness.brokers.segments.batches import iter_batches
from harness.conformance.picture import Picture, aborts_of, states_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.brokers.protocol.wire import Address
    from harness.conformance.files import Files
    from harness.conformance.picture import Named, ProducerState


@dataclass(frozen=True)
class Served:
    """What a broker serves of one replica; fields as in `harness.conformance.picture.Picture`."""

    log_start: int
    high_watermark: int
    last_stable_offset: int
    listed_aborts: tuple[tuple[str, int], ...]
    producers: tuple[ProducerState, ...]

    def with_files(self, files: Files) -> Picture:
        """Return the whole picture."""
        return Picture(**vars(self), **vars(files))


def serve(address: Address, starts: Mapping[str, int], named: Mapping[str, Named]) -> dict[str, Served]:
    """Ask a broker for its replicas of these topics, as a read_committed consumer that begins at ``starts``.

    Replicas that the broker does not report are left out. Raises OSError.
    """
    with closing(Connection(address)) as connection:
        states = _read(connection, starts)
        producers = _producers(connection, [*states], named)
    return {
        topic: Served(
            log_start=state.log_start,
            high_watermark=state.high_watermark,
            last_stable_offset=state.last_stable_offset,
            listed_aborts=aborts_of(aborts, named[topic]),
            producers=producers[topic],
        )
        for topic, (state, aborts) in states.items()
        if topic in producers
    }


def _read(connection: Connection, starts: Mapping[str, int]) -> dict[str, tuple[ReplicaState, set[tuple[int, int]]]]:
    """Read each replica to its last stable offset; return the last answer and the aborted transactions of all."""
    offsets = {(topic, 0): start for topic, start in starts.items()}
    states: dict[str, tuple[ReplicaState, set[tuple[int, int]]]] = {}
    while offsets:
        for tp, answer in fetch(connection, offsets).items():
            at = offsets.pop(tp)
            if isinstance(answer, str):
                states.pop(tp[0], None)
                continue
            aborts = states[tp[0]][1] if tp[0] in states else set()
            states[tp[0]] = answer, aborts | set(answer.aborted)
            ends = [one.last_offset + 1 for one in iter_batches(answer.records, source="a Fetch answer")]
            if ends and ends[-1] > at:
                offsets[tp] = ends[-1]
    return states


def _producers(
    connection: Connection, topics: Sequence[str], named: Mapping[str, Named]
) -> dict[str, tuple[ProducerState, ...]]:
    Topic = DescribeProducersRequest.TopicRequest  # noqa: N806
    answer = connection.call(DescribeProducersRequest[0](topics=[Topic(name=t, partition_indexes=[0]) for t in topics]))
    return {
        topic.name: states_of(
            (
                (
                    one.producer_id,
                    one.producer_epoch,
                    one.last_sequence,
                    one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
                )
                for one in p.active_producers
            ),
            named[topic.name],
        )
        for topic in answer.topics
        for p in topic.partitions
        if not p.error_code
    }
