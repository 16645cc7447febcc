"""The sentence on what a wrong broker missed, by literal histories of the ISR."""

from typing import Any

import pytest
from findings import finding

from checkers.attribution.coverage import EpochCoverage
from harness.audit.explain.impact import with_cause
from harness.audit.explain.metadata_evidence import NOT_ASKED, MetadataEvidence
from harness.broker_files.metadata_log.history import PartitionHistory, PartitionState
from harness.judge.finding import Finding

ALL = (1, 2, 3)
T_MS, HOUR_MS = 1_795_757_520_000, 3_600_000
"""2026-11-27 05:32:00 UTC."""
STUCK, DIVERGED = "stuck-lso", "tombstone-divergence"


def accused(anomaly: str = STUCK, *, decided: bool = True, **witness: Any) -> Finding:
    return finding(anomaly=anomaly, producer_id=7, decided=decided, witness=witness)


def state(time_ms: int | None, isr: tuple[int, ...] = ALL, replicas: tuple[int, ...] = ALL) -> PartitionState:
    return PartitionState(1, 1, 0, 0, replicas, isr, time_ms=time_ms)


def cause(found: Finding, *states: PartitionState, lacking: str = "") -> str | None:
    history = PartitionHistory("id", since_creation=True, states=states)
    return with_cause(found, MetadataEvidence({("t", 0): EpochCoverage(history)}, lacking=lacking)).cause


OUT = (state(0), state(T_MS - 26 * HOUR_MS, (1, 3)), state(T_MS))
FOR_26_H = "(out of the ISR for 26 h until 2026-11-27 05:32:00 UTC)"


@pytest.mark.parametrize(("found", "expected"), [
    (accused(outcome="committed", transactional_id="orders-tx"), "the COMMIT of transaction orders-tx"),
    (accused(outcome="decided"), "the marker of producer 7"),
    (accused("aborted-to-committed"), "the ABORT of producer 7"),
    (accused("committed-to-aborted"), "the COMMIT of producer 7"),
    (accused(DIVERGED), "a delete"),
    (accused("unexplained-divergence"), "records"),
])  # fmt: skip
def test_a_cause_names_what_was_missed_and_when_the_broker_was_out_of_the_isr(found: Finding, expected: str) -> None:
    assert cause(found, *OUT) == f"broker 2 missed {expected} {FOR_26_H}"


@pytest.mark.parametrize(("states", "expected"), [
    ((state(0),), "in the ISR at all times that the metadata log has"),
    ((state(0), state(T_MS, (1,))), "out of the ISR since 2026-11-27 05:32:00 UTC"),
    ((state(None, (1,)), state(T_MS)), "out of the ISR until 2026-11-27 05:32:00 UTC"),
    ((*OUT, state(T_MS + 1000, (1,)), state(T_MS + 2000)), f"{FOR_26_H[1:-1]}; 2 times in all"),
    (
        (state(0, (1,), (1,)), state(T_MS - 180_000, (1,)), state(T_MS)),
        "out of the ISR for 3 min until 2026-11-27 05:32:00 UTC",
    ),
], ids=["never", "still", "before the log starts", "twice", "assigned later"])  # fmt: skip
def test_the_longest_absence_is_told(states: tuple[PartitionState, ...], expected: str) -> None:
    assert cause(accused(DIVERGED), *states) == f"broker 2 missed a delete ({expected})"


def test_without_a_history_or_an_accusation_there_is_no_cause() -> None:
    assert cause(accused(), *OUT, lacking=NOT_ASKED) is None
    assert cause(accused(decided=False), *OUT) is None
    assert cause(accused("hanging-transaction"), *OUT) is None
    assert with_cause(accused(), MetadataEvidence()).cause is None
