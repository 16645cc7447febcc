"""The end of a segment, by its headers, for any bytes at the end of the file."""

from pathlib import Path

import pytest
from copied import segment_name
from sample_logs import old_entry

from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.folder import end_of_segment

BASE = 5


def batch(offset: int, last_offset: int) -> bytes:
    return encode_batch(base_offset=offset, records=[Record(offset, 0, b"k", b"v")], last_offset=last_offset)


LOG = batch(BASE, 6) + batch(10, 12)


def end_of(tmp_path: Path, data: bytes) -> int:
    path = tmp_path / segment_name(BASE)
    path.write_bytes(data)
    return end_of_segment(path)


def test_offsets_that_the_cleaner_removed_at_the_end_count(tmp_path: Path) -> None:
    assert end_of(tmp_path, encode_batch(base_offset=BASE, last_offset=20)) == 21


@pytest.mark.parametrize("zeros", [0, 1, 16, 17, 60, 61, 62, 4096])
def test_a_preallocated_file_ends_with_its_batches(zeros: int, tmp_path: Path) -> None:
    assert end_of(tmp_path, LOG + bytes(zeros)) == 13
    assert end_of(tmp_path, bytes(zeros)) == BASE


def test_a_batch_that_is_cut_does_not_count(tmp_path: Path) -> None:
    first = len(batch(BASE, 6))
    for size in range(len(LOG)):
        assert end_of(tmp_path, LOG[:size]) == (7 if size >= first else BASE)


def test_a_swap_file_is_named_like_its_segment(tmp_path: Path) -> None:
    path = tmp_path / segment_name(BASE, "log.swap")
    path.write_bytes(b"")
    assert end_of_segment(path) == BASE


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("value", [b"", b"v" * 200])
def test_old_entries_count(magic: int, value: bytes, tmp_path: Path) -> None:
    entries = b"".join(old_entry(offset, magic, value=value) for offset in (5, 6, 9))
    assert end_of(tmp_path, entries) == 10
    assert end_of(tmp_path, entries + batch(11, 11)) == 12


def test_damage_ends_it(tmp_path: Path) -> None:
    first = len(batch(BASE, 6))
    for at, value in ((16, b"\x07"), (8, b"\xff\xff\xff\xff")):  # another magic, a negative size
        data = LOG[: first + at] + value + LOG[first + at + len(value) :]
        assert end_of(tmp_path, data) == 7
