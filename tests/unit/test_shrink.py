"""Schedules get smaller while the same goes wrong, in a form that real brokers can go through."""

import pytest
from described import described

from harness.model_checking.explore.random_schedules import RandomSchedule, cost, draw, is_replayable, is_wrong, shrink
from harness.models.world.world import Rules
from harness.schedules.catalog import Anomaly
from harness.schedules.operations.clients import Write
from harness.schedules.operations.environment import TimePasses

SEVEN = ("p puts K", "2 leaves", "p deletes K", "1 cleans", "time passes", "1 cleans", "2 returns")


@pytest.mark.parametrize(
    "steps",
    [
        ("p puts L", "an hour passes", *SEVEN[:2], "3 leads", "3 leads", "1 leads", "1 cleans", *SEVEN[2:]),
        ("p puts K", "3 leads", "2 lags", "p deletes K", "3 cleans", "time passes", "3 cleans", "2 returns"),
        ("p puts M", "4 is added", "4 copies a batch", "p deletes M", "1 cleans", "time passes", "1 cleans", "4 joins"),
        ("u puts K", "u commits", "2 leaves", "u deletes K", "u commits", *SEVEN[3:]),
    ],
)
def test_rare_words_give_way_to_plain_ones(steps: tuple[str, ...]) -> None:
    drawn = RandomSchedule(0, Rules(epoch_bump=True), described(*steps))
    assert is_wrong(drawn, Anomaly.TOMBSTONE_DIVERGENCE)
    small = shrink(drawn, Anomaly.TOMBSTONE_DIVERGENCE)
    assert is_replayable(Anomaly.TOMBSTONE_DIVERGENCE, small)
    assert not small.rules.epoch_bump
    assert len(small.steps) <= 8


def test_a_smallest_one_stays() -> None:
    drawn = RandomSchedule(0, Rules(), described(*SEVEN))
    assert shrink(drawn, Anomaly.TOMBSTONE_DIVERGENCE) == drawn


def test_a_transaction_goes_on_when_the_cleaners_are_done() -> None:
    steps = (
        "t puts K", "2 leaves", "t aborts", "1 cleans", "1 cleans", "t puts K", "t commits", "time passes", "1 cleans",
        "2 returns",
    )  # fmt: skip
    small = shrink(RandomSchedule(0, Rules(epoch_bump=True), described(*steps)), Anomaly.ABORTED_TO_COMMITTED)
    assert small.steps.index(Write("t", "K"), 1) > small.steps.index(TimePasses())


def test_whatever_is_found_gets_smaller_and_stays_found() -> None:
    shrunk = 0
    for seed in range(300):
        drawn = draw(seed, Rules())
        for name in Anomaly:
            if is_wrong(drawn, name):
                small = shrink(drawn, name)
                assert is_wrong(small, name)
                assert cost(small) <= cost(drawn)
                assert 7 <= len(small.steps) <= 13
                shrunk += 1
    assert shrunk >= 8
