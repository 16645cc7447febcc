"""Redpanda's segments, made by hand, are read as the Kafka batches that clients wrote."""

import pytest
from stored_markers import encode_marker

from harness.broker_files.segments.batches import HEADER as KAFKA_HEADER
from harness.broker_files.segments.batches import CorruptLogError, iter_batches, iter_records, marker
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.broker_files.segments.redpanda import HEADER, is_segment, to_kafka

CONFIGURATION, TX_FENCE, PLACEHOLDER, RAFT_DATA = 2, 10, 29, 1
EPOCH = 3


def stored(batch: bytes, raft_offset: int) -> bytes:
    fields = KAFKA_HEADER.unpack_from(batch)
    return HEADER.pack(0, len(batch), raft_offset, RAFT_DATA, *fields[4:]) + batch[KAFKA_HEADER.size :]


def own(kind: int, raft_offset: int, count: int = 1) -> bytes:
    body = b"whatever is in it"
    size = HEADER.size + len(body)
    return HEADER.pack(0, size, raft_offset, kind, 0, 0, count - 1, 0, 0, -1, -1, -1, count, *()) + body


def put(offset: int, *keys: str, leader_epoch: int = EPOCH) -> bytes:
    records = [Record(offset + n, 1000, key.encode(), b"value") for n, key in enumerate(keys)]
    return encode_batch(base_offset=offset, records=records, producer_id=7, producer_epoch=0, is_transactional=True,
                        leader_epoch=leader_epoch)  # fmt: skip


def commit(offset: int) -> bytes:
    return encode_marker(
        base_offset=offset, producer_id=7, producer_epoch=0, commit=True, timestamp_ms=1, leader_epoch=EPOCH
    )


def test_offsets_are_those_of_clients_over_all_segments() -> None:
    first = own(CONFIGURATION, 0) + stored(put(0, "a"), 1) + own(CONFIGURATION, 2, count=2)
    second = stored(put(0, "b"), 4) + own(TX_FENCE, 5) + stored(commit(0), 6)
    rewritten = to_kafka({"4-3-v1.log": second, "0-2-v1.log": first})
    batches = list(iter_batches(rewritten, source="rewritten"))
    assert [batch.base_offset for batch in batches] == [0, 1, 3], "a fence is a gap, a configuration is nothing"
    assert [batch.leader_epoch for batch in batches] == [2, 3, 3]
    assert [record.key for batch in batches[:2] for record in iter_records(batch, source="")] == [b"a", b"b"]
    assert marker(batches[2], source="") is not None


def test_segments_are_walked_in_the_order_of_their_offsets_and_not_of_their_names() -> None:
    segments = {"10-1-v1.log": stored(put(10, "z"), 10), "9-1-v1.log": stored(put(9, "a"), 9)}
    assert [batch.base_offset for batch in iter_batches(to_kafka(segments), source="")] == [9, 10]


def test_batches_come_out_byte_by_byte_as_kafka_has_them_and_zeros_end_a_file() -> None:
    segment = stored(put(0, "a", "b"), 0) + stored(commit(2), 2) + bytes(4096)
    assert to_kafka({f"0-{EPOCH}-v1.log": segment}) == put(0, "a", "b") + commit(2)


@pytest.mark.parametrize("kept", [30, HEADER.size + 3])
def test_a_batch_that_is_cut_is_reported_with_its_place_unless_it_is_the_last_one(kept: int) -> None:
    whole = stored(put(0, "a"), 0)
    cut = whole + stored(put(1, "b"), 1)[:kept]
    assert to_kafka({"0-1-v1.log": cut}) == put(0, "a", leader_epoch=1), "the broker was killed while it wrote"
    with pytest.raises(CorruptLogError, match=r"0-1-v1\.log at byte \d+: batch is cut") as raised:
        to_kafka({"0-1-v1.log": cut, "2-1-v1.log": stored(put(2, "c"), 2)})
    assert (raised.value.cut, raised.value.position) == (True, len(whole))


def test_a_size_that_cannot_be_is_reported() -> None:
    with pytest.raises(CorruptLogError, match="impossible size 5"):
        to_kafka({"0-1-v1.log": HEADER.pack(0, 5, 0, RAFT_DATA, 0, 0, 0, 0, 0, -1, -1, -1, 1)})


def test_only_segments_are_segments() -> None:
    names = ["0-1-v1.log", "12-3-v1.log", "0-1-v1.base_index", "0-1-v1.log.staging", "snapshot", "x-0-1-v1.log"]
    assert [name for name in names if is_segment(name)] == names[:2]
