"""The registry of causes: each is declared in its file, and so is the order in which they are asked."""

from dataclasses import replace
from graphlib import CycleError
from types import SimpleNamespace
from typing import Any

import pytest

from harness.judge.verdict import BROKER, CHECKERS
from harness.soak.causes import CAUSES, NAMES, declared_in, diagnose
from harness.soak.causes.cause import Cause, RoundEvidence, Symptom
from harness.soak.judge.truth import Truth

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
