"""A schedule from a seed: what clients do, one broker away or added, cleaners and time whenever they like.

The same seed gives the same schedule on every machine. Steps that cannot happen are left out: what is given back is
what was played.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from models.steps import begin, take
from models.world import ABSENT, ADDED, BROKERS, OUTCOMES, PLAIN, PRODUCERS, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from models.world import World

LEAVES, LAGS, ADDS, NO_OUTAGE = "leaves", "lags", "is added", "no outage"
OUTAGES: Final = {LEAVES: 12, LAGS: 3, ADDS: 5}
"""How a broker comes to be behind, and how often of twenty."""
_ENDS_BY: Final = {LEAVES: "returns", LAGS: "returns", ADDS: "joins"}
_KEYS: Final = "KLM"
_DAYS: Final = (2, 5)
"""How many days an outage lasts at least and at most."""
_V2_SHARE: Final = 0.5
_TWO_PRODUCERS_SHARE: Final = 0.3
_DELETE_SHARE: Final = 0.4
_CLEAN_SHARES: Final = (0.5, 0.8, 1.0)
"""How likely a cleaner comes around in a day: one of these for all of a run."""


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
    redpanda: bool = False


@dataclass(frozen=True)
class _Chance:
    """What a run draws its steps from; ``share``: how likely a cleaner comes around in a day."""

    random: Random
    world: World
    keys: str
    clients: tuple[str, ...]
    share: float


def draw(seed: int, odds: Odds) -> Drawn:
    """Return the schedule of a seed."""
    random = Random(f"explore {seed}")  # noqa: S311  (nothing secret)
    rules = Rules(random.random() < _V2_SHARE, odds.coordinated, odds.without, odds.redpanda)
    outage = odds.outage or random.choices(list(OUTAGES), list(OUTAGES.values()))[0]
    producers = list(PRODUCERS)[: 2 if random.random() < _TWO_PRODUCERS_SHARE else 1]
    chance = _Chance(
        random,
        begin(rules),
        keys=_KEYS[: random.randint(1, len(_KEYS))],
        clients=(PLAIN, *producers),
        share=random.choice(_CLEAN_SHARES),
    )
    return Drawn(seed, rules, tuple(step for step in _life(chance, outage) if take(chance.world, step) is not None))


def _life(chance: _Chance, outage: str) -> Iterator[str]:
    yield from _some(chance, outage, 2, 10)
    if chance.world.rules.coordinated and chance.random.random() < chance.share:
        yield from _round(chance.world)
    absent = ADDED if outage == ADDS else ABSENT
    if outage != NO_OUTAGE:
        if chance.world.replication.leader_id == absent:
            yield f"{BROKERS[0]} leads"
        yield f"{absent} {outage}"
    for _ in range(chance.random.randint(*_DAYS)):
        yield from _some(chance, outage, 1, 5)
        yield from _day(chance)
    yield from _some(chance, outage, 0, 4)
    if outage != NO_OUTAGE:
        yield f"{absent} {_ENDS_BY[outage]}"
    if chance.world.rules.coordinated:
        yield from _wind_down(chance.world)


def _some(chance: _Chance, outage: str, least: int, most: int) -> Iterator[str]:
    odds = _WORKS | (_TALKS if chance.world.rules.coordinated else {}) | (_COPIES if outage == ADDS else {})
    for _ in range(chance.random.randint(least, most)):
        (thing,) = chance.random.choices(list(odds), list(odds.values()))
        step = thing(chance)
        if step is not None:
            yield step


def _writes(chance: _Chance) -> str:
    client, key = chance.random.choice(chance.clients), chance.random.choice(chance.keys)
    return f"{client} {'deletes' if chance.random.random() < _DELETE_SHARE else 'puts'} {key}"


def _ends(chance: _Chance) -> str:
    return f"{chance.random.choice(list(PRODUCERS))} {chance.random.choice(list(OUTCOMES))}"


def _cleans(chance: _Chance) -> str:
    return f"{chance.random.choice(chance.world.up)} cleans"


def _an_hour(_: _Chance) -> str:
    return "an hour passes"


def _leads(chance: _Chance) -> str:
    return f"{chance.random.choice(BROKERS)} leads"


def _copies(chance: _Chance) -> str | None:
    behind = sorted(chance.world.replication.away)
    return f"{behind[0]} copies a batch" if behind else None


def _reports(chance: _Chance) -> str:
    return f"{chance.random.choice(chance.world.up)} reports"


def _all_arrive(_: _Chance) -> str:
    return "messages arrive"


def _arrives(chance: _Chance, fate: str = "arrives") -> str | None:
    under_way = len(chance.world.under_way())
    return f"message {chance.random.randint(1, under_way)} {fate}" if under_way else None


def _is_lost(chance: _Chance) -> str | None:
    return _arrives(chance, "is lost")


_WORKS: Final[dict[Callable[[_Chance], str | None], int]] = {
    _writes: 8,
    _ends: 5,
    _cleans: 3,
    _an_hour: 1,
    _leads: 1,
    _copies: 1,
}
_TALKS: Final[dict[Callable[[_Chance], str | None], int]] = {_reports: 6, _arrives: 6, _all_arrive: 2, _is_lost: 1}


_COPIES: Final[dict[Callable[[_Chance], str | None], int]] = {_copies: 4}
"""An added replica copies slowly, or there would be nothing to miss."""


def _day(chance: _Chance) -> Iterator[str]:
    """Let cleaners come around, once or twice or not at all, while a day passes."""
    for broker in chance.world.up:
        for _ in range(chance.random.randint(1, 2)):
            if chance.random.random() < chance.share:
                yield f"{broker} cleans"
    if chance.world.rules.coordinated and chance.random.random() < chance.share:
        yield from _round(chance.world)
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
