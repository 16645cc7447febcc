"""The smallest schedule: steps are left out, and words made simpler, for as long as the same thing goes wrong.

Of equally small ones that is taken which real brokers can go through (`harness.plan.schedule.scenario_of`): without
a change of leader, lag or hours, with one transactional client, whose later steps come when the cleaners are done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from models.steps import play
from models.world import ABSENT, ADDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.explore.chance import Drawn

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
"""Words, and simpler ones that may do as well: at one place, or everywhere."""
_COMPLEX: Final = tuple(words for words, _ in SIMPLER)
_HARD: Final = (" leads", " copies a batch", "message", " reports")
_CLEANERS: Final = (" cleans", "time passes")


def is_wrong(drawn: Drawn, name: str) -> bool:
    """Whether a schedule leads to something wrong of that name."""
    return any(name == found for _, found in play(drawn.rules, drawn.steps).violations())


def shrink(drawn: Drawn, name: str, stays: Callable[[Drawn, str], bool] = is_wrong) -> Drawn:
    """Return the smallest of what can be had by small changes, each of which keeps ``name`` wrong."""
    while smaller := next((one for one in _simpler(drawn) if cost(one) < cost(drawn) and stays(one, name)), None):
        drawn = smaller
    return drawn


def cost(drawn: Drawn) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Return by what schedules are compared: length, rare words, version, and how late producers go on."""
    steps = drawn.steps
    rare = sum(words in step for step in steps for words in _COMPLEX) + 2 * sum(
        words in step for step in steps for words in _HARD
    )
    late = sum(at for at, step in enumerate(steps) if step.startswith("t "))
    return len(steps), rare, drawn.rules.epoch_bump, -late, steps


def _simpler(drawn: Drawn) -> Iterator[Drawn]:
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
    for words, others in SIMPLER:
        yield replace(drawn, steps=tuple(step.replace(words, others) for step in steps))
        for at, step in enumerate(steps):
            if words in step:
                yield replace(drawn, steps=(*steps[:at], step.replace(words, others), *steps[at + 1 :]))
    outage = dict(SIMPLER[:2])
    yield replace(drawn, steps=tuple(outage.get(step, step) for step in steps))
    one_leads = (step.replace("3 cleans", "1 cleans") for step in steps if not step.endswith(" leads"))
    yield replace(drawn, steps=tuple(one_leads))
    for at in range(len(steps) - 1):
        if steps[at].startswith("t ") and steps[at + 1].endswith(_CLEANERS):
            yield replace(drawn, steps=(*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]))
