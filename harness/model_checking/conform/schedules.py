"""Schedules: the known ways to an anomaly, and random ones from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import takewhile, zip_longest
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.model_checking.conform.simulated import FILLER_KEY, KEYS, LATE_KEY, Simulated
from harness.models.world.world import (
    ABSENT,
    BROKERS,
    IDEMPOTENT,
    KILL,
    OUTCOMES,
    PAUSE,
    PLAIN,
    PRODUCERS,
    STOP,
)
from harness.schedules.operations.administrators import DeleteRecords, ElectLeader
from harness.schedules.operations.clients import ABORT, COMMIT, End, EndElsewhere, Restart, WriteBatch
from harness.schedules.operations.environment import CleanerPass, JoinIsr, ProducersExpire, Rest, TimePasses
from harness.schedules.operations.faults import OUTAGE, Heal, Inject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.models.log.version_rules import VersionRules
    from harness.schedules.operations.operation import Operation

STAYING: Final = (1, 3)
"""The brokers that never go away; ABSENT alone goes away and comes back, or joins."""
TRANSACTIONAL, SECOND = PRODUCERS
TIME_PASSES, EXPIRE, REST = TimePasses(), ProducersExpire(), Rest()
LEAVES: Final = tuple(Inject(how, ABSENT) for how in (KILL, STOP, PAUSE))
RETURN, JOIN = Heal(OUTAGE, ABSENT), JoinIsr(ABSENT)
CLUSTER_WIDE: Final = (Inject, Heal, CleanerPass, TimePasses, ProducersExpire)
"""Operations of the whole cluster: when many schedules run on one cluster, they have these in common."""
FILLER: Final = WriteBatch(PLAIN, (FILLER_KEY,))
"""Rolls a segment: earlier batches can then be cleaned, and the log has dirty records."""
DELETED, KEPT, EVERYONE, EXPIRED, JOINED = 0.3, 0.3, 0.6, 0.6, 0.2
"""How often a record is a tombstone, a pass keeps what ages, all brokers clean, producers expire, a replica joins."""
OFFSET_WRITERS: Final = ((PLAIN, 4), (TRANSACTIONAL, 4), (SECOND, 2))
"""Who commits offsets, and how often."""
PUT, DELETE, BEGIN, BEGIN_DELETE = (
    WriteBatch(who, ("K",), tombstones) for who in (PLAIN, TRANSACTIONAL) for tombstones in ((), (0,))
)
GOOD: Final = WriteBatch(TRANSACTIONAL, (LATE_KEY,))
COMMITS, ABORTS = End(TRANSACTIONAL, COMMIT), End(TRANSACTIONAL, ABORT)


ALL_CLEAN: Final = CleanerPass(BROKERS)
PASS: Final = (FILLER, ALL_CLEAN)

WAYS: Final[Mapping[str, Sequence[Sequence[Operation]]]] = {
    "tombstone-divergence": ([PUT], [DELETE], []),
    "aborted-to-committed": ([BEGIN], [ABORTS], [GOOD, COMMITS]),
    "aborted-to-committed-delete": ([PUT, BEGIN_DELETE], [ABORTS], [GOOD, COMMITS]),
    "committed-to-aborted-value": ([BEGIN], [PUT, COMMITS], [GOOD, ABORTS]),
    "committed-to-aborted-delete": ([PUT, BEGIN_DELETE], [COMMITS], [GOOD, ABORTS]),
    "stuck-lso": ([BEGIN], [PUT, COMMITS], []),
}
"""What clients do before the outage, the steps that the absent broker misses, and the steps after their removal."""
GROUP_WAYS: Final[Mapping[str, Sequence[Sequence[Operation]]]] = {
    "group-frozen": ([BEGIN], [COMMITS, PUT], [], [DELETE, ElectLeader(3), ElectLeader(2)]),
    "group-skips": ([PUT, BEGIN], [ABORTS], [GOOD, COMMITS], []),
    "group-begins-at-aborted": ([BEGIN], [ABORTS], [GOOD, COMMITS], []),
    "deleted-offset-back": ([PUT], [DELETE], [], []),
    "offset-hidden-but-superseded": ([BEGIN], [COMMITS, PUT], [GOOD, ABORTS], []),
    "offset-deleted-while-pending": ([PUT, BEGIN, DELETE, COMMITS, ElectLeader(3), ElectLeader(1)], [], [], []),
}
"""The same for groups (`harness.models.world.groups`), and what happens in the end, while broker 2 coordinates them."""


@dataclass(frozen=True)
class Schedule:
    """Operations on one partition. ``name``: its topic. ``replicas``: its initial brokers, leader first.

    ``version``: of its transactions; 2 raises the epoch with every end (KIP-890). ``of_group``: records are committed
    offsets of a group, and the partition is one of ``__consumer_offsets``.
    """

    name: str
    steps: tuple[Operation, ...]
    replicas: tuple[int, ...] = (1, 3, 2)
    version: int = 1
    of_group: bool = False


def written(version: int) -> list[Schedule]:
    """Return a way to each payload: markers and tombstones are removed while broker 2 is away."""
    return [Schedule(name, steps, version=version) for name, steps in _outages({k: (*v, []) for k, v in WAYS.items()})]


def written_of_groups(version: int) -> list[Schedule]:
    """Return the ways to each answer of a group coordinator that differs from another one's, in the same outage."""
    return [Schedule(name, steps, version=version, of_group=True) for name, steps in _outages(GROUP_WAYS)]


