"""Generates a schedule from a seed: what clients do, one broker away or added, cleaners and time at any moment.

The same seed gives the same schedule on every machine. Impossible steps are left out: the result is the schedule that
was played.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from harness.models.log.version_rules import VersionRules
from harness.models.world.steps import begin, take
from harness.models.world.world import ABSENT, ADDED, BROKERS, OUTCOMES, PLAIN, PRODUCERS, Rules
from harness.schedules.operations.administrators import AddReplica, AssignAgain, ElectLeader, Unassign
from harness.schedules.operations.clients import End, Write
from harness.schedules.operations.environment import (
    CleanerPass,
    CopyBatch,
    JoinIsr,
    MessageArrives,
    MessageIsLost,
    MessagesArrive,
    SendReport,
    TimePasses,
)
from harness.schedules.operations.faults import LAG, OUTAGE, Heal, Inject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.models.world.world import World
    from harness.schedules.operations.operation import Operation

LEAVES, LAGS, ADDS, NO_OUTAGE = "leaves", "lags", "is added", "no outage"
REASSIGNS: Final = "leaves, is unassigned and assigned again"
_BEGINS: Final[Mapping[str, Operation]] = {
    LEAVES: Inject(OUTAGE, ABSENT),
    LAGS: Inject(LAG, ABSENT),
    ADDS: AddReplica(ADDED),
    REASSIGNS: Inject(OUTAGE, ABSENT),
}
RETURNS, JOINS = Heal(OUTAGE, ABSENT), JoinIsr(ADDED)
OUTAGES: Final = {LEAVES: 12, LAGS: 3, ADDS: 5}
"""How a broker comes to be behind, and how often of twenty."""
PROTECTED_OUTAGES: Final = {**OUTAGES, REASSIGNS: 5}
"""The same where a gate protects: a gate alone does not count a replica that is unassigned for a time."""
_KEYS: Final = "KLM"
_DAYS: Final = (2, 5)
"""The least and the most days of an outage."""
_V2_SHARE: Final = 0.5
_NEW_COORDINATOR_SHARE: Final = 0.5
_TWO_PRODUCERS_SHARE: Final = 0.3
_DELETE_SHARE: Final = 0.4
_CLEAN_SHARES: Final = (0.5, 0.8, 1.0)
"""Probability of a cleaner pass in a day: one of these for all of a run."""


@dataclass(frozen=True)
class RandomSchedule:
    """The schedule of a seed: rules, and the steps that were taken under them."""

    seed: int
    rules: Rules
    steps: tuple[Operation, ...]


@dataclass(frozen=True)
class Odds:
    """The probabilities and rules to generate from. ``outage``: how a broker comes to be behind; None for any way.

    ``of_groups``: the log is one of ``__consumer_offsets``, of an old or a new coordinator. ``gate``, ``fresh_copies``:
    as of `harness.models.world.world.Rules`.
    """

    coordinated: bool = False
    without: frozenset[str] = frozenset()
    outage: str | None = None
    redpanda: bool = False
    of_groups: bool = False
    gate: bool = False
    fresh_copies: bool = False

    @property
    def outages(self) -> dict[str, int]:
        """How a broker may come to be behind, and how often."""
        return PROTECTED_OUTAGES if self.gate or self.fresh_copies else OUTAGES


@dataclass(frozen=True)
class _Generator:
    """State of one generation; ``share``: probability of a cleaner pass in a day."""

    random: Random
    world: World
    keys: str
    clients: tuple[str, ...]
    share: float


def draw(seed: int, odds: Odds) -> RandomSchedule:
    """Return the schedule of a seed."""
    random = Random(f"explore {seed}")  # noqa: S311  (nothing secret)
    rules = Rules(random.random() < _V2_SHARE, odds.coordinated, odds.without, odds.redpanda)
    if odds.of_groups:
        version = VersionRules(tombstone_drops_pending=random.random() < _NEW_COORDINATOR_SHARE)
        rules = replace(rules, of_groups=True, version=version)
    rules = replace(rules, gate=odds.gate, fresh_copies=odds.fresh_copies)
    outage = odds.outage or random.choices(list(odds.outages), list(odds.outages.values()))[0]
    producers = list(PRODUCERS)[: 2 if random.random() < _TWO_PRODUCERS_SHARE else 1]
    generator = _Generator(
        random,
        begin(rules),
        keys=_KEYS[: random.randint(1, len(_KEYS))],
        clients=(PLAIN, *producers),
        share=random.choice(_CLEAN_SHARES),
    )
    return RandomSchedule(
        seed, rules, tuple(step for step in _all_steps(generator, outage) if take(generator.world, step) is not None)
    )


def _all_steps(generator: _Generator, outage: str) -> Iterator[Operation]:
    yield from _random_steps(generator, outage, 2, 10)
    if generator.world.rules.coordinated and generator.random.random() < generator.share:
        yield from _report_round(generator.world)
    absent = ADDED if outage == ADDS else ABSENT
    if outage != NO_OUTAGE:
        if generator.world.replication.leader_id == absent:
            yield ElectLeader(BROKERS[0])
        yield _BEGINS[outage]
    for _ in range(generator.random.randint(*_DAYS)):
        yield from _random_steps(generator, outage, 1, 5)
        yield from _day(generator)
        if outage == REASSIGNS:
            yield Unassign(absent)
    if outage == REASSIGNS:
        yield AssignAgain(absent)
    yield from _random_steps(generator, ADDS if outage == REASSIGNS else outage, 0, 4)
    if outage != NO_OUTAGE:
        yield JOINS if outage == ADDS else RETURNS
    if generator.world.rules.coordinated or generator.world.rules.gate:
        yield from _wind_down(generator.world)


def _random_steps(generator: _Generator, outage: str, least: int, most: int) -> Iterator[Operation]:
    odds = (
        _CLUSTER_STEPS
        | (_MESSAGE_STEPS if generator.world.rules.coordinated else {})
        | (_COPY_STEPS if outage == ADDS else {})
    )
    for _ in range(generator.random.randint(least, most)):
        (step_of,) = generator.random.choices(list(odds), list(odds.values()))
        step = step_of(generator)
        if step is not None:
            yield step


def _writes(generator: _Generator) -> Operation:
    client, key = generator.random.choice(generator.clients), generator.random.choice(generator.keys)
    return Write(client, key, generator.random.random() < _DELETE_SHARE)


def _message(generator: _Generator, fate: type[MessageArrives | MessageIsLost]) -> Operation | None:
    under_way = len(generator.world.under_way())
    return fate(generator.random.randint(1, under_way)) if under_way else None


def _copies(generator: _Generator) -> Operation | None:
    behind = sorted(generator.world.replication.away)
    return CopyBatch(behind[0]) if behind else None


_CLUSTER_STEPS: Final[dict[Callable[[_Generator], Operation | None], int]] = {
    _writes: 8,
    lambda it: End(it.random.choice(list(PRODUCERS)), it.random.choice(OUTCOMES)): 5,
    lambda it: CleanerPass((it.random.choice(it.world.up),)): 3,
    lambda _: TimePasses(1): 1,
    lambda it: ElectLeader(it.random.choice(BROKERS)): 1,
    _copies: 1,
}
_MESSAGE_STEPS: Final[dict[Callable[[_Generator], Operation | None], int]] = {
    lambda it: SendReport(it.random.choice(it.world.up)): 6,
    lambda it: _message(it, MessageArrives): 6,
    lambda _: MessagesArrive(): 2,
    lambda it: _message(it, MessageIsLost): 1,
}
_COPY_STEPS: Final[dict[Callable[[_Generator], Operation | None], int]] = {_copies: 4}
"""An added replica copies slowly, or it would miss nothing."""


def _day(generator: _Generator) -> Iterator[Operation]:
    """Let cleaners run, once or twice or not at all, while a day passes."""
    for broker in generator.world.up:
        for _ in range(generator.random.randint(1, 2)):
            if generator.random.random() < generator.share:
                yield CleanerPass((broker,))
    if generator.world.rules.coordinated and generator.random.random() < generator.share:
        yield from _report_round(generator.world)
    yield TimePasses()


def _report_round(world: World) -> Iterator[Operation]:
    """Let every live replica report its offsets, and deliver all messages that result."""
    yield from map(SendReport, world.up)
    yield MessagesArrive()


def _wind_down(world: World) -> Iterator[Operation]:
    """Let compaction that has waited get as far as possible, so that the removal of retained records shows."""
    for _ in range(3):
        for _ in range(2):
            yield from (CleanerPass((broker,)) for broker in world.up)
        for _ in range(2 if world.rules.coordinated else 0):
            yield from _report_round(world)
        yield TimePasses()
