"""Which files of a partition's folder are its log at every step of a cleaner, and the end of a segment of any bytes."""

from pathlib import Path

import pytest
from copied import segment_name as name
from sample_logs import old_entry
from sample_logs import small_batch as batch

from harness.broker_files.segments import folder
from harness.broker_files.segments.batches import CorruptLogError
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.folder import Live, Segment, choose_segments, live_segments, next_offset


def choose(*names: str, **ends: int) -> Live:
    """Choose among names; ``ends`` are the next offsets of ``.swap`` files by base offset, as ``at_7=9``."""
    by_name = {name(int(key.removeprefix("at_")), "log.swap"): end for key, end in ends.items()}
    return choose_segments(names, by_name.get)


def bases(live: Live) -> list[int]:
    return [segment.base_offset for segment in live.segments]


def test_a_folder_at_rest() -> None:
    others = [name(10, kind) for kind in ("index", "timeindex", "snapshot")]
    rest = ["leader-epoch-checkpoint", "partition.metadata", "0-1-v1.log", name(10, "log.copy"), "10.log"]
    live = choose(name(10), name(0), name(10, "txnindex"), *others, *rest)
    assert live == Live([Segment(0, name(0), None), Segment(10, name(10), name(10, "txnindex"))], {})


def test_what_is_deleted_or_not_yet_whole_is_left_out() -> None:
    deleted, cleaned = name(0, "log.deleted"), name(10, "log.cleaned")
    live = choose(deleted, name(0, "txnindex.deleted"), name(10), cleaned, name(10, "txnindex.cleaned"))
    assert live.segments == [Segment(10, name(10), None)]
    assert live.left_out == {
        deleted: "marked for deletion",
        cleaned: "not yet complete when its writer, a cleaner or a split, was interrupted",
    }


def test_a_swap_file_replaces_what_it_covers() -> None:
    swap, index = name(10, "log.swap"), name(10, "txnindex.swap")
    names = [name(base) for base in (0, 10, 20, 30)]
    live = choose(*names, name(10, "txnindex"), name(20, "txnindex"), swap, index, at_10=30)
    assert live.segments == [Segment(0, name(0), None), Segment(10, swap, index), Segment(30, name(30), None)]
    replaced = "replaced by a file of a cleaner or a split"
    assert live.left_out == {name(10): replaced, name(20): replaced}


def test_swap_files_cover_from_the_first_to_the_end_of_the_last_or_without_batches_their_namesake() -> None:
    names = [name(base) for base in (0, 10, 20, 30, 40)]
    live = choose(*names, name(10, "log.swap"), name(30, "log.swap"), at_10=15, at_30=35)
    assert [(s.base_offset, s.log) for s in live.segments] == [
        (0, name(0)), (10, name(10, "log.swap")), (30, name(30, "log.swap")), (40, name(40)),
    ]  # fmt: skip
    live = choose(name(0), name(10), name(20), name(10, "log.swap"))
    assert [segment.log for segment in live.segments] == [name(0), name(10, "log.swap"), name(20)]


def test_swap_files_of_an_interrupted_split_are_left_out() -> None:
    swap = name(15, "log.swap")
    live = choose(name(0), name(10), name(10, "index.cleaned"), swap, at_15=20)
    assert bases(live) == [0, 10]
    assert live.left_out == {swap: "part of a split that was interrupted"}
    # A segment before the file that is still being written stays.
    assert bases(choose(name(0), name(5, "log.swap"), name(10, "log.cleaned"), at_5=9)) == [0, 5]


def test_of_files(tmp_path: Path) -> None:
    for base in (0, 10, 20):
        (tmp_path / name(base)).write_bytes(batch(base))
    (tmp_path / name(30, "log.deleted")).mkdir()
    (tmp_path / name(40)).symlink_to("missing")
    swap = tmp_path / name(0, "log.swap")
    swap.write_bytes(b"".join(encode_batch(base_offset=base, last_offset=base + 4) for base in (3, 11)))
    assert next_offset(swap) == 16
    assert [segment.log for segment in live_segments(tmp_path).segments] == [swap.name, name(20), name(40)]
    swap.write_bytes(swap.read_bytes()[:-1])
    with pytest.raises(CorruptLogError, match=r"log\.swap at byte 61: batch is cut"):
        live_segments(tmp_path)
    swap.write_bytes(b"")
    assert next_offset(swap) is None


BASE = 5


LOG = batch(BASE, last_offset=6) + batch(10, last_offset=12)


def end_of(tmp_path: Path, data: bytes) -> int:
    path = tmp_path / name(BASE)
    path.write_bytes(data)
    return folder.end_of_segment(path)


def test_offsets_that_the_cleaner_removed_at_the_end_count_and_a_batch_that_is_cut_does_not(tmp_path: Path) -> None:
    assert end_of(tmp_path, encode_batch(base_offset=BASE, last_offset=20)) == 21
    first = len(batch(BASE, last_offset=6))
    for size in range(len(LOG)):
        assert end_of(tmp_path, LOG[:size]) == (7 if size >= first else BASE)
    swap = tmp_path / name(BASE, "log.swap")
    swap.write_bytes(b"")
    assert folder.end_of_segment(swap) == BASE, "it is named like its segment"


@pytest.mark.parametrize("zeros", [0, 1, 16, 17, 60, 61, 62, 4096])
def test_a_preallocated_file_ends_with_its_batches(zeros: int, tmp_path: Path) -> None:
    assert end_of(tmp_path, LOG + bytes(zeros)) == 13
    assert end_of(tmp_path, bytes(zeros)) == BASE


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("value", [b"", b"v" * 200])
def test_old_entries_count(magic: int, value: bytes, tmp_path: Path) -> None:
    entries = b"".join(old_entry(offset, magic, value=value) for offset in (5, 6, 9))
    assert end_of(tmp_path, entries) == 10
    assert end_of(tmp_path, entries + batch(11)) == 12


def test_damage_ends_it(tmp_path: Path) -> None:
    first = len(batch(BASE, last_offset=6))
    for at, value in ((16, b"\x07"), (8, b"\xff\xff\xff\xff")):  # another magic, a negative size
        data = LOG[: first + at] + value + LOG[first + at + len(value) :]
        assert end_of(tmp_path, data) == 7
