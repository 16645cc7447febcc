"""Checkers that are wrong on purpose: a test must fail for each mutant that is not listed as equivalent.

A spread over all checkers by default, others with another ``--quality-seed``; all of them with ``--mutants all``, and
those whose name has some text in it with ``--mutants TEXT``, more than once too; ``--log-cli-level=INFO`` tells of each
which test fails.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from equivalent import EQUIVALENT
from expected import ABORTED_TO_COMMITTED
from generate import LEGAL, generate
from mutants import mutants, unchanged
from mutated import in_place
from planted import ABORTED_DELETE, SAME_OUTCOME
from trial import REDUCING, build, failed

import checkers.sieve
import checkers.truth

if TYPE_CHECKING:
    from mutants import Mutant
    from pyspark.sql import SparkSession
    from trial import Stand

CHECKERS: Final = (
    "aborted_to_committed", "beliefs", "committed_to_aborted", "doubts", "exposure", "finding",
    "guarantees.compaction_lag", "guarantees.control_batches", "guarantees.last_value", "guarantees.offsets",
    "guarantees.order", "guarantees.told", "guarantees.tombstones", "guarantees.watched", "hanging_transaction",
    "hidden", "judged", "lineage", "missed_marker", "other_spans", "own_state", "own_words", "pick", "plain", "reduce",
    "replay", "scan", "settled", "sieve", "stuck_lso", "survivors", "tombstone_divergence", "truth", "unexplained",
)  # fmt: skip
"""What says what is wrong, what that is given, and how big data are reduced to it."""

CASES: Final = ((LEGAL, 0), (SAME_OUTCOME, 1), (ABORTED_DELETE, 0), (ABORTED_TO_COMMITTED, 0))
"""Generated clusters, by kind and seed: a test fails for some mutants with them alone."""

SAMPLE: Final = 54
SAMPLE_REDUCING: Final = 6
"""Fewer, as each takes ten seconds or more."""
LOG: Final = logging.getLogger(__name__)
ALL: Final = "all"

pytestmark = pytest.mark.timeout(3600)


def every() -> list[Mutant]:
    return [mutant for name in CHECKERS for mutant in mutants(import_module(f"checkers.{name}"))]


@pytest.fixture(scope="module")
def stand(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stand:
    return build(spark, tmp_path_factory.mktemp("mutants"), [generate(seed, kind) for kind, seed in CASES])


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> list[Mutant]:
    texts = request.config.getoption("--mutants")
    if texts is not None:
        return [mutant for mutant in every() if ALL in texts or any(text in mutant.name for text in texts)]
    random = Random(request.config.getoption("--quality-seed"))  # noqa: S311
    judging = [mutant for mutant in every() if mutant.module not in REDUCING]
    reducing = [mutant for mutant in every() if mutant.module in REDUCING]
    sample = [*random.sample(judging, SAMPLE), *random.sample(reducing, SAMPLE_REDUCING)]
    return sorted(sample, key=lambda mutant: mutant.name)


def test_nothing_fails_for_unchanged_code(stand: Stand) -> None:
    assert [failed(stand, unchanged(module)) for module in (checkers.truth, checkers.sieve)] == [None, None]


def test_a_test_fails_for_each_mutant(stand: Stand, chosen: list[Mutant]) -> None:
    survivors = set()
    for mutant in chosen:
        failure = failed(stand, mutant)
        LOG.info("%s: %s", mutant.name, failure or "no test fails")
        if failure is None:
            survivors.add(mutant.name)
    told = {
        "no test fails for": survivors - EQUIVALENT.keys(),
        "not equivalent": {mutant.name for mutant in chosen} & EQUIVALENT.keys() - survivors,
    }
    wrong = [f"{what}: {name}" for what, names in told.items() for name in sorted(names)]
    assert not wrong, "\n".join(wrong)


def test_what_is_listed_as_equivalent_is_there() -> None:
    assert sorted(EQUIVALENT.keys() - {mutant.name for mutant in every()}) == []


def test_modules_are_put_back() -> None:
    before = {name: id(module) for name, module in sys.modules.items()}
    with in_place(unchanged(checkers.truth)):
        assert id(sys.modules["checkers.truth"]) != before["checkers.truth"]
    assert {name: id(module) for name, module in sys.modules.items()} == before
    assert sys.modules["checkers"].truth is checkers.truth
