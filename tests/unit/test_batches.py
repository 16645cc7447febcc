"""Record batches: against bytes written by Kafka's own classes, by kafka-python, and cut or broken ones."""

import mmap
import random
import struct
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from sample_logs import old_entry, sealed
from stored_markers import encode_marker

from harness.broker_files.segments import batches as segment_batches
from harness.broker_files.segments import codecs
from harness.broker_files.segments.batches import Batch, CorruptLogError, Marker, OldEntry, Record, iter_batches, marker
from harness.broker_files.segments.encode import encode_batch

SOURCE = "t-0/00.log"
HEADER_BYTES = 61

# Written by MemoryRecords, MemoryRecordsBuilder and DefaultRecordBatch of Kafka 4.4.0.
KAFKA_DATA = {
    "none": """0000000000000028000000690000000302e4aaa3500010000000020000018bcfe568000000018bcfe56805
        0000000000000007000200000005000000034c000000046b312e76616c75652d76616c75652d76616c75652d76616c7565
        0402680278026e0110000a02046b3201000e00cf0f04010000""",
    "gzip": """00000000000000280000006e000000030230391a5f0011000000020000018bcfe568000000018bcfe56805
        0000000000000007000200000005000000031f8b08000000000000fff361606060c936d42b4bcc294dd5c520599832982a
        98f2180518b89858b28d1819f818cef3b3303230000063a25b5a38000000""",
    "snappy": """00000000000000280000007200000003025a3c90330012000000020000018bcfe568000000018bcfe56805
        00000000000000070002000000050000000382534e415050590000000001000000010000002d38344c000000046b312e76
        616c75652d420600600402680278026e0110000a02046b3201000e00cf0f04010000""",
    "lz4": """00000000000000280000006c00000003026902205f0013000000020000018bcfe568000000018bcfe56805
        00000000000000070002000000050000000304224d186040822c000000ed4c000000046b312e76616c75652d0600f00a04
        02680278026e0110000a02046b3201000e00cf0f0401000000000000""",
    "zstd": """00000000000000280000006b0000000302402e34110014000000020000018bcfe568000000018bcfe56805
        00000000000000070002000000050000000328b52ffd005874010074024c000000046b312e76616c75652d040268027802
        6e0110000a02046b3201000e00cf0f040100000100998b12010000""",
}
KAFKA_RECORDS = [
    Record(40, 1_700_000_000_000, b"k1", b"value-value-value-value", (("h", b"x"), ("n", None))),
    Record(41, 1_700_000_000_005, b"k2", None),
    Record(42, 1_699_999_999_000, None, b""),
]
KAFKA_ABORT = """000000000000002b0000004200000003024c13bec70030000000000000018bcfe56be80000018bcfe56be8
    00000000000000070002ffffffff000000012000000008000000000c00000000000900"""
KAFKA_COMMIT = """000000000000002c000000420000000302b82d688f0030000000000000018bcfe56be80000018bcfe56be8
    00000000000000070002ffffffff000000012000000008000000010c00000000000900"""
KAFKA_EMPTY = """0000000000000032000000310000000302bfabfeed001000000004ffffffffffffffff0000018bcfe56fd0
    000000000000000700020000000500000000"""
KAFKA_HORIZON = """000000000000003c0000004a0000000302c69ad03d0040000000050000018bd50bc4000000018bcfe573b9
    00000000000000070002000000080000000216008fc1b25202046b32010018008dc1b25206046b33027600"""
KAFKA_APPEND = """00000000000000460000003affffffff02152a64c500080000000000000000000000010000018bcfe58f0f
    ffffffffffffffffffffffffffff00000001100000000261026200"""


def only(data: bytes | str) -> Batch:
    raw = bytes.fromhex(data) if isinstance(data, str) else data
    (batch,) = iter_batches(raw, source=SOURCE)
    assert batch.size_bytes == len(raw)
    return batch


def records(batch: Batch) -> list[Record]:
    return list(segment_batches.iter_records(batch, source=SOURCE))


def walk(data: bytes, *, verify_crc: bool = True) -> tuple[list[Batch], CorruptLogError | None]:
    batches: list[Batch] = []
    try:
        batches.extend(iter_batches(data, source=SOURCE, verify_crc=verify_crc))
    except CorruptLogError as error:
        return batches, error  # extend() keeps the batches that it got before the generator raised.
    return batches, None


def error_in(data: bytes, *, after: int | None = None) -> CorruptLogError:
    batches, error = walk(data)
    assert error is not None
    assert after is None or len(batches) == after
    return error


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return sealed(data[:at] + new + data[at + len(new) :])


