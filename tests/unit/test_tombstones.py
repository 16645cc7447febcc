"""What deletes a key: a null value, or KIP-87's flag, in both ways to judge an audit."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from copied import copy, segment_name, write_copies
from literal import put

from checkers.evidence.tables import load_copies
from checkers.finding import UNEXPLAINED_DIVERGENCE
from checkers.reduction.reduce import reduce_copies
from harness.audit.judge import assemble, judge_reduced, judge_whole
from harness.broker_files.copies.copies import find_copies
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.blocks import iter_blocks, unpack
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.tombstones import BY_FLAG, BY_NULL, TOMBSTONES, are_tombstones, is_tombstone
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from harness.broker_files.copies.copies import Copies
    from harness.broker_files.segments.tombstones import Tombstones

FLAG = 0x20
END = put(9, "end")
Places = list[tuple[str, int, int]]


def record(offset: int, key: str, value: bytes | None, attributes: int = 0) -> Record:
    return Record(offset, 1000 + offset, key.encode(), value, (), attributes)


EVERY_KIND = (
    record(0, "value", b"v"),
    record(1, "no value", None),
    record(2, "flagged value", b"v", FLAG),
    record(3, "flagged", None, FLAG),
    record(4, "other bits", b"v", 0xFF & ~FLAG),
)


@pytest.mark.parametrize(("tombstones", "deleting"), [(BY_NULL, [1, 3]), (BY_FLAG, [2, 3])])
def test_both_readers_agree_on_what_deletes(tombstones: Tombstones, deleting: list[int]) -> None:
    assert [one.offset for one in EVERY_KIND if is_tombstone(one, tombstones)] == deleting
    (block,) = iter_blocks(io.BytesIO(encode_batch(base_offset=0, records=EVERY_KIND)), source="")
    (unpacked,) = unpack(block)
    assert unpacked.offset[are_tombstones(unpacked, tombstones)].tolist() == deleting


REPLICAS: dict[str, dict[int, Record | None]] = {
    # Broker 2 never saw the delete, which carries a value.
    "missed": {1: record(1, "K", b"why", FLAG), 2: record(0, "K", b"v")},
    # Broker 2 never saw a null value: a delete, or a value like others.
    "null": {1: record(1, "K", None), 2: record(0, "K", b"v")},
    # Broker 1 has removed the delete, and what it deleted; broker 2 has yet to.
    "removed": {1: None, 2: record(1, "K", b"why", FLAG)},
}
"""What each broker has left of a key."""


FOUND: dict[Tombstones, dict[str, Places]] = {
    BY_NULL: {
        "missed": [(UNEXPLAINED_DIVERGENCE, 2, 1)],
        "null": [(Anomaly.TOMBSTONE_DIVERGENCE, 2, 0)],
        "removed": [(Anomaly.TOMBSTONE_DIVERGENCE, 2, 1)],
    },
    BY_FLAG: {
        "missed": [(Anomaly.TOMBSTONE_DIVERGENCE, 2, 0)],
        "null": [(UNEXPLAINED_DIVERGENCE, 2, 1)],
        "removed": [],
    },
}
"""Anomaly, broker and offset. By null values, the flagged record is a value that another replica lacks."""


def copies(top: Path, tombstones: Tombstones) -> list[Copies]:
    found = []
    for name, replicas in REPLICAS.items():
        brokers = write_copies(top / name, *(copy(broker, END, epochs={0: 0}) for broker in replicas))
        for broker, left in replicas.items():
            log = top / name / str(broker) / "t-0" / segment_name(0)
            before = b"" if left is None else encode_batch(base_offset=left.offset, records=[left])
            log.write_bytes(before + log.read_bytes())
        found.append(find_copies(brokers, ["t"], name, tombstones))
    return found


@pytest.fixture(scope="module", params=TOMBSTONES)
def judged(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tombstones, dict[str, dict[str, Places]]]:
    """Return what deletes a key, and of each way and case what was found."""
    found = copies(tmp_path_factory.mktemp("copies"), request.param)
    ways: dict[str, dict[str, Any]] = {
        "whole": judge_whole(load_copies(spark, found)),
        "reduced": judge_reduced(reduce_copies(spark, found, tasks=2)),
    }
    return request.param, {
        way: {one.run_id: places(assemble(one, rows, timings_s={})) for one in found} for way, rows in ways.items()
    }


def places(verdict: dict[str, Any]) -> Places:
    return [(one["anomaly"], one["broker"], one["offset"]) for one in verdict["findings"]]


@pytest.mark.parametrize("way", ["whole", "reduced"])
def test_an_audit_goes_by_what_deletes(judged: tuple[Tombstones, dict[str, dict[str, Places]]], way: str) -> None:
    tombstones, actual = judged
    assert actual[way] == FOUND[tombstones]
