"""The registry of causes and their order; skipped markers and transactions that are open again."""

import json
from dataclasses import replace
from graphlib import CycleError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from soaked import SMALL
from test_soak_truth import PRODUCER, data, end, replica

from harness.json_codec import from_json
from harness.judge.verdict import BROKER, CHECKERS, Doubt
from harness.run_folder.store import AFTER_REJOIN, STATE, RunFolder
from harness.soak.causes import CAUSES, NAMES, declared_in, diagnose
from harness.soak.causes.cause import Cause, RoundEvidence, Symptom
from harness.soak.causes.reopened_transaction import explains, reopened, reopened_of
from harness.soak.causes.skipped_marker import parse_line
from harness.soak.judge.truth import Truth
from harness.soak.play.round import skipped_of

SPECIFIC = ("lost-unsynced", "hole-after-power-failure", "stale-marker", "skipped-marker", "unclean-election",
            "hanging-transaction")  # fmt: skip
ANOMALIES = ("aborted-to-committed", "committed-to-aborted", "tombstone-divergence")
NOTHING = Truth({}, frozenset(), {}, {}, {})


def declaring(name: str, *before: str) -> Any:
    """Return a module of a plug-in."""
    cause = Cause(name, name, lambda _, symptoms: dict.fromkeys(symptoms, ""), frozenset(before))
    return SimpleNamespace(CAUSE=cause)


def test_a_cause_is_asked_before_those_that_it_precedes() -> None:
    order = list(CAUSES)
    assert [name for name in order if name in {*SPECIFIC, *ANOMALIES}] == [*SPECIFIC, *ANOMALIES]
    assert order.index("hanging-transaction") < order.index("stuck-lso")
    assert order.index("skipped-marker") < order.index("reopened-transaction")
    assert set(NAMES) == {*order} - {"lost-unsynced"}
    assert all(declared.name == name and declared.summary for name, declared in CAUSES.items())


def test_the_order_is_declared_whatever_the_order_of_files() -> None:
    modules = [declaring("a"), declaring("b", "a"), declaring("c", "b")]
    assert list(declared_in(modules)) == list(declared_in(modules[::-1])) == ["c", "b", "a"]
    with pytest.raises(CycleError):
        declared_in([*modules, declaring("a", "c")])
    with pytest.raises(KeyError, match="unknown"):
        declared_in([declaring("d", "unknown")])


def test_a_symptom_has_the_first_cause_that_explains_it() -> None:
    opened = Symptom(BROKER, 1, ("t", 0), offset=5)
    assert diagnose(RoundEvidence(NOTHING), [opened])[opened] == ("reopened-transaction", "")
    assert diagnose(RoundEvidence(NOTHING), [replace(opened, judge=CHECKERS)]) == {}


LINE = (
    b"05:01:40.272 [TxnMarkerSenderThread-3] [INFO] kafka.coordinator.transaction.TransactionMarkerChannelManager -"
    b" [Transaction Marker Channel Manager 3]: Couldn't find leader endpoint for partitions %s while trying to send"
    b" transaction markers for %s, these partitions are likely deleted already and hence can be skipped\n"
)


def test_a_coordinator_names_partitions_and_the_transactional_id_and_other_lines_say_nothing() -> None:
    """Scala prints small sets and large ones differently."""
    for partitions in (b"Set(soak-1-4-4, a.b_c-0)", b"HashSet(soak-1-4-4, a.b_c-0)"):
        assert parse_line(LINE % (partitions, b"soak-1-t12, or not"), 3) == {
            "broker": 3, "partitions": [("soak-1-4", 4), ("a.b_c", 0)], "transactional_id": "soak-1-t12, or not",
        }  # fmt: skip
    assert parse_line(b"[INFO] LogCleaner - Beginning cleaning of log soak-1-4\n", 3) is None
    assert parse_line(b"\xff\xfe\n", 3) is None


def test_a_round_has_what_was_left_out_of_its_clients() -> None:
    writer = next(client.transactional_id for client in SMALL.clients if client.transactional_id)
    line = {"partitions": [("__consumer_offsets", 1)], "transactional_id": writer}
    assert skipped_of(SMALL, [line, {**line, "transactional_id": "of another round"}]) == [line]


TP = ("t", 0)
OPEN_ON = 2


def round_folder(path: Path, *batches: bytes, **state: Any) -> RunFolder:
    """A round with one replica, on broker 2, and that broker's answers about it."""
    folder = RunFolder(path)
    copied = folder.broker_snapshot(OPEN_ON, AFTER_REJOIN)
    copied.mkdir(parents=True)
    replica(copied / "t-0", *batches)
    served = folder.fetched_snapshot(OPEN_ON, AFTER_REJOIN) / "t-0"
    served.mkdir(parents=True)
    (served / STATE).write_text(json.dumps({"log_start": 0, **state}))
    return folder


WRITTEN, ENDED = data(1, 0, "k", transactional=True), end(1, commit=True)
REOPENED, WITHOUT_RECORDS = (reopened(OPEN_ON, TP, PRODUCER, 0, marker) for marker in (1, None))


@pytest.mark.parametrize(("batches", "state", "symptoms"), [
    ((WRITTEN, ENDED), {"open": [[PRODUCER, 0, 0]]}, [REOPENED]),
    # Its records are gone: below the log start, or removed by its own cleaner.
    ((data(2, 5, "k"),), {"open": [[PRODUCER, 0, 0]], "log_start": 5}, [WITHOUT_RECORDS]),
    ((WRITTEN, ENDED), {"open": []}, []),
    ((WRITTEN, ENDED), {"open": None}, []),
    # Open by the log as well: the same transaction, or the next one of the producer.
    ((WRITTEN,), {"open": [[PRODUCER, 0, 0]]}, []),
    ((WRITTEN, ENDED, data(2, 2, "k", transactional=True)), {"open": [[PRODUCER, 0, 2]]}, []),
])  # fmt: skip
def test_transactions_that_are_open_again(
    tmp_path: Path, batches: tuple[bytes, ...], state: dict[str, Any], symptoms: list[Symptom]
) -> None:
    assert reopened_of(round_folder(tmp_path, *batches, **state)) == symptoms


@pytest.mark.parametrize(("changed", "is_explained"), [
    ({}, True),
    ({"broker": 1}, False),
    ({"partition": 1}, False),
    ({"reason": "the broker says that producer 77 has an open transaction, its log that it has none"}, False),
])  # fmt: skip
def test_it_explains_the_doubt_about_its_own_replica(changed: dict[str, Any], *, is_explained: bool) -> None:
    reason = f"the broker says that producer {PRODUCER} has an open transaction, its log that it has none"
    fields = {"broker": OPEN_ON, "topic": "t", "partition": 0, "kind": "contradiction", "reason": reason, **changed}
    assert explains(REOPENED, from_json(Doubt, fields)) is is_explained


def test_its_explanation() -> None:
    assert "its marker at offset 1" in REOPENED.explanation
    assert "neither records nor a marker" in WITHOUT_RECORDS.explanation
