"""A schedule from a seed: what clients do, one broker away or added, cleaners and time whenever they like.

The same seed gives the same schedule on every machine. Steps that cannot happen are left out: what is given back is
what was played.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from models.steps import ABSENT, ADDED, BROKERS, Rules, begin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from models.steps import World

LEAVES, LAGS, ADDS, NO_OUTAGE = "leaves", "lags", "is added", "no outage"
OUTAGES: Final = {LEAVES: 12, LAGS: 3, ADDS: 5}
"""How a broker comes to be behind, and how often of twenty."""
_KEYS: Final = "KLM"
_WORKS: Final = {"write": 8, "end": 5, "clean": 3, "hour": 1, "lead": 1, "copy": 1}
_LEAST_DAYS, _MOST_DAYS = 2, 5
_TALKS: Final = {"report": 6, "arrive": 6, "all arrive": 2, "lose": 1}


@dataclass(frozen=True)
class Drawn:
    """What a seed gives: rules, and the steps that were taken by them."""

    seed: int
    rules: Rules
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Odds:
    """What is drawn from. ``outage``: how a broker comes to be behind; None for any way."""

    coordinated: bool = False
    without: frozenset[str] = frozenset()
    outage: str | None = None


def draw(seed: int, odds: Odds) -> Drawn:
    """Return the schedule of a seed."""
    random = Random(f"explore {seed}")  # noqa: S311  (nothing secret)
    rules = Rules(random.random() < 0.5, odds.coordinated, odds.without)
    outage = odds.outage or random.choices(list(OUTAGES), list(OUTAGES.values()))[0]
    world = begin(rules)
    steps = tuple(step for step in _drawn(random, world, outage) if world.take(step) is not None)
    return Drawn(seed, rules, steps)


def _drawn(random: Random, world: World, outage: str) -> Iterator[str]:
    keys, whos = _KEYS[: random.randint(1, 3)], "ptu" if random.random() < 0.3 else "pt"
    share = random.choice((0.5, 0.8, 1.0))
    odds = {**_WORKS, **(_TALKS if world.rules.coordinated else {})}
    if outage == ADDS:
        odds["copy"] *= 4

    def some(least: int, most: int) -> Iterator[str]:
        for _ in range(random.randint(least, most)):
            (thing,) = random.choices(list(odds), list(odds.values()))
            yield from _thing(random, world, thing, keys, whos)

    yield from some(2, 10)
    if world.rules.coordinated and random.random() < share:
        yield from _round(world)
    absent = ADDED if outage == ADDS else ABSENT
    if outage != NO_OUTAGE:
        yield f"{absent} {outage}"
    for _ in range(random.randint(_LEAST_DAYS, _MOST_DAYS)):
        yield from some(1, 5)
        yield from _day(random, world, share)
    yield from some(0, 4)
    if outage != NO_OUTAGE:
        yield f"{absent} {'joins' if outage == ADDS else 'returns'}"
    if world.rules.coordinated:
        yield from _wind_down(world)


def _thing(random: Random, world: World, thing: str, keys: str, whos: str) -> Iterator[str]:
    if thing == "write":
        who, key = random.choice(whos), random.choice(keys)
        yield f"{who} {'deletes' if random.random() < 0.4 else 'puts'} {key}"
    elif thing == "end":
        yield f"{random.choice('tu')} {random.choice(('commits', 'aborts'))}"
    elif thing == "clean":
        yield f"{random.choice(world.up)} cleans"
    elif thing == "hour":
        yield "an hour passes"
    elif thing == "lead":
        yield f"{random.choice(BROKERS)} leads"
    elif thing == "copy":
        behind = random.choice((ABSENT, ADDED))
        if behind in world.replication.away:
            yield f"{behind} copies a batch"
    elif thing == "report":
        yield f"{random.choice(world.up)} reports"
    elif thing == "all arrive":
        yield "messages arrive"
    elif under_way := world.under_way():
        yield f"message {random.randint(1, len(under_way))} {'is lost' if thing == 'lose' else 'arrives'}"


def _day(random: Random, world: World, share: float) -> Iterator[str]:
    """Let cleaners come around, or not, while a day passes."""
    for broker in world.up:
        for _ in range(random.choice((1, 2))):
            if random.random() < share:
                yield f"{broker} cleans"
    if world.rules.coordinated and random.random() < share:
        yield from _round(world)
    yield "time passes"


def _round(world: World) -> Iterator[str]:
    """Let every replica that is up say how far it is, and all hear what comes of it."""
    yield from (f"{broker} reports" for broker in world.up)
    yield "messages arrive"


def _wind_down(world: World) -> Iterator[str]:
    """Let replicas that compact together get as far as they come, so that what was kept can be seen to go."""
    for _ in range(3):
        for _ in range(2):
            yield from (f"{broker} cleans" for broker in world.up)
        for _ in range(2):
            yield from _round(world)
        yield "time passes"
