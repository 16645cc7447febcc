"""Records of ``__transaction_state``: against bytes written by Kafka's own classes, and broken ones."""

import pytest
from copied import state_record

from harness.broker_files.internal_topics.decode import FINISHED, STATES, TransactionState, transaction_state
from harness.broker_files.segments.batches import Record

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


def test_values_of_kafka() -> None:
    state = TransactionState("payments-ü", 5_000_000_000, "CompleteCommit")
    assert transaction_state(record(value=VALUE_0)) == transaction_state(record(value=VALUE_1)) == state
    assert transaction_state(record(value=None)) == TransactionState("payments-ü", None, None), "it is forgotten"
    assert transaction_state(record(b"\0\0\0\1\xff", None)) == TransactionState("\\xff", None, None), "not UTF-8"


def test_every_state() -> None:
    for number, name in enumerate(STATES):
        value = VALUE_0[:STATE_AT] + bytes([number]) + VALUE_0[STATE_AT + 1 :]
        assert transaction_state(record(value=value)) == TransactionState("payments-ü", 5_000_000_000, name)
        assert transaction_state(state_record("t", 5, name)) == TransactionState("t", 5, name)
    assert {*STATES} - {*FINISHED} == {"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}


def test_other_versions_are_not_known() -> None:
    assert transaction_state(record(key=b"\0\1" + KEY[2:])) is None
    assert transaction_state(record(value=b"\0\2" + VALUE_1[2:])) is None
    assert transaction_state(record(value=b"\xff\xff" + VALUE_1[2:])) is None


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, VALUE_0, "malformed transaction state: .*at least 4 bytes"),
        (KEY[:3], VALUE_0, "malformed transaction state: .*at least 4 bytes"),
        (KEY[:-1], VALUE_0, "a transactional id of 11 bytes in a key of 14"),
        (KEY + b"x", VALUE_0, "a transactional id of 11 bytes in a key of 16"),
        (b"\0\0\xff\xff", VALUE_0, "a transactional id of -1 bytes in a key of 4"),
        (KEY, b"", "malformed transaction state: .*at least 17 bytes"),
        (KEY, VALUE_0[:STATE_AT], "malformed transaction state: .*at least 17 bytes"),
        (KEY, VALUE_0[:STATE_AT] + b"\x08", "transaction state 8"),
        (KEY, VALUE_0[:STATE_AT] + b"\xff", "transaction state -1"),
    ],
)
def test_malformed_records(key: bytes | None, value: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        transaction_state(record(key, value))