def with_payload(payload: bytes, *, codec: int = 0, count: int = 1) -> Batch:
    """Build a batch of ``count`` offsets from 10 whose payload is exactly these bytes."""
    header = encode_batch(base_offset=10, last_offset=10 + count - 1)
    header = patched(header, 21, struct.pack(">h", codec))
    return only(patched(header, 57, struct.pack(">i", count) + payload))


LOG = [
    encode_batch(base_offset=0, records=[Record(0, 5, b"a", b"1"), Record(1, 6, b"b", None)]),
    encode_batch(base_offset=2, records=[Record(2, 7, b"c", b"3" * 30)], codec="gzip"),
    encode_batch(base_offset=3, last_offset=9, producer_id=4, producer_epoch=0, is_transactional=True),
    encode_marker(base_offset=10, producer_id=4, producer_epoch=0, commit=True, timestamp_ms=9),
]
DATA = b"".join(LOG)


@pytest.mark.parametrize("codec", codecs.CODECS)
def test_batches_of_kafka(codec: str) -> None:
    batch = only(KAFKA_DATA[codec])
    assert (batch.codec, batch.base_offset, batch.last_offset, batch.record_count) == (codec, 40, 42, 3)
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (3, 7, 2, 5)
    assert (batch.is_transactional, batch.is_control, batch.is_empty) == (True, False, False)
    assert (batch.timestamp_base_ms, batch.max_timestamp_ms) == (1_700_000_000_000, 1_700_000_000_005)
    assert (batch.timestamp_type, batch.delete_horizon_ms) == ("create", None)
    assert records(batch) == KAFKA_RECORDS
    assert marker(batch, source=SOURCE) is None


def test_markers_and_an_empty_batch_of_kafka() -> None:
    abort, commit = only(KAFKA_ABORT), only(KAFKA_COMMIT)
    assert (abort.is_control, abort.is_transactional) == (True, True)
    assert [marker(batch, source=SOURCE) for batch in (abort, commit)] == [Marker("abort", 9), Marker("commit", 9)]
    batch = only(KAFKA_EMPTY)
    assert (batch.base_offset, batch.last_offset, batch.size_bytes, batch.is_empty) == (50, 54, HEADER_BYTES, True)
    assert (batch.timestamp_base_ms, batch.max_timestamp_ms, records(batch)) == (-1, 1_700_000_002_000, [])


def test_delete_horizon_of_kafka_replaces_the_base_timestamp_only_and_append_time_every_timestamp() -> None:
    batch = only(KAFKA_HORIZON)
    assert (batch.timestamp_base_ms, batch.delete_horizon_ms) == (1_700_086_400_000, 1_700_086_400_000)
    assert (batch.base_offset, batch.last_offset) == (60, 65)
    assert records(batch) == [Record(61, 1_700_000_003_000, b"k2", None), Record(63, 1_700_000_003_001, b"k3", b"v")]
    batch = only(KAFKA_APPEND)
    assert batch.timestamp_type == "append"
    assert records(batch) == [Record(70, 1_700_000_009_999, b"a", b"b")]


def test_encoder_writes_the_bytes_of_kafka() -> None:
    encode = partial(encode_batch, producer_id=7, producer_epoch=2, leader_epoch=3)
    data = encode(base_offset=40, records=KAFKA_RECORDS, base_sequence=5, is_transactional=True)
    assert data == bytes.fromhex(KAFKA_DATA["none"])
    decision = {"producer_id": 7, "producer_epoch": 2, "timestamp_ms": 1_700_000_001_000}
    epochs = {"coordinator_epoch": 9, "leader_epoch": 3}
    assert encode_marker(base_offset=43, commit=False, **decision, **epochs) == bytes.fromhex(KAFKA_ABORT)
    assert encode_marker(base_offset=44, commit=True, **decision, **epochs) == bytes.fromhex(KAFKA_COMMIT)
    empty: Any = {"max_timestamp_ms": 1_700_000_002_000, "base_sequence": 5, "is_transactional": True}
    assert encode(base_offset=50, last_offset=54, **empty) == bytes.fromhex(KAFKA_EMPTY)
    horizon: Any = {"delete_horizon_ms": 1_700_086_400_000, "base_sequence": 8}
    cleaned = encode(base_offset=60, last_offset=65, records=records(only(KAFKA_HORIZON)), **horizon)
    assert cleaned == bytes.fromhex(KAFKA_HORIZON)