def _outages(ways: Mapping[str, Sequence[Sequence[Operation]]]) -> Iterator[tuple[str, tuple[Operation, ...]]]:
    """Yield the name and the steps of each way; all have their cluster-wide steps in common."""
    before, missed, late, end = ([*zip_longest(*parts, fillvalue=REST)] for parts in zip(*ways.values(), strict=True))
    for number, name in enumerate(ways):
        steps: list[Operation] = [*(one[number] for one in before), LEAVES[0], *(one[number] for one in missed)]
        steps += [*PASS, EXPIRE, *PASS, *PASS, *PASS, *(one[number] for one in late), RETURN]
        steps += [*PASS, ElectLeader(ABSENT), *(one[number] for one in end), *PASS]
        yield name, tuple(steps)


def at_random(seed: str, count: int, version: int, rules: VersionRules, *, of_groups: bool = False) -> list[Schedule]:
    """Return so many schedules with their cluster-wide steps in common; the same for the same seed."""
    common = _common(Random(f"{seed} common"))  # noqa: S311  (not for secrets)
    prefix = "group-" if of_groups else ""
    return [
        _one(Random(f"{seed} {n}"), f"{prefix}random-{n}", common, version, rules, of_group=of_groups)  # noqa: S311
        for n in range(count)
    ]


def _common(random: Random) -> list[Operation | None]:
    """Return a step of the whole cluster; None where each partition has a step of its own."""

    def some(least: int, most: int) -> list[Operation | None]:
        return [None] * random.randint(least, most)

    def cleans(live: tuple[int, ...], *, may_keep: bool = True) -> list[Operation | None]:
        brokers = live if random.random() < EVERYONE else (random.choice(live),)
        return [*some(1, 2), CleanerPass(brokers, may_keep and random.random() < KEPT)]

    def forgets() -> list[Operation | None]:
        return [EXPIRE] if random.random() < EXPIRED else []

    steps = [*some(2, 4), *cleans(BROKERS, may_keep=False), *some(1, 2), *forgets()]
    steps += [random.choices(LEAVES, (3, 1, 1))[0], *some(1, 2)]
    steps += [*cleans(STAYING), *forgets(), *cleans(STAYING), TIME_PASSES, *cleans(STAYING), *cleans(STAYING)]
    return [*steps, *some(1, 2), RETURN, *cleans(BROKERS), *forgets(), *cleans(BROKERS), *cleans(BROKERS)]


