"""Spans in chunks of any size lead to the same result as all of them at once; and what makes spans inconsistent."""

from random import Random
from typing import Any

import numpy as np
import pytest

from checkers.reduction import packed_spans
from checkers.reduction.consistent_spans import SortedSpans
from checkers.reduction.packed_spans import ABORTS, COMMITS, DATA, INDEX, OPEN, SPAN

Row = tuple[int, int, int, int, int, int, int]
"""Broker, segment, kind, epoch, producer, at, since."""


COLUMNS = "broker", "segment", "kind", "epoch", "producer", "at", "since"


def spans(*rows: Row) -> Any:
    packed = np.zeros(len(rows), SPAN)
    for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        packed[name] = values
    return packed


def is_consistent(rows: Any) -> bool:
    ordered = SortedSpans.of(rows)
    return not ordered.contradicting.size and not ordered.has_open


def is_consistent_in_chunks(rows: Any, offsets: int) -> bool:
    """Examine each chunk by itself, and then together what matters beyond them."""
    kept = [rows[:0]]
    for chunk in np.unique(rows["at"] // offsets):
        ordered = SortedSpans.of(rows[rows["at"] // offsets == chunk])
        if ordered.contradicting.size:
            return False
        kept.append(ordered.beyond_chunk())
    return is_consistent(np.concatenate(kept))


def drawn(seed: int) -> Any:
    """Return spans of two brokers and three producers: transactions, cleaned here and there, and one damage or none."""
    random = Random(seed)  # noqa: S311
    rows: list[Row] = []
    opened: dict[int, int] = {}
    epochs = dict.fromkeys(range(3), 0)
    for at in range(40):
        producer = random.randrange(3)
        if producer in opened and random.random() < 0.5:
            first, is_abort = opened.pop(producer), random.random() < 0.4
            kind = ABORTS if is_abort else COMMITS
            is_cleaned = random.random() < 0.2
            for broker in (1, 2):
                if broker == 1 and is_cleaned:
                    rows[:] = [row for row in rows if not (row[0] == 1 and row[4] == producer and first <= row[5] < at)]
                else:
                    rows.append((broker, at // 16, kind, epochs[producer], producer, at, -1))
                if is_abort:
                    rows.append((broker, at // 16, INDEX, -1, producer, at, first))
            epochs[producer] += random.random() < 0.3
        else:
            opened.setdefault(producer, at)
            rows += [(broker, at // 16, DATA, epochs[producer], producer, at, -1) for broker in (1, 2)]
    for number, (producer, first) in enumerate(opened.items()):
        rows += [(broker, 3, COMMITS, epochs[producer], producer, 50 + number, -1) for broker in (1, 2)]
        if random.random() < 0.5:
            rows.append((1, 2, OPEN, -1, producer, random.randrange(first, 52), -1))
    if random.random() < 0.6:
        rows.pop(random.randrange(len(rows)))
    return spans(*rows)


@pytest.mark.parametrize("offsets", [1, 3, 16])
def test_chunks_lead_to_the_same_result(offsets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_spans, "CHUNK_OFFSETS", offsets)
    results = [(is_consistent(rows), is_consistent_in_chunks(rows, offsets)) for rows in map(drawn, range(60))]
    assert {together for together, _ in results} == {True, False}
    assert [seed for seed, (together, in_chunks) in enumerate(results) if together != in_chunks] == []


def test_what_matters_beyond_a_chunk_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_spans, "CHUNK_OFFSETS", 1000)
    rows = [(1, 0, DATA if at % 2 == 0 else COMMITS, 0, 7, at, -1) for at in range(1000)]
    kept = SortedSpans.of(spans(*rows)).beyond_chunk()
    assert kept["at"].tolist() == [0, 1, 999]


TOLD = (1, 0, DATA, 0, 7, 1, -1), (1, 0, COMMITS, 0, 7, 5, -1)


@pytest.mark.parametrize("more", [
    pytest.param([(2, 0, ABORTS, 0, 7, 3, -1)], id="another replica shows an earlier marker"),
    pytest.param([(2, 0, INDEX, -1, 7, 3, 1)], id="another replica's index has an earlier marker"),
    pytest.param([(1, 0, INDEX, -1, 7, 5, 1)], id="a committed transaction is in the index"),
    pytest.param([(1, 0, DATA, 1, 7, 2, -1)], id="a higher epoch before the marker"),
    pytest.param([(1, 0, OPEN, -1, 7, 6, -1)], id="a snapshot's open transaction does not continue"),
    pytest.param([(1, 0, DATA, 0, 7, 6, -1)], id="a transaction without a marker"),
    pytest.param([(1, 0, DATA, 0, 7, 6, -1), (1, 0, ABORTS, 0, 7, 8, -1)], id="an abort is not in the index"),
    pytest.param([(1, 0, INDEX, -1, 9, 8, 2), (2, 0, INDEX, -1, 9, 8, 4)], id="index entries differ"),
])  # fmt: skip
def test_contradictions(more: list[Row]) -> None:
    assert is_consistent(spans(*TOLD))
    assert not is_consistent(spans(*TOLD, *more))
