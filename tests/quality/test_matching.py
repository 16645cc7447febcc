"""The matching of findings: found, misnamed and false."""

from dataclasses import replace

import pytest
from expected import COMMITTED_TO_ABORTED, STUCK_LSO, TOMBSTONE_DIVERGENCE, VISIBLE, Expected
from generate import Case
from matching import Found, complaints

pytestmark = pytest.mark.commit

WRONG = Expected(
    anomaly=TOMBSTONE_DIVERGENCE,
    topic="t",
    partition=0,
    broker=2,
    offset=5,
    key=b"k",
    effect=VISIBLE,
    evidence="tombstone",
    decided=True,
    required=True,
    offsets=frozenset({5, 9}),
    keys=frozenset({b"k"}),
)
FOUND = Found(
    anomaly=TOMBSTONE_DIVERGENCE,
    candidates=frozenset(),
    topic="t",
    partition=0,
    brokers=frozenset({2}),
    offset=5,
    key=b"k",
    effect=VISIBLE,
)
UNSURE = replace(FOUND, candidates=frozenset({TOMBSTONE_DIVERGENCE, COMMITTED_TO_ABORTED}))


def case(*wrongs: Expected) -> Case:
    return Case(
        name="case",
        copies={},
        bare=False,
        expected=tuple(wrong for wrong in wrongs if wrong.required),
        tolerated=tuple(wrong for wrong in wrongs if not wrong.required),
        traits=frozenset(),
    )


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (WRONG, FOUND),
        (WRONG, replace(FOUND, offset=9)),
        (WRONG, replace(FOUND, key=None)),
        (replace(WRONG, decided=False), UNSURE),
        (replace(WRONG, decided=False), FOUND),
        (replace(WRONG, effect=None), FOUND),
        (WRONG, replace(FOUND, brokers=frozenset({1, 2, 3}))),
    ],
    ids=[
        "as it is",
        "by its other offset",
        "without a key",
        "by candidates",
        "by a good guess",
        "of either effect",
        "undecided",
    ],
)
def test_found(wrong: Expected, found: Found) -> None:
    assert complaints(case(wrong), [found]) == []


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (WRONG, replace(FOUND, anomaly=STUCK_LSO)),
        (WRONG, replace(FOUND, brokers=frozenset({1, 3}))),
        (WRONG, replace(FOUND, offset=6)),
        (WRONG, replace(FOUND, key=b"l")),
        (WRONG, replace(FOUND, effect="latent")),
        (replace(WRONG, decided=False), replace(FOUND, anomaly=COMMITTED_TO_ABORTED)),
    ],
    ids=["another name", "broker", "offset", "key", "effect", "sure of the wrong name"],
)
def test_misnamed_is_both_missing_and_false(wrong: Expected, found: Found) -> None:
    assert [line.split(":")[1].strip() for line in complaints(case(wrong), [found])] == ["not found", "of nothing"]


def test_unsure_of_what_is_plain_is_missing() -> None:
    assert [line.split(":")[1].strip() for line in complaints(case(WRONG), [UNSURE])] == ["not found"]


def test_tolerated_may_be_found_and_need_not_be() -> None:
    tolerated = case(replace(WRONG, required=False))
    assert complaints(tolerated, []) == []
    assert complaints(tolerated, [UNSURE]) == []


def test_missing_and_false() -> None:
    assert len(complaints(case(WRONG), [])) == 1
    assert len(complaints(case(), [FOUND])) == 1
