"""Which transaction protocol a log shows."""

import pytest
from literal import Entry, Txn, commit, encode, put

from harness.broker_files.segments.batches import iter_batches
from harness.run_folder.manifest import transaction_version


def data(offset: int, producer_id: int, epoch: int) -> Entry:
    return put(offset, "k", Txn(producer_id, "id/1", epoch))


def marker(offset: int, producer_id: int, epoch: int) -> Entry:
    return commit(offset, Txn(producer_id, "id/1", epoch))


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
def test_what_markers_show(log: list[Entry], version: int | None) -> None:
    assert transaction_version([iter_batches(encode(log), source="a log")]) == version


def test_segments_do_not_mix() -> None:
    segments = [[data(0, 5, 3)], [marker(0, 5, 3), data(1, 5, 4), marker(2, 5, 5)]]
    assert transaction_version(iter_batches(encode(log), source="a log") for log in segments) == 2
