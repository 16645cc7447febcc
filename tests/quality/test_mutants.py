"""Checkers that are wrong on purpose: a test must fail for each mutant that is not listed as equivalent.

A few of each module by default, others with another ``--quality-seed``; all of them with ``--mutants all``, and those
whose name has some text in it with ``--mutants TEXT``, more than once too; ``--log-cli-level=INFO`` tells of each which
test fails.
"""

import logging
import sys
from importlib import import_module
from random import Random
from typing import Final

import pytest
from equivalent import EQUIVALENT
from expected import ABORTED_TO_COMMITTED
from generate import LEGAL, generate
from mutants import Mutant, mutants, unchanged
from mutated import in_place
from planted import ABORTED_DELETE, SAME_OUTCOME
from pyspark.sql import SparkSession
from trial import REDUCING, Stand, build, failed

import checkers.reduction.candidate_keys
import checkers.replay.truth

CHECKERS: Final = (
    "anomalies.aborted_to_committed", "anomalies.committed_to_aborted", "anomalies.hanging_transaction",
    "anomalies.missed_marker", "anomalies.stuck_lso", "anomalies.tombstone_divergence", "anomalies.unexplained",
    "attribution.blame", "attribution.coverage", "consistency.doubts", "consistency.exposure",
    "consistency.side_files", "finding", "guarantees.records", "guarantees.removals",
    *sorted(name.removeprefix("checkers.") for name in REDUCING),
    "replay.batch_outcomes", "replay.judged", "replay.truth",
)  # fmt: skip
"""The module that judges, its input, and how big data are reduced for it."""

CASES: Final = ((LEGAL, 0), (SAME_OUTCOME, 1), (ABORTED_DELETE, 0), (ABORTED_TO_COMMITTED, 0))
"""Generated clusters, by kind and seed: a test fails for some mutants with them alone."""

SAMPLE: Final = 2
SAMPLE_REDUCING: Final = 1
"""Mutants of each module; fewer of the modules that reduce, as each mutant takes ten seconds or more."""
LOG: Final = logging.getLogger(__name__)
ALL: Final = "all"

# A module that reduces has up to a hundred mutants; one that no test notices takes three minutes.
pytestmark = pytest.mark.timeout(4 * 3600)


def of(name: str) -> list[Mutant]:
    return list(mutants(import_module(f"checkers.{name}")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give one test a module, without those of which no mutant was asked for."""
    if "checker" in metafunc.fixturenames:
        texts = metafunc.config.getoption("--mutants")
        names = CHECKERS if texts is None else [name for name in CHECKERS if any(asked_for(texts, of(name)))]
        metafunc.parametrize("checker", names)


def asked_for(texts: list[str], of_module: list[Mutant]) -> list[Mutant]:
    return [mutant for mutant in of_module if ALL in texts or any(text in mutant.name for text in texts)]


@pytest.fixture(scope="module")
def stand(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stand:
    stand = build(spark, tmp_path_factory.mktemp("mutants"), [generate(seed, kind) for kind, seed in CASES])
    # Otherwise every mutant would seem to fail a test.
    assert failed(stand, unchanged(checkers.replay.truth)) is None
    return stand


@pytest.fixture
def chosen(checker: str, request: pytest.FixtureRequest) -> list[Mutant]:
    texts = request.config.getoption("--mutants")
    if texts is not None:
        return asked_for(texts, of(checker))
    count = SAMPLE_REDUCING if f"checkers.{checker}" in REDUCING else SAMPLE
    random = Random(f"{request.config.getoption('--quality-seed')} {checker}")  # noqa: S311
    return random.sample(of(checker), min(count, len(of(checker))))


def test_nothing_fails_for_unchanged_reduction(stand: Stand) -> None:
    assert failed(stand, unchanged(checkers.reduction.candidate_keys)) is None


def test_a_test_fails_for_each_mutant(stand: Stand, chosen: list[Mutant]) -> None:
    assert chosen, "no mutants of this module"
    survivors = set()
    for mutant in chosen:
        failure = failed(stand, mutant)
        LOG.info("%s: %s", mutant.name, failure or "no test fails")
        if failure is None:
            survivors.add(mutant.name)
    actual = {
        "no test fails for": survivors - EQUIVALENT.keys(),
        "not equivalent": {mutant.name for mutant in chosen} & EQUIVALENT.keys() - survivors,
    }
    wrong = [f"{what}: {name}" for what, names in actual.items() for name in sorted(names)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.commit
def test_what_is_listed_as_equivalent_is_there() -> None:
    assert sorted(EQUIVALENT.keys() - {mutant.name for name in CHECKERS for mutant in of(name)}) == []


@pytest.mark.commit
def test_modules_are_put_back() -> None:
    before = {name: id(module) for name, module in sys.modules.items()}
    with in_place(unchanged(checkers.replay.truth)):
        assert id(sys.modules["checkers.replay.truth"]) != before["checkers.replay.truth"]
    # Others may have been imported for the first time meanwhile.
    assert {name: id(sys.modules[name]) for name in before} == before
    assert sys.modules["checkers.replay"].truth is checkers.replay.truth
