"""The files next to a log: bytes written by Kafka's own classes, and truncated or corrupt bytes."""

import struct

import pytest
from crc32c import crc32c

from harness.broker_files.segments.batches import CorruptLogError
from harness.broker_files.side_files import producer_state
from harness.broker_files.side_files.checkpoints import read_checkpoint, read_leader_epochs
from harness.broker_files.side_files.producer_state import ProducerEntry, iter_txnindex, read_producer_snapshot

SOURCE = "t-0/00"

# Written by TransactionIndex, ProducerStateManager and OffsetCheckpointFile of Kafka 4.4.0.
KAFKA_TXNINDEX = bytes.fromhex(
    "000000000000000000070000000000000028000000000000002b000000000000002c"
    "00000000000000000008000000000000002d00000000000000310000000000000032"
)
ABORTED = [producer_state.AbortedTxn(7, 40, 43, 44), producer_state.AbortedTxn(8, 45, 49, 50)]
KAFKA_SNAPSHOT = bytes.fromhex(
    "00014f224c1500000002"
    "00000000000000070002ffffffffffffffffffffffff000000000000018bcfe56be800000009000000000000003c"
    "00000000000000080000ffffffffffffffffffffffff00000000ffffffffffffffffffffffffffffffffffffffff"
)
PRODUCERS = [ProducerEntry(7, 2, -1, -1, 0, 1_700_000_001_000, 9, 60), ProducerEntry(8, 0, -1, -1, 0, -1, -1, None)]
KAFKA_CHECKPOINT = b"0\n2\njepsen-t.1_x 0 42\n__transaction_state 11 0\n"
KAFKA_EPOCHS = b"0\n3\n0 0\n2 17\n5 1099511627776\n"


def test_txnindex_of_kafka() -> None:
    assert list(iter_txnindex(KAFKA_TXNINDEX, source=SOURCE)) == ABORTED
    assert producer_state.encode_txnindex(ABORTED) == KAFKA_TXNINDEX
    assert list(iter_txnindex(b"", source=SOURCE)) == []
    entries = iter_txnindex(KAFKA_TXNINDEX[:34] + b"\0\1" + KAFKA_TXNINDEX[36:], source=SOURCE)
    assert next(entries) == ABORTED[0]
    with pytest.raises(CorruptLogError, match="at byte 34: unknown entry version 1"):
        next(entries)


def test_txnindex_cut_anywhere() -> None:
    for size in range(len(KAFKA_TXNINDEX)):
        whole, left = divmod(size, 34)
        entries = iter_txnindex(KAFKA_TXNINDEX[:size], source=SOURCE)
        assert [next(entries) for _ in range(whole)] == ABORTED[:whole]
        if not left:
            assert list(entries) == []
            continue
        with pytest.raises(CorruptLogError) as caught:
            next(entries)
        assert str(caught.value) == f"{SOURCE} at byte {34 * whole}: entry is cut: {left} of 34 bytes"
        assert (caught.value.position, caught.value.cut) == (34 * whole, True)


def test_producer_snapshot_of_kafka() -> None:
    assert read_producer_snapshot(KAFKA_SNAPSHOT, source=SOURCE) == PRODUCERS
    assert producer_state.encode_producer_snapshot(PRODUCERS) == KAFKA_SNAPSHOT
    for entries in ([ProducerEntry(1 << 40, 3, 1 << 20, 1 << 41, 5, 1 << 42, 6, 0)], []):
        assert read_producer_snapshot(producer_state.encode_producer_snapshot(entries), source=SOURCE) == entries


