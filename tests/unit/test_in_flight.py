"""Transactions that were in flight while logs were copied, and transactions that hang."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from checker_cases.transactions import T1
from copied import copy, segment_name, state_record, write_copies
from literal import put

from harness.audit.in_flight import TABLE, without_in_flight
from harness.broker_files.copies.copies import find_copies
from harness.broker_files.segments.encode import encode_batch

MINUTE_MS = 60_000
WITNESS = json.dumps({"transactional_id": "t"})
ROWS = [
    {"run": "r", "topic": "t", "partition": 0, "broker": broker, "offset": 0, "producer_id": 5, "witness": WITNESS}
    for broker in (1, 2)
]


@pytest.mark.parametrize(("decided", "last_state", "last_records", "hangs"), [
    (12, 14, (20, 21), True),
    (12, 12, (20, 21), True),
    (12, 14, (12, 21), False),
    (9, 9, (20, 21), False),
    (12, 14, (None, 21), False),
], ids=[
    "later records show that it hangs", "the coordinator's last record is later than its first one",
    "it ended after one replica was copied", "it began after its coordinator's log was copied", "damaged",
])  # fmt: skip
def test_a_transaction_hangs_if_later_records_were_copied(
    decided: int, last_state: int, last_records: tuple[int | None, int], hangs: bool, tmp_path: Path  # noqa: FBT001
) -> None:  # fmt: skip
    folders = write_copies(tmp_path, *(
        copy(broker, put(0, "K", T1, at_ms=10 * MINUTE_MS), put(9, "end", at_ms=(at or 0) * MINUTE_MS),
             coordinator=(("t", 5, "CompleteCommit"),))
        for broker, at in zip((1, 2), last_records, strict=True)
    ))  # fmt: skip
    states = (state_record("t", 5, "CompleteCommit"), decided), (state_record("u", 6, "Ongoing", offset=1), last_state)
    log = b"".join(
        encode_batch(base_offset=offset, records=[replace(state, timestamp_ms=time * MINUTE_MS)])
        for offset, (state, time) in enumerate(states)
    )
    for broker, at in zip((1, 2), last_records, strict=True):
        (tmp_path / str(broker) / "__transaction_state-0" / segment_name(0)).write_bytes(log)
        if at is None:
            (tmp_path / str(broker) / "t-0" / segment_name(0)).write_bytes(b"damaged" * 20)
    rows, reasons = without_in_flight(find_copies(folders, ["t"], "r"), {TABLE: ROWS})
    assert rows == {TABLE: ROWS if hangs else []}
    assert [why.cause for why in reasons.get(("t", 0), ())] == ["in-flight"] * (not hangs)
