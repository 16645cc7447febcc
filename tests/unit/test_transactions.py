"""Which transaction protocol a log shows."""

import pytest
from stored_markers import encode_marker

from harness.broker_files.segments.batches import Record, iter_batches
from harness.broker_files.segments.encode import encode_batch
from harness.run_folder.manifest import transaction_version


def data(offset: int, producer_id: int, epoch: int) -> bytes:
    return encode_batch(
        base_offset=offset, records=[Record(offset, 0, b"k", b"v")], producer_id=producer_id, producer_epoch=epoch,
        base_sequence=0, is_transactional=True,
    )  # fmt: skip


def marker(offset: int, producer_id: int, epoch: int) -> bytes:
    return encode_marker(base_offset=offset, producer_id=producer_id, producer_epoch=epoch, commit=True, timestamp_ms=0)


@pytest.mark.parametrize(
    ("log", "version"),
    [
        ([data(0, 5, 0), marker(1, 5, 0), data(2, 5, 0), marker(3, 5, 0)], 1),
        ([data(0, 5, 0), marker(1, 5, 1), data(2, 5, 1), marker(3, 5, 2)], 2),
        ([data(0, 5, 0), data(1, 6, 3), marker(2, 5, 1), marker(3, 6, 4)], 2),
        # The coordinator aborted one itself; the other shows what the protocol is.
        ([data(0, 5, 0), marker(1, 5, 1), data(2, 6, 0), marker(3, 6, 0)], 1),
        ([data(0, 5, 0)], None),
        ([marker(0, 5, 1)], None),
        ([], None),
    ],
)
def test_what_markers_show(log: list[bytes], version: int | None) -> None:
    assert transaction_version([iter_batches(b"".join(log), source="a log")]) == version


def test_segments_do_not_mix() -> None:
    segments = [[data(0, 5, 3)], [marker(0, 5, 3), data(1, 5, 4), marker(2, 5, 5)]]
    assert transaction_version(iter_batches(b"".join(log), source="a log") for log in segments) == 2
