"""Transactions that a broker lists as open, and whose log has their end: a separate finding, and no doubt."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_soak_truth import PRODUCER, data, end, replica

from harness.json_codec import from_json
from harness.judge.verdict import Doubt
from harness.run_folder.store import AFTER_REJOIN, STATE, RunFolder
from harness.soak.causes.cause import Symptom
from harness.soak.causes.reopened_transaction import explains, reopened, reopened_of

TP = ("t", 0)
BROKER = 2


def round_folder(path: Path, *batches: bytes, **state: Any) -> RunFolder:
    """A round with one replica, on broker 2, and that broker's answers about it."""
    folder = RunFolder(path)
    copied = folder.broker_snapshot(BROKER, AFTER_REJOIN)
    copied.mkdir(parents=True)
    replica(copied / "t-0", *batches)
    served = folder.fetched_snapshot(BROKER, AFTER_REJOIN) / "t-0"
    served.mkdir(parents=True)
    (served / STATE).write_text(json.dumps({"log_start": 0, **state}))
    return folder


WRITTEN, ENDED = data(1, 0, "k", transactional=True), end(1, commit=True)
REOPENED, WITHOUT_RECORDS = (reopened(BROKER, TP, PRODUCER, 0, marker) for marker in (1, None))


@pytest.mark.parametrize(
    ("batches", "state", "symptoms"),
    [
        ((WRITTEN, ENDED), {"open": [[PRODUCER, 0, 0]]}, [REOPENED]),
        # Its records are gone: below the log start, or removed by its own cleaner.
        ((data(2, 5, "k"),), {"open": [[PRODUCER, 0, 0]], "log_start": 5}, [WITHOUT_RECORDS]),
        ((WRITTEN, ENDED), {"open": []}, []),
        ((WRITTEN, ENDED), {"open": None}, []),
        # Open by the log as well: the same transaction, or the next one of the producer.
        ((WRITTEN,), {"open": [[PRODUCER, 0, 0]]}, []),
        ((WRITTEN, ENDED, data(2, 2, "k", transactional=True)), {"open": [[PRODUCER, 0, 2]]}, []),
    ],
)
def test_transactions_that_are_open_again(
    tmp_path: Path, batches: tuple[bytes, ...], state: dict[str, Any], symptoms: list[Symptom]
) -> None:
    assert reopened_of(round_folder(tmp_path, *batches, **state)) == symptoms


@pytest.mark.parametrize(
    ("changed", "is_explained"),
    [
        ({}, True),
        ({"broker": 1}, False),
        ({"partition": 1}, False),
        ({"reason": "the broker says that producer 77 has an open transaction, its log that it has none"}, False),
    ],
)
def test_it_explains_the_doubt_about_its_own_replica(changed: dict[str, Any], *, is_explained: bool) -> None:
    reason = f"the broker says that producer {PRODUCER} has an open transaction, its log that it has none"
    fields = {"broker": BROKER, "topic": "t", "partition": 0, "kind": "contradiction", "reason": reason, **changed}
    assert explains(REOPENED, from_json(Doubt, fields)) is is_explained


def test_its_explanation() -> None:
    assert "its marker at offset 1" in REOPENED.explanation
    assert "neither records nor a marker" in WITHOUT_RECORDS.explanation
