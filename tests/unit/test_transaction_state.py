"""Which transaction protocol a log shows; records of ``__transaction_state`` by bytes of Kafka's own classes."""

import pytest
from copied import state_record
from literal import Entry, Txn, commit, encode, put

from harness.broker_files.internal_topics.decode import FINISHED, STATES, TransactionState, transaction_state
from harness.broker_files.segments.batches import Record, iter_batches
from harness.run_folder.manifest import transaction_version


def data(offset: int, producer_id: int, epoch: int) -> Entry:
    return put(offset, "k", Txn(producer_id, "id/1", epoch))


def marker(offset: int, producer_id: int, epoch: int) -> Entry:
    return commit(offset, Txn(producer_id, "id/1", epoch))


@pytest.mark.parametrize(("segments", "version"), [
    ([[data(0, 5, 0), marker(1, 5, 0), data(2, 5, 0), marker(3, 5, 0)]], 1),
    ([[data(0, 5, 0), marker(1, 5, 1), data(2, 5, 1), marker(3, 5, 2)]], 2),
    ([[data(0, 5, 0), data(1, 6, 3), marker(2, 5, 1), marker(3, 6, 4)]], 2),
    # The coordinator aborted one itself; the other shows what the protocol is.
    ([[data(0, 5, 0), marker(1, 5, 1), data(2, 6, 0), marker(3, 6, 0)]], 1),
    ([[data(0, 5, 0)]], None),
    ([[marker(0, 5, 1)]], None),
    ([[]], None),
    # Segments do not mix.
    ([[data(0, 5, 3)], [marker(0, 5, 3), data(1, 5, 4), marker(2, 5, 5)]], 2),
])  # fmt: skip
def test_what_markers_show(segments: list[list[Entry]], version: int | None) -> None:
    assert transaction_version(iter_batches(encode(log), source="a log") for log in segments) == version


# Written by TransactionLogKey and TransactionLogValue of Kafka 4.4.0.
KEY = bytes.fromhex("0000000b7061796d656e74732dc3bc")
VALUE_0 = bytes.fromhex(
    "0000000000012a05f20000070000ea60040000000100017400000001000000000000018bcfe568000000018bcfe56418"
)
VALUE_1 = bytes.fromhex(
    "0001000000012a05f20000070000ea60040202740200000000000000018bcfe568000000018bcfe56418"
    "03000800000000000000040108000000000000000602020002"
)
STATE_AT = 16


def record(key: bytes | None = KEY, value: bytes | None = VALUE_0) -> Record:
    return Record(0, 0, key, value)


def test_values_of_kafka_in_every_state_are_known_and_other_versions_are_not() -> None:
    state = TransactionState("payments-ü", 5_000_000_000, "CompleteCommit")
    assert transaction_state(record(value=VALUE_0)) == transaction_state(record(value=VALUE_1)) == state
    assert transaction_state(record(value=None)) == TransactionState("payments-ü", None, None), "it is forgotten"
    assert transaction_state(record(b"\0\0\0\1\xff", None)) == TransactionState("\\xff", None, None), "not UTF-8"
    assert transaction_state(record(key=b"\0\1" + KEY[2:])) is None
    assert transaction_state(record(value=b"\0\2" + VALUE_1[2:])) is None
    assert transaction_state(record(value=b"\xff\xff" + VALUE_1[2:])) is None
    for number, name in enumerate(STATES):
        value = VALUE_0[:STATE_AT] + bytes([number]) + VALUE_0[STATE_AT + 1 :]
        assert transaction_state(record(value=value)) == TransactionState("payments-ü", 5_000_000_000, name)
        assert transaction_state(state_record("t", 5, name)) == TransactionState("t", 5, name)
    assert {*STATES} - {*FINISHED} == {"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}


@pytest.mark.parametrize(("key", "value", "reason"), [
    (None, VALUE_0, "malformed transaction state: .*at least 4 bytes"),
    (KEY[:3], VALUE_0, "malformed transaction state: .*at least 4 bytes"),
    (KEY[:-1], VALUE_0, "a transactional id of 11 bytes in a key of 14"),
    (KEY + b"x", VALUE_0, "a transactional id of 11 bytes in a key of 16"),
    (b"\0\0\xff\xff", VALUE_0, "a transactional id of -1 bytes in a key of 4"),
    (KEY, b"", "malformed transaction state: .*at least 17 bytes"),
    (KEY, VALUE_0[:STATE_AT], "malformed transaction state: .*at least 17 bytes"),
    (KEY, VALUE_0[:STATE_AT] + b"\x08", "transaction state 8"),
    (KEY, VALUE_0[:STATE_AT] + b"\xff", "transaction state -1"),
])  # fmt: skip
def test_malformed_records(key: bytes | None, value: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        transaction_state(record(key, value))
