"""Markers that a transaction coordinator left out: the transaction stays open, until another marker ends it instead.

A coordinator that finds no leader for a partition takes it for deleted, and sends it no marker
(``TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue``): on 4.3 and later also where the partition is without a
leader for a moment. See ``docs/explanation/track-record.md``. The transaction stays open there, on every replica, until
the next marker of its producer ends it, too. An aborted one is committed by a later COMMIT, or the other way round.

Schema of ``skipped-markers.jsonl`` of a round, one line of a broker's log a line:

    broker              int   whose coordinator says so
    partitions          list of [topic, partition]: what it took for deleted
    transactional_id    str
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.soak.judge.truth import STUCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harness.kafka_api.messages import TopicPartition
    from harness.soak.judge.truth import Truth

_LINE: Final = re.compile(
    rb"Couldn't find leader endpoint for partitions \w+\((?P<partitions>[^)]*)\) while trying to send transaction"
    rb" markers for (?P<transactional_id>.+), these partitions are likely deleted already"
)
_PARTITION: Final = re.compile(r"([\w.-]+)-(\d+)")


@dataclass(frozen=True)
class SkippedMarker:
    """A transaction whose coordinator left out its marker in a partition; ``marker``: what ends it instead, if any."""

    partition: TopicPartition
    transactional_id: str
    marker: int | None

    def __str__(self) -> str:
        """Return it in words."""
        topic, number = self.partition
        ends = f": the next marker, at offset {self.marker}, ends it instead"
        return (
            f"the coordinator left out the marker of a transaction of {self.transactional_id} in {topic}-{number},"
            f" as if the partition had been deleted{'' if self.marker is None else ends}"
        )


def parse_line(line: bytes, broker: int) -> dict[str, Any] | None:
    """Return what a line of a broker's log says that its coordinator left out; None for any other line."""
    match = _LINE.search(line)
    if match is None:
        return None
    partitions = [(topic, int(number)) for topic, number in _PARTITION.findall(match["partitions"].decode())]
    transactional_id = match["transactional_id"].decode(errors="replace")
    return {"broker": broker, "partitions": partitions, "transactional_id": transactional_id}


def skipped_keys(truth: Truth, lines: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, dict[str, SkippedMarker]]:
    """Return the keys of transactions whose own marker was left out: that are open, or that another marker ended.

    ``lines``: of ``skipped-markers.jsonl``. That one replica missed a marker which another has is not this.
    """
    skipped = _places(lines)
    missed = {(tp, transaction) for (_, tp), some in truth.missed.items() for transaction in some}
    opened = {(tp, one.transaction) for (_, tp), wrongs in truth.wrongs.items() for one in wrongs if one.kind == STUCK}
    found: dict[TopicPartition, dict[str, SkippedMarker]] = defaultdict(dict)
    for (tp, _), write in truth.at.items():
        if write.transaction is None or (tp, truth.transactional_ids.get(write.transaction)) not in skipped:
            continue
        markers = truth.markers.get((tp, write.transaction), ())
        if (tp, write.transaction) in (missed if markers else opened) and len(markers) <= 1:
            transactional_id = truth.transactional_ids[write.transaction]
            found[tp][write.key] = SkippedMarker(tp, transactional_id, next(iter(markers), None))
    return found


def skipped_at(
    truth: Truth, lines: Iterable[Mapping[str, Any]], partition: TopicPartition, offset: int
) -> SkippedMarker | None:
    """Return the transaction of the record that a client wrote there, if its marker was left out."""
    write = truth.at.get((partition, offset))
    transactional_id = truth.transactional_ids.get(write.transaction) if write and write.transaction else None
    if transactional_id is None or (partition, transactional_id) not in _places(lines):
        return None
    return SkippedMarker(partition, transactional_id, None)


def skipped_in(lines: Iterable[Mapping[str, Any]]) -> Iterator[SkippedMarker]:
    """Yield what lines of ``skipped-markers.jsonl`` say, by partition."""
    for one in lines:
        for topic, number in one["partitions"]:
            yield SkippedMarker((topic, number), one["transactional_id"], None)


def _places(lines: Iterable[Mapping[str, Any]]) -> set[tuple[TopicPartition, str | None]]:
    return {(one.partition, one.transactional_id) for one in skipped_in(lines)}