@pytest.mark.parametrize("codec", codecs.CODECS)
def test_round_trip_over_many_blocks_with_gaps(codec: codecs.Codec) -> None:
    noise = random.Random(1).randbytes(150_000)  # noqa: S311
    written = [
        Record(101, 5, b"k", noise, (("h", b"1"), ("\u00e9", None), ("", b""))),
        Record(103, -7, None, b""),
        Record(2**31 + 50, 2**40, b"", b"\0" * 400_000),
        Record(2**31 + 60, 2**40, b"last", None),
    ]
    batch = only(encode_batch(base_offset=99, records=written, codec=codec, last_offset=99 + 2**31 - 1))
    assert batch.codec == codec
    assert records(batch) == written


@pytest.mark.parametrize("codec", [0, 1])
def test_agrees_with_kafka_python(codec: int) -> None:
    # It brings gzip alone: the other codecs are compared with Kafka's own bytes above.
    producer = {"is_transactional": 1, "producer_id": 12345, "producer_epoch": 3, "base_sequence": 77}
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=codec, batch_size=1 << 20, **producer)
    for offset in range(300):
        value = None if offset % 7 == 0 else b"v" * offset
        builder.append(offset, 1000 - offset, b"key-%d" % offset, value, [("h", b"%d" % offset)])
    raw = bytes(builder.build())
    batch = only(raw)
    theirs = list(DefaultRecordBatch(raw))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (12345, 3, 77)
    assert [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in records(batch)] == [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in theirs
    ]
    mine = DefaultRecordBatch(encode_batch(base_offset=0, records=records(batch), codec=batch.codec))
    assert mine.validate_crc()
    assert [(r.offset, r.key, r.value) for r in mine] == [(r.offset, r.key, r.value) for r in theirs]


