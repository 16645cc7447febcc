"""A broker's files on disk: segments, aborted transactions, producer snapshots, checkpoints."""

from collections.abc import Mapping
from pathlib import Path

from harness.broker_files.side_files.producer_state import encode_producer_snapshot, encode_txnindex
from harness.kafka_api import TopicPartition
from harness.models.log.batch import encoded
from harness.models.log.replica import ModelSegment, Replica


def write_replica(folder: Path, replica: Replica) -> None:
    """Write a partition's folder, which exists."""
    for segment in replica.segments:
        write_segment(folder, segment)
    epochs = "".join(f"{epoch} {start}\n" for epoch, start in sorted(replica.epochs.items()))
    (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(replica.epochs)}\n{epochs}")
    for at, producers in replica.snapshots.items():
        (folder / f"{at:020d}.snapshot").write_bytes(encode_producer_snapshot(list(producers.values())))


def write_segment(folder: Path, segment: ModelSegment, suffix: str = "") -> None:
    """Write one segment's files; ``suffix``: the suffix that the cleaner gives them."""
    name = f"{folder}/{segment.base_offset:020d}"
    with open(f"{name}.log{suffix}", "wb") as log:  # noqa: PTH123  many small files: a Path each costs as much again
        log.write(b"".join([encoded(batch) for batch in segment.batches]))
    if segment.aborted:
        with open(f"{name}.txnindex{suffix}", "wb") as index:  # noqa: PTH123
            index.write(encode_txnindex(segment.aborted))


def write_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write one offset for each partition (``OffsetCheckpointFile``)."""
    lines = [f"{topic} {number} {at}\n" for (topic, number), at in offsets.items()]
    path.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
