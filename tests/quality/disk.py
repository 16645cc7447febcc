"""A case as folders, the way brokers leave them: segments, side files and checkpoints."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from partition import Partition

from harness.models.cluster.broker import write_checkpoint, write_replica, write_segment
from harness.models.log.batch import ModelBatch, encoded
from harness.models.log.replica import Replica

_INDEX_BYTES = 512
"""Brokers preallocate 10 MiB of zeros; less is as good for a reader that must not mind them."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One replica of one partition, and what happened to its files.

    ``high_watermark``: of the checkpoint, which lags. ``torn``: a batch of which only a share is written.
    ``leftovers``: suffixes of a cleaner's files. ``side_files``: those that say nothing of the records are there, too.
    """

    partition: Partition
    replica: Replica
    high_watermark: int
    torn: ModelBatch | None = None
    torn_share: float = 0.0
    zeros: int = 0
    leftovers: frozenset[str] = frozenset()
    side_files: bool = False

    @property
    def place(self) -> tuple[str, int]:
        return self.partition.topic, self.partition.number

    @property
    def folder(self) -> str:
        return f"{self.partition.topic}-{self.partition.number}"


def write_broker(log_dir: Path, copies: Iterable[Copy], *, bare: bool) -> None:
    """Write one broker's log directory; ``bare``: the partition folders alone."""
    log_dir.mkdir(parents=True)
    copies = list(copies)
    for copy in copies:
        folder = log_dir / copy.folder
        folder.mkdir()
        _write_partition(folder, copy)
    if bare:
        return
    starts = {c.place: c.replica.log_start for c in copies if c.replica.log_start > c.replica.segments[0].base_offset}
    cleaned = {c.place: c.replica.cleaned_to for c in copies if c.replica.cleaned_to is not None}
    for name, offsets in (
        ("replication-offset-checkpoint", {c.place: c.high_watermark for c in copies}),
        ("recovery-point-offset-checkpoint", {c.place: c.replica.segments[-1].base_offset for c in copies}),
        ("log-start-offset-checkpoint", starts),
        ("cleaner-offset-checkpoint", cleaned),
    ):
        write_checkpoint(log_dir / name, offsets)
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=quality\n")


def _write_partition(folder: Path, copy: Copy) -> None:
    replica = copy.replica
    write_replica(folder, replica)
    name = folder / f"{replica.segments[-1].base_offset:020d}"
    with name.with_suffix(".log").open("ab") as log:
        whole = encoded(copy.torn) if copy.torn else b""
        log.write(whole[: max(1, int(copy.torn_share * len(whole)))] or bytes(copy.zeros))
    if copy.side_files:
        for suffix in (".index", ".timeindex"):
            name.with_suffix(suffix).write_bytes(bytes(_INDEX_BYTES))
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    for suffix in copy.leftovers:
        # A pass that was not finished has left its new segments, or one that was has left the old ones.
        of = replica.replaced if suffix == ".deleted" else replica.segments[:-1]
        for segment in of[:2]:
            write_segment(folder, segment, suffix)