def _one(
    random: Random, name: str, common: list[Operation | None], version: int, rules: VersionRules, *, of_group: bool
) -> Schedule:
    """Choose a step of one partition, among those that the model allows."""
    joins = not of_group and random.random() < JOINED
    replicas = STAYING if joins else (1, 3, 2)
    model = Simulated(Schedule(name, (), replicas, version, of_group), rules)
    local = _local_of_group if of_group else _local
    steps: list[Operation] = []
    is_away = False
    for at, befalls in enumerate(common):
        until_next = takewhile(lambda one: one is not None, common[at + 1 :])
        leaves_next = any(one in LEAVES for one in until_next)
        step = befalls or local(random, model, may_lead=not leaves_next, is_away=is_away)
        is_away = step in LEAVES or (is_away and step != RETURN)
        model.take(step)
        steps.append(step)
    return Schedule(name, tuple(steps), replicas, version, of_group)


Choice: TypeAlias = "tuple[int, Callable[[], Operation], bool]"
"""How likely a step is, what makes it, and whether it is possible now."""


def _local(random: Random, model: Simulated, *, may_lead: bool, is_away: bool) -> Operation:
    world = model.world
    log_end = world.replication.leader.log_end
    writes: list[Choice] = [
        (weight, partial(_write, random, name), model.can_write(name))
        for name, weight in ((PLAIN, 4), (IDEMPOTENT, 2), (TRANSACTIONAL, 4), (SECOND, 2))
    ]
    others: list[Choice] = [
        (1, lambda: DeleteRecords(log_end - random.randint(1, log_end)), log_end > 0),
        (3, lambda: JOIN, ABSENT not in world.replicas and not is_away and may_lead),
    ]
    return _chosen(random, model, writes, others, may_lead=may_lead)


def _local_of_group(random: Random, model: Simulated, *, may_lead: bool, is_away: bool) -> Operation:  # noqa: ARG001  (as `_local`)
    """Choose a step: a commit has one offset, as coordinators order those of one commit by a hash."""
    deletable = [key for key in KEYS if model.world.may_delete(PLAIN, key)]
    writes: list[Choice] = [
        *(
            (weight, lambda name=name: WriteBatch(name, (random.choice(KEYS),)), True)
            for name, weight in OFFSET_WRITERS
        ),
        (2, lambda: WriteBatch(PLAIN, (random.choice(deletable),), (0,)), bool(deletable)),
    ]
    return _chosen(random, model, writes, [], may_lead=may_lead)


def _chosen(
    random: Random, model: Simulated, writes: list[Choice], others: list[Choice], *, may_lead: bool
) -> Operation:
    world = model.world
    leader_id = world.replication.leader_id
    if not may_lead and leader_id == ABSENT:
        return ElectLeader(random.choice(STAYING))
    is_open = {name: world.clients[name].open is not None for name in PRODUCERS}
    leaders = [one for one in sorted(world.up) if one != leader_id and (may_lead or one != ABSENT)]
    lone_ends = [EndElsewhere(TRANSACTIONAL, outcome) for outcome in OUTCOMES]
    choices: list[Choice] = [
        *writes,
        *((5, partial(End, name, random.choice(OUTCOMES)), is_open[name]) for name in PRODUCERS),
        (1, lambda: random.choice(lone_ends), not is_open[TRANSACTIONAL] and not world.rules.epoch_bump),
        (1, lambda: Restart(SECOND), is_open[SECOND]),
        (1, lambda: ElectLeader(random.choice(leaders)), bool(leaders)),
        *others,
    ]
    legal = [(weight, make) for weight, make, is_legal in choices if is_legal]
    return random.choices([make for _, make in legal], [weight for weight, _ in legal])[0]()


def _write(random: Random, producer: str) -> Operation:
    count = random.choices((1, 2, 3), (5, 2, 1))[0]
    records = [(random.random() < DELETED, random.choice(KEYS)) for _ in range(count)]
    tombstones = tuple(at for at, (deletes, _) in enumerate(records) if deletes)
    return WriteBatch(producer, tuple(key for _, key in records), tombstones)