def test_reads_any_buffer(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(DATA)
    expected = walk(DATA)[0]
    assert [batch.position for batch in expected] == [0, 78, 78 + len(LOG[1]), 78 + len(LOG[1]) + 61]
    with (tmp_path / "log").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        batches = list(iter_batches(mapped, source=SOURCE))
        assert batches == expected
        del batches  # a batch's payload is a view: the map cannot close while one is alive
    for buffer in (bytearray(DATA), memoryview(b"xx" + DATA)[2:]):
        assert list(iter_batches(buffer, source=SOURCE)) == expected
    assert walk(b"") == ([], None)


def test_cut_anywhere_loses_nothing_before_it() -> None:
    ends = [sum(map(len, LOG[: index + 1])) for index in range(len(LOG))]
    whole = walk(DATA)[0]
    for size in range(len(DATA)):
        batches, error = walk(DATA[:size])
        done = sum(end <= size for end in ends)
        start = ends[done - 1] if done else 0
        assert batches == whole[:done]
        if not (have := size - start):
            assert error is None
            continue
        assert error is not None
        assert (error.cut, error.position, error.source) == (True, start, SOURCE)
        expected = f"{have} bytes of a 61-byte header" if have < 12 else f"{have} of {len(LOG[done])} bytes"
        assert str(error) == f"{SOURCE} at byte {start}: batch is cut: {expected}"


def test_every_flipped_byte_is_seen_or_harmless() -> None:
    start = len(LOG[0])
    whole = walk(DATA)[0]
    for at in range(start, start + len(LOG[1])):
        broken = DATA[:at] + bytes([DATA[at] ^ 0xFF]) + DATA[at + 1 :]
        batches, error = walk(broken)
        assert batches[:1] == whole[:1]
        field = at - start
        if 12 <= field < 16:  # the leader epoch, outside the CRC: any value is legal
            assert error is None
        elif field < 8 and error is not None and error.position != start:
            # A higher base offset shows in the batch after it; a negative one at once.
            assert error.position == start + len(LOG[1])
            assert "base offset 3 follows offset" in error.reason
        else:
            assert error is not None
            assert error.position == start
        if field >= 16 and error is not None:
            assert not error.cut
            assert error.reason.startswith("magic 253" if field == 16 else "CRC is ")


def test_crc_message_and_opting_out() -> None:
    kafka = bytes.fromhex(KAFKA_DATA["none"])
    data = LOG[0] + kafka[:17] + b"\0\0\0\1" + kafka[21:]
    assert str(error_in(data, after=1)) == f"{SOURCE} at byte 78: CRC is e4aaa350, the header says 00000001"
    batches, error = walk(data, verify_crc=False)
    assert (len(batches), error) == (2, None)


@pytest.mark.parametrize(("at", "new", "reason"), [
    (23, struct.pack(">i", -1), "impossible last offset delta -1"),
    (57, struct.pack(">i", -1), "impossible record count -1 in 1 offsets"),
    (57, struct.pack(">i", 2), "impossible record count 2 in 1 offsets"),
    (21, struct.pack(">h", 5), "unknown codec 5"),
    (16, b"\3", "magic 3: only magic 0, 1 and 2 are known"),
    (0, struct.pack(">q", 1), "base offset 1 follows offset 1"),
    (0, struct.pack(">q", -3), "base offset -3 follows offset 1"),
])  # fmt: skip
def test_impossible_headers(at: int, new: bytes, reason: str) -> None:
    good = LOG[0]
    bad = patched(encode_batch(base_offset=2, records=[Record(2, 0, b"k", b"v")]), at, new)
    error = error_in(good + bad + good, after=1)
    assert (str(error), error.cut) == (f"{SOURCE} at byte 78: {reason}", False)


def test_entries_of_older_formats_are_skipped_and_a_batch_whose_magic_is_broken_is_none() -> None:
    old = [old_entry(3, 0), old_entry(9, 1, b"", b"")]
    new = encode_batch(base_offset=10, records=[Record(10, 0, b"k", b"v")])
    data = b"".join([*old, new])
    first, second, _ = segment_batches.iter_entries(data, source=SOURCE)
    assert (first, second) == (OldEntry(0, 28, 3, 0), OldEntry(28, 34, 9, 1))
    assert [batch.position for batch in iter_batches(data, source=SOURCE)] == [62]
    error = error_in(old[1] + old[0])
    assert (error.position, error.reason) == (34, "base offset 3 follows offset 9")
    error = error_in(old[0] + old[1][:14])
    assert (error.position, error.cut) == (28, True)
    error = error_in(old[1][:8] + struct.pack(">i", 21) + old[1][12:])
    assert (error.reason, error.cut) == ("impossible length 21", False)
    for magic in (b"\0", b"\1"):
        error = error_in(patched(LOG[0], 16, magic))
        assert error.reason.startswith(f"CRC of an entry of magic {magic[0]} is ")


@pytest.mark.parametrize("length", [-1, 1, 48, 256 << 20])
def test_impossible_lengths(length: int) -> None:
    error = error_in(LOG[0] + LOG[0][:8] + struct.pack(">i", length) + LOG[0][12:], after=1)
    assert (error.position, error.reason, error.cut) == (78, f"impossible length {length}", False)


def test_zero_tail_is_the_end() -> None:
    for zeros in (12, 16, 17, 61, 4096, 3_000_000):
        batches, error = walk(DATA + bytes(zeros))
        assert (len(batches), error) == (4, None)
        assert error_in(DATA + bytes(zeros) + b"\1", after=4).position == len(DATA)
    assert error_in(DATA + bytes(11)).cut


@pytest.mark.parametrize(("records", "expected"), [
    ([], None),
    ([Record(9, 0, struct.pack(">hh", 0, 2), b"")], Marker("control-2", None)),
    ([Record(9, 0, b"\0\1\0\1", b"\0\1\0\0\0\5more")], Marker("commit", 5)),
], ids=["emptied", "a change of the leader", "a newer version"])  # fmt: skip
def test_other_control_batches(records: list[Record], expected: Marker | None) -> None:
    batch = only(encode_batch(base_offset=9, records=records, is_control=True, producer_id=1))
    assert marker(batch, source=SOURCE) == expected


@pytest.mark.parametrize(("key", "value", "reason"), [
    (None, b"\0" * 6, "unpack_from requires"),
    (b"\0\0\0", b"\0" * 6, "unpack_from requires"),
    (b"\xff\xff\0\0", b"\0" * 6, "version -1"),
    (b"\0\0\0\1", b"\0" * 5, "unpack_from requires"),
    (b"\0\0\0\1", None, "unpack_from requires"),
    (b"\0\0\0\1", b"\xff\xff\0\0\0\0", "version -1"),
])  # fmt: skip
def test_malformed_control_records(key: bytes | None, value: bytes | None, reason: str) -> None:
    batch = only(encode_batch(base_offset=9, records=[Record(9, 0, key, value)], is_control=True))
    with pytest.raises(CorruptLogError, match=f"at byte 0: malformed control record: {reason}"):
        marker(batch, source=SOURCE)


RECORD = bytes([16, 0, 0, 0, 2, ord("k"), 2, ord("v"), 0])


@pytest.mark.parametrize(("payload", "count", "reason"), [
    (b"", 1, "record 1 of 1: the batch ends inside it"),
    (RECORD, 2, "record 2 of 2: the batch ends inside it"),
    (RECORD + b"\0\0", 1, "2 bytes follow the last of 1 records"),
    (RECORD[:-1], 1, "record 1 of 1: it announces 8 bytes, 7 are left"),
    (b"\1" + RECORD[1:], 1, "record 1 of 1: it announces -1 bytes, 8 are left"),
    (b"\x0e" + RECORD[1:], 1, "record 1 of 1: it announces 7 bytes, its fields take 8"),
    (RECORD + RECORD, 2, "record 2 of 2: offset 10 out of order"),
    (RECORD[:3] + b"\2" + RECORD[4:], 1, "record 1 of 1: offset 11 out of order"),
    (RECORD[:3] + b"\1" + RECORD[4:], 1, "record 1 of 1: offset 9 out of order"),
    (RECORD[:-1] + b"\1", 1, "record 1 of 1: it announces -1 headers"),
    (RECORD[:-1] + b"\2", 1, "record 1 of 1: the batch ends inside it"),
    (b"\x14" + RECORD[1:-1] + b"\2\1\1", 1, "record 1 of 1: it has a header without a name"),
    (RECORD[:6] + b"\x7e" + RECORD[7:], 1, "record 1 of 1: the batch ends inside it"),
    (b"\xff" * 12, 1, "record 1 of 1: a varint takes more than ten bytes"),
    (b"\xff" * 9 + b"\2", 1, "record 1 of 1: a varint takes more than 64 bits"),
    (b"\x22\0" + b"\xff" * 9 + b"\1" + RECORD[3:], 1, f"record 1 of 1: its timestamp is {-(2**63) - 1}"),
])  # fmt: skip
def test_malformed_records(payload: bytes, count: int, reason: str) -> None:
    with pytest.raises(CorruptLogError, match=f"^{SOURCE} at byte 0: {reason}$"):
        records(with_payload(payload, count=count))


def test_records_before_a_malformed_one_are_yielded_and_the_error_has_the_position_of_the_batch() -> None:
    header = patched(encode_batch(base_offset=2, last_offset=3), 57, struct.pack(">i", 2) + RECORD)
    *_, batch = iter_batches(LOG[0] + header, source=SOURCE)
    reader = segment_batches.iter_records(batch, source=SOURCE)
    assert next(reader) == Record(2, -1, b"k", b"v")
    with pytest.raises(CorruptLogError, match="at byte 78: record 2 of 2"):
        next(reader)


def test_header_names_that_are_not_text() -> None:
    (record,) = records(with_payload(bytes([22, 0, 0, 0, 2, 107, 2, 118, 2, 2, 255, 1])))
    assert record.headers == (("\\xff", None),)


def test_snappy_raw_and_xerial() -> None:
    raw = bytes(cramjam.snappy.compress_raw(RECORD))
    assert records(with_payload(raw, codec=2)) == [Record(10, -1, b"k", b"v")]
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    halves = [bytes(cramjam.snappy.compress_raw(part)) for part in (RECORD[:4], RECORD[4:])]
    xerial = head + b"".join(struct.pack(">i", len(half)) + half for half in halves)
    assert records(with_payload(xerial, codec=2)) == [Record(10, -1, b"k", b"v")]
    for bad, reason in [
        (xerial + b"\0", "stream ends inside a block length"),
        (xerial[:-1], "block announces 7 bytes, 6 are left"),
        (head + struct.pack(">i", -1), "block announces -1 bytes, 0 are left"),
    ]:
        with pytest.raises(CorruptLogError, match=f"at byte 0: snappy {reason}$"):
            records(with_payload(bad, codec=2))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_payload_that_is_not_what_the_codec_says(codec: int) -> None:
    name = codecs.CODECS[codec]
    with pytest.raises(CorruptLogError, match=f"at byte 0: {name} does not unpack within 268435456 bytes: "):
        records(with_payload(b"\xfe\xfe\xfe\xfe nonsense", codec=codec))


@pytest.mark.parametrize("codec", codecs.CODECS[1:])
def test_decompression_bomb(codec: codecs.Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "MAX_DECOMPRESSED_BYTES", 1 << 20)
    fits, bursts = (Record(0, 0, None, bytes(size)) for size in ((1 << 20) - 20, 1 << 20))
    assert records(only(encode_batch(base_offset=0, records=[fits], codec=codec))) == [fits]
    with pytest.raises(CorruptLogError, match=r"at byte 0: .*1048576 bytes"):
        records(only(encode_batch(base_offset=0, records=[bursts], codec=codec)))