def test_producer_snapshot_cut_anywhere_and_with_flipped_bytes() -> None:
    for size in range(len(KAFKA_SNAPSHOT)):
        with pytest.raises(CorruptLogError) as caught:
            read_producer_snapshot(KAFKA_SNAPSHOT[:size], source=SOURCE)
        assert caught.value.cut
        if size < 10:
            assert str(caught.value) == f"{SOURCE} at byte 0: header is cut: {size} of 10 bytes"
        else:
            assert str(caught.value) == f"{SOURCE} at byte {size}: snapshot is cut: {size} of 102 bytes"
    for at in range(len(KAFKA_SNAPSHOT)):
        data = KAFKA_SNAPSHOT[:at] + bytes([KAFKA_SNAPSHOT[at] ^ 0xFF]) + KAFKA_SNAPSHOT[at + 1 :]
        with pytest.raises(CorruptLogError) as caught:
            read_producer_snapshot(data, source=SOURCE)
        if at < 2:
            assert "at byte 0: unknown snapshot version" in str(caught.value)
        elif not 6 <= at < 10:  # a greater count is seen first as a cut
            assert "at byte 2: CRC is " in str(caught.value)
            assert not caught.value.cut


@pytest.mark.parametrize("count", [-1, 0, 1])
def test_producer_snapshot_with_another_count(count: int) -> None:
    covered = struct.pack(">i", count) + KAFKA_SNAPSHOT[10:]
    data = struct.pack(">hI", 1, crc32c(covered)) + covered
    with pytest.raises(CorruptLogError, match=f"at byte 6: {count} entries do not fill 102 bytes"):
        read_producer_snapshot(data, source=SOURCE)


def test_checkpoint_of_kafka() -> None:
    for data in (KAFKA_CHECKPOINT, KAFKA_CHECKPOINT.rstrip(), KAFKA_CHECKPOINT.replace(b"\n", b"\r\n")):
        assert read_checkpoint(data, source=SOURCE) == {("jepsen-t.1_x", 0): 42, ("__transaction_state", 11): 0}
    for empty in (b"", b"0", b"0\n", b"0\n0", b"0\n0\n"):
        assert read_checkpoint(empty, source=SOURCE) == {}


@pytest.mark.parametrize(("data", "position", "reason"), [
    (b"1\n0\n", 0, "line 1: version '1', not 0"),
    (b"\n0\n", 0, "line 1: version '', not 0"),
    (b"0\nx\n", 2, "line 2: entry count 'x'"),
    (b"0\n-1\n", 2, "line 2: entry count '-1'"),
    (b"0\n1\nt 0\n", 4, "line 3: 't 0' is not 'topic partition offset'"),
    (b"0\n2\nt 0 1\nt x 1\n", 10, "line 4: 't x 1' is not 'topic partition offset'"),
    (b"0\n1\nt 0 1 2\n", 4, "line 3: 't 0 1 2' is not 'topic partition offset'"),
    (b"0\n1\n\xff 0 1\n", 4, "line 3: '\\\\xff 0 1' is not 'topic partition offset'"),
    (b"0\n0\n\n", 4, "line 3: '' is not 'topic partition offset'"),
    (b"0\n2\nt 0 1\nt 0 2\n", 10, "line 4: partition t-0 a second time"),
    (b"0\n0\nt 0 1\n", 2, "line 2: 0 entries announced, 1 found"),
    (b"0\n2\nt 0 1\n", 2, "line 2: 2 entries announced, 1 found"),
])  # fmt: skip
def test_malformed_checkpoints(data: bytes, position: int, reason: str) -> None:
    with pytest.raises(CorruptLogError) as caught:
        read_checkpoint(data, source=SOURCE)
    assert str(caught.value) == f"{SOURCE} at byte {position}: {reason}"
    assert caught.value.cut == (reason.endswith("2 entries announced, 1 found"))


def test_leader_epochs_of_kafka_and_malformed_ones() -> None:
    assert read_leader_epochs(KAFKA_EPOCHS, source=SOURCE) == {0: 0, 2: 17, 5: 1 << 40}
    assert read_leader_epochs(b"0\n0\n", source=SOURCE) == {}
    for entry in ("-1 0", "0 -1", "t 0 1"):
        with pytest.raises(CorruptLogError, match=f"^{SOURCE} at byte 8: line 4: '{entry}' is not 'epoch offset'$"):
            read_leader_epochs(f"0\n2\n0 0\n{entry}\n".encode(), source=SOURCE)
