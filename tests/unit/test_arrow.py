"""Arrow tables of segment files: every value as the reference reads it, and nothing done for columns not asked for."""

import io
import random
from typing import Any

import pyarrow as pa
import pytest
from sample_logs import SOURCE, old_entry, random_log, read_by_reference

from harness.broker_files.segments import arrow, blocks
from harness.broker_files.segments.arrow import SCHEMAS, read_table
from harness.broker_files.segments.batches import Batch, CorruptLogError, Record
from harness.broker_files.segments.encode import encode_batch


def rows(data: bytes, table: arrow.Table, columns: list[str] | None = None, **options: Any) -> list[dict[str, Any]]:
    batches = list(read_table(io.BytesIO(data), table, columns, source=SOURCE, **options))
    for batch in batches:
        batch.validate(full=True)
        assert columns is not None or batch.schema == SCHEMAS[table]
    return [row for batch in batches for row in batch.to_pylist()]


NAMES = {"batch_offset": "base_offset", "transactional": "is_transactional", "control": "is_control"}
"""Columns that have another name than the field of a batch."""
OF_RECORDS = ("offset", "timestamp_ms", "key", "value", "attributes")


def batch_row(batch: Batch, marker: str | None) -> dict[str, Any]:
    names = [name for name in SCHEMAS["batches"].names if name not in {"magic", "marker", "base_timestamp_ms"}]
    base_timestamp_ms = batch.timestamp_base_ms if batch.delete_horizon_ms is None else None
    fields = {name: getattr(batch, NAMES.get(name, name)) for name in names}
    return {"magic": 2, **fields, "marker": marker, "base_timestamp_ms": base_timestamp_ms}


def record_row(record: Record, batch: Batch) -> dict[str, Any]:
    names = ("batch_offset", "leader_epoch", "producer_id", "producer_epoch", "transactional")
    return {
        **{name: getattr(record, name) for name in OF_RECORDS},
        **{name: getattr(batch, NAMES.get(name, name)) for name in names},
        "headers": [{"name": name, "value": value} for name, value in record.headers],
        "tombstone": record.value is None,
    }


@pytest.mark.parametrize("seed", range(10))
def test_tables_are_what_the_reference_reads(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_ROWS", 100)
    data = b"".join(random_log(random.Random(seed), 40))  # noqa: S311
    expected = read_by_reference(data)
    words = {None: None, "commit": "commit", "abort": "abort"}
    assert rows(data, "batches", block_bytes=5000) == [
        batch_row(batch, words.get(outcome.type if outcome else None, "other")) for batch, outcome in expected.batches
    ]
    of = [batch for batch, _ in expected.batches if not batch.is_control for _ in range(batch.record_count)]
    wanted = [record_row(record, batch) for record, batch in zip(expected.records, of, strict=True)]
    assert rows(data, "records", block_bytes=5000) == wanted
    some = ["value", "offset"]
    assert rows(data, "records", some) == [{name: row[name] for name in some} for row in wanted]
    assert sum(batch.num_rows for batch in read_table(io.BytesIO(data), "records", [], source=SOURCE)) == len(wanted)


def test_a_tombstone_is_a_null_value_whatever_its_attributes() -> None:
    values = [(None, 0), (b"v", 0xFF), (None, 0xFF), (b"v", 0)]
    records = [Record(n, 0, b"k", value, attributes=attributes) for n, (value, attributes) in enumerate(values)]
    read = [row["tombstone"] for row in rows(encode_batch(base_offset=0, records=records), "records", ["tombstone"])]
    assert read == [record.is_tombstone for record in records] == [True, False, True, False]


def test_old_entries_are_batches_without_fields_and_no_records(caplog: pytest.LogCaptureFixture) -> None:
    new = encode_batch(base_offset=3, records=[Record(3, 0, b"k", b"v")])
    data = old_entry(0, 0) + old_entry(2, 1) + new
    new_row, *old_rows = rows(data, "batches")
    assert new_row["magic"] == 2
    filled = [{name: value for name, value in row.items() if value is not None and name != "crc"} for row in old_rows]
    assert filled == [
        {"magic": 0, "position": 0, "size_bytes": 28, "last_offset": 0},
        {"magic": 1, "position": 28, "size_bytes": 36, "last_offset": 2},
    ]
    assert [row["offset"] for row in rows(data, "records")] == [3]
    assert f"{SOURCE}: 2 entries of magic 0 or 1 are not read" in caplog.text


def test_header_names_that_are_not_utf_8_keep_their_bytes() -> None:
    batch = encode_batch(base_offset=0, records=[Record(0, 0, b"k", b"v", (("ab", b"1"), ("é", None)))])
    (at,) = (n for n in range(len(batch)) if batch[n : n + 2] == b"ab")
    data = batch[:at] + b"\xff" + batch[at + 1 :]
    (row,) = rows(data, "records", ["headers"], verify_crc=False)
    assert row == {"headers": [{"name": "\\xffb", "value": b"1"}, {"name": "é", "value": None}]}


def test_only_records_are_unpacked_and_what_is_before_a_bad_place_is_given() -> None:
    data = encode_batch(base_offset=0, records=[Record(0, 0, b"k", b"v")], codec="zstd")
    broken = data[:61] + bytes(len(data) - 61)
    assert len(rows(broken, "batches", verify_crc=False)) == 1
    with pytest.raises(CorruptLogError, match="at byte 0: zstd does not unpack"):
        rows(broken, "records", ["offset"], verify_crc=False)
    good = encode_batch(base_offset=0, records=[Record(0, 0, b"k", b"v")])
    bad = good[:20] + b"?" + good[21:]
    got: list[pa.RecordBatch] = []
    with pytest.raises(CorruptLogError, match=f"{SOURCE} at byte {len(good)}: CRC"):
        got.extend(read_table(io.BytesIO(good + bad), "records", ["offset"], source=SOURCE))
    assert [batch.to_pylist() for batch in got] == [[{"offset": 0}]]
