"""The work of a replica's cleaner by the files of its disk, and partitions that are no longer cleaned."""

import os
from pathlib import Path
from typing import Any

import pytest
from copied import copy, segment_name, write_copies
from literal import TOPIC, put
from metadata_logs import Written, config, topic, write_metadata_log

from harness.audit.cleaning import ACTIVE, STABLE, YOUNG, Cleaning, TimedSegment, cleaning, problem_of, uncleaned_notes
from harness.audit.removal_settings import RemovalSettings
from harness.broker_files.copies.copies import find_copies

HOUR_MS = 3_600_000
SEGMENTS = [TimedSegment(100 * n, 1000, HOUR_MS * (n + 1)) for n in range(5)]
"""Each has 100 offsets, 1,000 bytes and an hour; the last is active."""


def work(checkpoint: int | None, stable: int = 450, log_start: int = 0, **settings: Any) -> Cleaning:
    names = dict.fromkeys(("delete_retention_ms", "min_compaction_lag_ms", "min_cleanable_dirty_ratio"))
    return cleaning(SEGMENTS, checkpoint, log_start, stable, RemovalSettings(**{**names, **settings}))


@pytest.mark.parametrize(("result", "dirty", "end", "held_by", "dirty_bytes"), [
    (work(None), 0, 400, ACTIVE, 4000),
    (work(200), 200, 400, ACTIVE, 2000),
    (work(400), 400, 400, ACTIVE, 0),
    (work(None, log_start=100), 100, 400, ACTIVE, 3000),
    (work(50, log_start=100), 100, 400, ACTIVE, 3000),
    # A pass cleans whole segments: the one that has the last stable offset is left out.
    (work(100, stable=250), 100, 250, STABLE, 1000),
    (work(100, min_compaction_lag_ms=2 * HOUR_MS), 100, 300, YOUNG, 2000),
])  # fmt: skip
def test_what_a_pass_may_clean(result: Cleaning, dirty: int, end: int, held_by: str, dirty_bytes: int) -> None:
    assert (result.dirty_offset, result.end, result.held_by, result.dirty_bytes) == (dirty, end, held_by, dirty_bytes)


@pytest.mark.parametrize(("result", "due_hours"), [
    (work(100, min_cleanable_dirty_ratio=0.5), 4),  # 2 of 3 segments, once the third has rolled
    (work(100, min_cleanable_dirty_ratio=0.7), 5),
    (work(100, min_cleanable_dirty_ratio=0.75), None),  # the ratio must be above
    (work(100), None),
    (work(None), 2),  # nothing is clean: any ratio is exceeded
    (work(100, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=2 * HOUR_MS), 4),
    (work(100, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=2**63 - 1), None),
    (work(400, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=0), None),
])  # fmt: skip
def test_when_a_pass_is_due(result: Cleaning, due_hours: int | None) -> None:
    assert result.due_ms == (None if due_hours is None else due_hours * HOUR_MS)


@pytest.mark.parametrize(("result", "words"), [
    (work(100, min_cleanable_dirty_ratio=0.4), ["offset is 100", "3,000 bytes", "2 h before the last append"]),
    (work(100, stable=100), ["dirty offset is 100", "open from offset 100 on", "at least 2 h"]),
    (work(100, min_cleanable_dirty_ratio=0.7), None),  # for one hour
    (work(100), None),
    (work(400), None),
])  # fmt: skip
def test_a_partition_is_reported_only_when_its_pass_is_long_overdue(result: Cleaning, words: list[str] | None) -> None:
    text = problem_of(result)
    assert (text is None) if words is None else all(word in str(text) for word in words), text


def notes(top: Path, *settings: Written, checkpoint: str | None, hours: int = 1, stable: int = 41) -> list[str]:
    log = tuple(put(10 * n, f"k{n}", at_ms=HOUR_MS * (n + 1)) for n in range(5))
    folders = write_copies(top, copy(1, *log, rolled_at=(0, 10, 20, 30, 40)))
    for number in range(5):
        modified_s = 1_700_000_000 + 3600 * hours * number
        os.utime(top / "1" / f"{TOPIC}-0" / segment_name(10 * number), (modified_s, modified_s))
    if checkpoint is not None:
        (top / "1" / "cleaner-offset-checkpoint").write_text(checkpoint)
    if settings:
        write_metadata_log(top / "1", [topic(TOPIC), *settings])
    copies = find_copies(folders, [TOPIC], "run")
    return list(uncleaned_notes(copies, [{"broker": 1, "topic": TOPIC, "partition": 0, "stable_end": stable}]))


COMPACT, RATIO = config(TOPIC, "compact"), config(TOPIC, "0.3", "min.cleanable.dirty.ratio")
NEVER, AT_10 = "0\n0\n", f"0\n1\n{TOPIC} 0 10\n"


def test_a_copy_with_its_settings_shows_a_partition_that_is_not_cleaned(tmp_path: Path) -> None:
    (note,) = notes(tmp_path / "a", COMPACT, RATIO, checkpoint=AT_10)
    assert note.startswith("broker 1 no longer cleans t-0: its dirty offset is 10, ")
    assert "log-cleaner.log" in note
    (held,) = notes(tmp_path / "b", COMPACT, checkpoint=AT_10, stable=10)
    assert "a transaction that is open from offset 10 on holds the cleaner there" in held
    assert len(notes(tmp_path / "c", COMPACT, checkpoint=NEVER)) == 1


@pytest.mark.parametrize(("settings", "checkpoint", "hours"), [
    ((COMPACT, RATIO), AT_10, 0),  # the copy has not kept the times of files
    ((COMPACT, RATIO), None, 1),  # a partition's folder alone: nothing is known
    ((COMPACT,), AT_10, 1),  # the broker's ratio is unknown, and three quarters are not beyond every ratio
    ((RATIO,), AT_10, 1),  # no longer compacted
    ((COMPACT, config(TOPIC, "1", "min.cleanable.dirty.ratio")), NEVER, 1),  # paused, as by a guard
    ((), AT_10, 1),
    ((), NEVER, 1),  # nothing shows that the topic is compacted
])  # fmt: skip
def test_no_partition_is_reported_without_proof(
    tmp_path: Path, settings: tuple[Written, ...], checkpoint: str | None, hours: int
) -> None:
    assert notes(tmp_path, *settings, checkpoint=checkpoint, hours=hours) == []
