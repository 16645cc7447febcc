"""Random schedules of ``explore``: clients, one broker that is behind or added, cleaners and time; drawn and shrunk.

The same seed gives the same schedule on every machine. The model plays each operation before the next is drawn, and
impossible operations are left out. To shrink a schedule, operations are left out, and others simplified, while the same
finding occurs. Of equally small schedules, those are preferred that real brokers can replay
(`harness.schedules.replay.scenario_of`): without a change of leader, lag or hours, with one transactional client, whose
later steps come after the cleaners'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from random import Random
from typing import Final

from harness.models.log.version_rules import VersionRules
from harness.models.world.steps import begin, play, take
from harness.models.world.world import ABSENT, ADDED, BROKERS, OUTCOMES, PLAIN, PRODUCERS, Rules, World
from harness.schedules.generators import Context, Each, Generator, Lazy, Limit, Mix, Phases, fixed, operations
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
from harness.schedules.operations.operation import Operation
from harness.schedules.replay import why_not_replayable
from harness.schedules.schedule import Schedule, in_order
from harness.schedules.shrink import ddmin

LEAVES, LAGS, ADDS, NO_OUTAGE = "leaves", "lags", "is added", "no outage"
OUTAGE_BEGINS, OUTAGE_ENDS = Inject(OUTAGE, ABSENT), Heal(OUTAGE, ABSENT)
REASSIGNS: Final = "leaves, is unassigned and assigned again"
BEGINNINGS: Final[Mapping[str, Operation]] = {
    LEAVES: OUTAGE_BEGINS,
    LAGS: Inject(LAG, ABSENT),
    ADDS: AddReplica(ADDED),
    REASSIGNS: OUTAGE_BEGINS,
}
OUTAGES: Final = {LEAVES: 12, LAGS: 3, ADDS: 5}
"""The ways in which a broker falls behind, by weight."""
PROTECTED_OUTAGES: Final = {**OUTAGES, REASSIGNS: 5}
"""The ways with a gate, which alone does not count a replica that is unassigned for a time."""
KEYS: Final = "KLM"
DAYS: Final = (2, 5)
"""The minimum and maximum length of an outage."""
V2_SHARE, NEW_COORDINATOR_SHARE, TWO_PRODUCERS_SHARE, DELETE_SHARE = 0.5, 0.5, 0.3, 0.4
CLEAN_SHARES: Final = (0.5, 0.8, 1.0)
"""The probability of a cleaner pass in a day: one value for each schedule."""


@dataclass(frozen=True)
class RandomSchedule:
    """The schedule of a seed: its rules, and the operations that the model performed under these rules."""

    seed: int
    rules: Rules
    steps: tuple[Operation, ...]


def draw(seed: int, rules: Rules, outage: str | None = None) -> RandomSchedule:
    """Return the schedule of a seed, with the versions of transactions and of the group coordinator drawn, too.

    ``outage``: how a broker falls behind; None for any way.
    """
    random = Random(f"explore {seed}")  # noqa: S311  (no secret)
    rules = replace(rules, epoch_bump=random.random() < V2_SHARE)
    if rules.of_groups:
        version = VersionRules(tombstone_drops_pending=random.random() < NEW_COORDINATOR_SHARE)
        rules = replace(rules, version=version)
    outages = PROTECTED_OUTAGES if rules.gate or rules.fresh_copies else OUTAGES
    outage = outage or random.choices(list(outages), list(outages.values()))[0]
    producers = list(PRODUCERS)[: 2 if random.random() < TWO_PRODUCERS_SHARE else 1]
    keys = KEYS[: random.randint(1, len(KEYS))]
    generator = _schedule(rules, outage, keys, (PLAIN, *producers), random.choice(CLEAN_SHARES))
    world = begin(rules)
    drawn = operations(generator, Context(world=world, stream=random))
    return RandomSchedule(seed, rules, tuple(step for step in drawn if take(world, step) is not None))


def _schedule(rules: Rules, outage: str, keys: str, clients: tuple[str, ...], clean_share: float) -> Generator:
    def several(outage: str, least: int, most: int) -> Generator:
        mix = Mix(tuple((weight, Each(choose)) for choose, weight in _weights(rules, outage, write).items()))
        return Lazy(lambda context: Limit(_random(context).randint(least, most), mix))

    def write(context: Context) -> Operation:
        random = _random(context)
        return Write(random.choice(clients), random.choice(keys), random.random() < DELETE_SHARE)

    def is_lucky(context: Context) -> bool:
        return _random(context).random() < clean_share

    def reports(context: Context) -> Generator:
        return fixed(*(_report_round(context.world) if rules.coordinated and is_lucky(context) else ()))

    def passes(context: Context) -> Generator:
        return fixed(
            *(
                CleanerPass((broker,))
                for broker in context.world.up
                for _ in range(_random(context).randint(1, 2))
                if is_lucky(context)
            )
        )

    def lead_elsewhere(context: Context) -> Generator:
        return fixed(*([ElectLeader(BROKERS[0])] if context.world.replication.leader_id == absent else []))

    absent, is_reassigned = ADDED if outage == ADDS else ABSENT, outage == REASSIGNS
    day = (
        *(several(outage, 1, 5), Lazy(passes), Lazy(reports)),
        fixed(TimePasses(), *([Unassign(absent)] if is_reassigned else [])),
    )
    has_outage = outage != NO_OUTAGE
    return Phases(
        (
            several(outage, 2, 10),
            Lazy(reports),
            *((Lazy(lead_elsewhere), fixed(BEGINNINGS[outage])) if has_outage else ()),
            Lazy(lambda context: Phases(day * _random(context).randint(*DAYS))),
            fixed(*([AssignAgain(absent)] if is_reassigned else [])),
            several(ADDS if is_reassigned else outage, 0, 4),
            fixed(*([JoinIsr(ADDED) if outage == ADDS else OUTAGE_ENDS] if has_outage else [])),
            Lazy(_wind_down),
        )
    )


def _random(context: Context) -> Random:
    return context.random("explore")


def _weights(
    rules: Rules, outage: str, write: Callable[[Context], Operation]
) -> dict[Callable[[Context], Operation], int]:
    """Return the functions that choose an operation, by weight. A replica copies slowly, or it would miss nothing."""
    return {
        write: 8,
        lambda it: End(_random(it).choice(list(PRODUCERS)), _random(it).choice(OUTCOMES)): 5,
        lambda it: CleanerPass((_random(it).choice(it.world.up),)): 3,
        lambda _: TimePasses(1): 1,
        lambda it: ElectLeader(_random(it).choice(BROKERS)): 1,
        lambda it: CopyBatch(min(it.world.replication.away, default=0)): 4 if outage == ADDS else 1,
    } | (
        {
            lambda it: SendReport(_random(it).choice(it.world.up)): 6,
            partial(_message, MessageArrives): 6,
            lambda _: MessagesArrive(): 2,
            partial(_message, MessageIsLost): 1,
        }
        if rules.coordinated
        else {}
    )


def _message(fate: type[MessageArrives | MessageIsLost], context: Context) -> Operation:
    """Return what happens to one of the messages; message 0 does not exist, and the operation is left out."""
    in_flight = len(context.world.in_flight())
    return fate(_random(context).randint(1, in_flight) if in_flight else 0)


def _report_round(world: World) -> list[Operation]:
    return [*map(SendReport, world.up), MessagesArrive()]


def _wind_down(context: Context) -> Generator:
    """Return cleaner passes after which the effects of retained records show, where coordination or a gate waits."""
    world: World = context.world
    if not (world.rules.coordinated or world.rules.gate):
        return fixed()
    reports = 2 * _report_round(world) if world.rules.coordinated else []
    return fixed(*(3 * [*2 * [CleanerPass((broker,)) for broker in world.up], *reports, TimePasses()]))


def _instead_of(old: Operation, new: Operation) -> Callable[[Operation], Operation]:
    return lambda operation: new if operation == old else operation


def _field(name: str, old: str, new: str) -> Callable[[Operation], Operation]:
    def simpler(operation: Operation) -> Operation:
        return replace(operation, **{name: new}) if getattr(operation, name, None) == old else operation  # type: ignore[type-var]

    return simpler


LEADER_CLEANS: Final = CleanerPass((1,))
ADDED_LEAVES: Final[Mapping[Operation, Operation]] = {AddReplica(ADDED): OUTAGE_BEGINS, JoinIsr(ADDED): OUTAGE_ENDS}
SIMPLER: Final[Sequence[Callable[[Operation], Operation]]] = (
    *(_instead_of(old, new) for old, new in ADDED_LEAVES.items()),
    _instead_of(Inject(LAG, ABSENT), OUTAGE_BEGINS),
    _instead_of(TimePasses(1), TimePasses()),
    _instead_of(CleanerPass((3,)), LEADER_CLEANS),
    _instead_of(CleanerPass((ABSENT,)), LEADER_CLEANS),
    _field("process", "u", "t"),
    _field("key", "M", "K"),
    _field("key", "L", "K"),
    _field("key", "M", "L"),
)
"""Functions that make an operation simpler: tried at one place, and everywhere."""
RARE: Final = (ElectLeader, CopyBatch, MessageArrives, MessageIsLost, MessagesArrive, SendReport)


def is_wrong(drawn: RandomSchedule, name: str) -> bool:
    """Return whether a schedule leads to an anomaly or a consequence for groups (`harness.models.world.groups`)."""
    world = play(drawn.rules, drawn.steps)
    return any(name == other for _, other in (*world.violations(), *world.consequences()))


def is_replayable(name: str, drawn: RandomSchedule) -> bool:
    """Return whether real brokers can replay a schedule."""
    return why_not_replayable(Schedule(in_order(*drawn.steps), name)) is None


def smallest(name: str, seeds: Sequence[int], rules: Rules) -> RandomSchedule:
    """Return the smallest schedule of a few seeds, preferably a schedule that can be replayed."""
    candidates = [shrink(draw(seed, rules), name) for seed in seeds]
    return min(candidates, key=lambda drawn: (not is_replayable(name, drawn), cost(drawn)))


def shrink(drawn: RandomSchedule, name: str) -> RandomSchedule:
    """Return the smallest schedule within reach of small changes, each of which keeps the finding ``name``."""
    smaller: RandomSchedule | None = drawn
    while smaller:
        drawn = _shorter(smaller, name)
        smaller = next(
            (other for other in _simpler(drawn) if cost(other) < cost(drawn) and is_wrong(other, name)), None
        )
    return drawn


def _shorter(drawn: RandomSchedule, name: str) -> RandomSchedule:
    steps = ddmin(drawn.steps, lambda steps: is_wrong(replace(drawn, steps=tuple(steps)), name))
    return replace(drawn, steps=tuple(steps))


def cost(drawn: RandomSchedule) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Return the sort key of schedules: length, rare operations, version, and how late producers continue."""
    steps = drawn.steps
    rare = sum(simpler(step) != step for step in steps for simpler in SIMPLER)
    rare += 2 * sum(isinstance(step, RARE) for step in steps)
    late = sum(at for at, step in enumerate(steps) if step.process == "t")
    return len(steps), rare, drawn.rules.epoch_bump, -late, tuple(map(str, steps))


def _simpler(drawn: RandomSchedule) -> Iterator[RandomSchedule]:
    steps = drawn.steps
    yield from (
        replace(drawn, steps=(*steps[:first], *steps[first + 1 : second], *steps[second + 1 :]))
        for first, second in combinations(range(len(steps)), 2)
    )
    yield replace(drawn, rules=replace(drawn.rules, epoch_bump=False))
    for simpler in SIMPLER:
        yield replace(drawn, steps=tuple(map(simpler, steps)))
        for at, step in enumerate(steps):
            if simpler(step) != step:
                yield replace(drawn, steps=(*steps[:at], simpler(step), *steps[at + 1 :]))
    yield replace(drawn, steps=tuple(ADDED_LEAVES.get(step, step) for step in steps))
    leader_cleans = (LEADER_CLEANS if step == CleanerPass((3,)) else step for step in steps)
    yield replace(drawn, steps=tuple(step for step in leader_cleans if not isinstance(step, ElectLeader)))
    for at in range(len(steps) - 1):
        if steps[at].process == "t" and isinstance(steps[at + 1], CleanerPass | TimePasses):
            yield replace(drawn, steps=(*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]))
