"""The smallest schedule: steps are removed, and texts simplified, for as long as the same anomaly occurs.

Among equally small schedules, those are preferred that real brokers can replay
(`harness.schedules.sentences.scenario_of`): without a change of leader, lag or hours, with one transactional client,
whose later steps come after the cleaners'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from harness.models.world.steps import play
from harness.models.world.world import ABSENT, ADDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.model_checking.explore.schedule_generator import RandomSchedule

SIMPLER: Final = (
    (f"{ADDED} is added", f"{ABSENT} leaves"),
    (f"{ADDED} joins", f"{ABSENT} returns"),
    (f"{ABSENT} lags", f"{ABSENT} leaves"),
    ("an hour passes", "time passes"),
    ("3 cleans", "1 cleans"),
    (f"{ABSENT} cleans", "1 cleans"),
    ("u ", "t "),
    (" M", " K"),
    (" L", " K"),
    (" M", " L"),
)
"""Texts, and simpler replacements to try: at one place, or everywhere."""
_COMPLEX: Final = tuple(words for words, _ in SIMPLER)
_HARD: Final = (" leads", " copies a batch", "message", " reports")
_CLEANERS: Final = (" cleans", "time passes")


def is_wrong(drawn: RandomSchedule, name: str) -> bool:
    """Whether a schedule leads to an anomaly of that name."""
    return any(name == anomaly for _, anomaly in play(drawn.rules, drawn.steps).violations())


def has_consequence(drawn: RandomSchedule, name: str) -> bool:
    """Whether a schedule leads to a consequence for groups of that name (`harness.models.world.groups`)."""
    return any(name == consequence for _, consequence in play(drawn.rules, drawn.steps).consequences())


def shrink(
    drawn: RandomSchedule, name: str, keeps_anomaly: Callable[[RandomSchedule, str], bool] = is_wrong
) -> RandomSchedule:
    """Return the smallest schedule within reach of small changes, each of which keeps the anomaly ``name``."""
    while smaller := next(
        (one for one in _simpler(drawn) if cost(one) < cost(drawn) and keeps_anomaly(one, name)), None
    ):
        drawn = smaller
    return drawn


def cost(drawn: RandomSchedule) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Return the sort key of schedules: length, rare texts, version, and how late producers go on."""
    steps = drawn.steps
    rare = sum(part in step for step in steps for part in _COMPLEX) + 2 * sum(
        part in step for step in steps for part in _HARD
    )
    late = sum(at for at, step in enumerate(steps) if step.startswith("t "))
    return len(steps), rare, drawn.rules.epoch_bump, -late, steps


def _simpler(drawn: RandomSchedule) -> Iterator[RandomSchedule]:
    steps = drawn.steps
    size = len(steps) // 2
    while size:
        for at in range(0, len(steps), size):
            yield replace(drawn, steps=(*steps[:at], *steps[at + size :]))
        size //= 2
    for first in range(len(steps)):
        for second in range(first + 1, len(steps)):
            yield replace(drawn, steps=(*steps[:first], *steps[first + 1 : second], *steps[second + 1 :]))
    yield replace(drawn, rules=replace(drawn.rules, epoch_bump=False))
    for part, others in SIMPLER:
        yield replace(drawn, steps=tuple(step.replace(part, others) for step in steps))
        for at, step in enumerate(steps):
            if part in step:
                yield replace(drawn, steps=(*steps[:at], step.replace(part, others), *steps[at + 1 :]))
    outage = dict(SIMPLER[:2])
    yield replace(drawn, steps=tuple(outage.get(step, step) for step in steps))
    one_leads = (step.replace("3 cleans", "1 cleans") for step in steps if not step.endswith(" leads"))
    yield replace(drawn, steps=tuple(one_leads))
    for at in range(len(steps) - 1):
        if steps[at].startswith("t ") and steps[at + 1].endswith(_CLEANERS):
            yield replace(drawn, steps=(*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]))
