"""A case as folders, the way brokers leave them: segments, side files and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.segments.producer_snapshot import encode_producer_snapshot
from harness.segments.txnindex import encode_txnindex
from models.batch import Batch, encode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from models.partition import Partition
    from models.replica import Replica, Segment

_INDEX_BYTES = 512
"""Brokers preallocate 10 MiB of zeros; less is as good for a reader that must not mind them."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One replica of one partition, and what happened to its files.

    ``high_watermark`` is that of the checkpoint, which lags. ``torn`` is a batch of which only this share was
    written yet. ``leftovers`` are suffixes of files that the cleaner left behind. ``side_files``:
    those that say nothing of the records are there too.
    """

    partition: Partition
    replica: Replica
    high_watermark: int
    torn: Batch | None = None
    torn_share: float = 0.0
    zeros: int = 0
    leftovers: frozenset[str] = frozenset()
    side_files: bool = False

    @property
    def folder(self) -> str:
        """The partition's folder name."""
        return f"{self.partition.topic}-{self.partition.number}"


def write_broker(log_dir: Path, copies: Iterable[Copy], encoded: dict[Batch, bytes], *, bare: bool) -> None:
    """Write one broker's log directory; ``bare``: the partition folders alone.

    ``encoded`` keeps the bytes of batches that several replicas share.
    """
    log_dir.mkdir(parents=True)
    copies = list(copies)
    for copy in copies:
        folder = log_dir / copy.folder
        folder.mkdir()
        _write_partition(folder, copy, encoded)
    if bare:
        return
    starts = {c.folder: c.replica.log_start for c in copies if c.replica.log_start > c.replica.segments[0].base_offset}
    cleaned = {c.folder: c.replica.cleaned_to for c in copies if c.replica.cleaned_to is not None}
    for name, offsets in (
        ("replication-offset-checkpoint", {c.folder: c.high_watermark for c in copies}),
        ("recovery-point-offset-checkpoint", {c.folder: c.replica.segments[-1].base_offset for c in copies}),
        ("log-start-offset-checkpoint", starts),
        ("cleaner-offset-checkpoint", cleaned),
    ):
        lines = [f"{folder.rsplit('-', 1)[0]} {folder.rsplit('-', 1)[1]} {at}\n" for folder, at in offsets.items()]
        (log_dir / name).write_text(f"0\n{len(lines)}\n{''.join(lines)}")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=quality\n")


def _write_partition(folder: Path, copy: Copy, encoded: dict[Batch, bytes]) -> None:
    replica = copy.replica
    for segment in replica.segments:
        _write_segment(folder, segment, encoded, "")
    name = folder / f"{replica.segments[-1].base_offset:020d}"
    with name.with_suffix(".log").open("ab") as log:
        log.write(_torn(copy.torn, copy.torn_share) if copy.torn else bytes(copy.zeros))
    if copy.side_files:
        for suffix in (".index", ".timeindex"):
            name.with_suffix(suffix).write_bytes(bytes(_INDEX_BYTES))
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    epochs = "".join(f"{epoch} {start}\n" for epoch, start in sorted(replica.epochs.items()))
    (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(replica.epochs)}\n{epochs}")
    for at in replica.snapshots:
        (folder / f"{at:020d}.snapshot").write_bytes(encode_producer_snapshot(replica.producer_entries(at)))
    for suffix in copy.leftovers:
        # A pass that was not finished has left its new segments, or one that was has left the old ones.
        of = replica.replaced if suffix == ".deleted" else replica.segments[:-1]
        for segment in of[:2]:
            _write_segment(folder, segment, encoded, suffix)


def _torn(batch: Batch, share: float) -> bytes:
    whole = encode(batch)
    return whole[: max(1, int(share * len(whole)))]


def _write_segment(folder: Path, segment: Segment, encoded: dict[Batch, bytes], suffix: str) -> None:
    for batch in segment.batches:
        if batch not in encoded:
            encoded[batch] = encode(batch)
    name = f"{folder}/{segment.base_offset:020d}"
    with open(f"{name}.log{suffix}", "wb") as log:  # noqa: PTH123  many small files: a Path each costs as much again
        log.write(b"".join([encoded[batch] for batch in segment.batches]))
    if segment.aborted:
        with open(f"{name}.txnindex{suffix}", "wb") as index:  # noqa: PTH123
            index.write(encode_txnindex(segment.aborted))
