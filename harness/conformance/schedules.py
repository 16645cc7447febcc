"""Schedules: the known ways to an anomaly, and random ones from a seed."""

from __future__ import annotations

from functools import partial
from itertools import takewhile, zip_longest
from random import Random
from typing import TYPE_CHECKING, Final

from harness.brokers.segments.markers import ABORT, COMMIT
from harness.conformance.simulated import Simulated
from harness.conformance.steps import (
    BROKERS,
    IDEMPOTENT,
    KILL,
    LEAVES,
    PAUSE,
    PLAIN,
    SECOND,
    STAYING,
    STOP,
    TRANSACTIONAL,
    TRANSACTIONAL_ONES,
    Clean,
    DeleteRecords,
    End,
    EndElsewhere,
    Expire,
    Fence,
    Join,
    Lead,
    Leave,
    Rest,
    Return,
    Schedule,
    TimePasses,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.conformance.steps import CommonStep, LocalStep, Step
    from models.rules import Rules

FILLER: Final = Write(PLAIN, ("filler",))
"""Rolls a segment: earlier batches can then be cleaned, and the log has dirty records."""
KEYS: Final = ("K", "L", "M")
DELETED, KEPT, EVERYONE, EXPIRED, JOINED = 0.3, 0.3, 0.6, 0.6, 0.2
"""How often a record is a tombstone, a pass keeps what ages, all brokers clean, producers expire, a replica joins."""
PUT, DELETE, BEGIN, BEGIN_DELETE = (Write(who, (key,)) for who in (PLAIN, TRANSACTIONAL) for key in ("K", "-K"))
GOOD: Final = Write(TRANSACTIONAL, ("G",))
COMMITS, ABORTS = End(TRANSACTIONAL, COMMIT), End(TRANSACTIONAL, ABORT)
REST: Final = Rest()
PASS: Final = (FILLER, Clean())

WAYS: Final = {
    "tombstone-divergence": ([PUT], [DELETE], []),
    "aborted-to-committed": ([BEGIN], [ABORTS], [GOOD, COMMITS]),
    "aborted-to-committed-delete": ([PUT, BEGIN_DELETE], [ABORTS], [GOOD, COMMITS]),
    "committed-to-aborted": ([PUT, BEGIN_DELETE], [COMMITS], [GOOD, ABORTS]),
    "stuck-lso": ([BEGIN], [PUT, COMMITS], []),
}
"""What clients do before the outage, the steps that the absent broker misses, and the steps after their removal."""


def written(version: int) -> list[Schedule]:
    """Return the five ways to an anomaly, in which markers and tombstones are removed while broker 2 is away."""
    before, missed, late = ([*zip_longest(*parts, fillvalue=REST)] for parts in zip(*WAYS.values(), strict=True))
    schedules = []
    for number, name in enumerate(WAYS):
        steps: list[Step] = [*(one[number] for one in before), Leave(), *(one[number] for one in missed)]
        steps += [*PASS, Expire(), *PASS, *PASS, *PASS, *(one[number] for one in late), Return()]
        steps += [*PASS, Lead(LEAVES), *PASS]
        schedules.append(Schedule(name, tuple(steps), version=version))
    return schedules


def at_random(seed: str, count: int, version: int, rules: Rules) -> list[Schedule]:
    """Return so many schedules with their cluster-wide steps in common; the same for the same seed."""
    common = _common(Random(f"{seed} common"))  # noqa: S311  (not for secrets)
    return [_one(Random(f"{seed} {n}"), f"random-{n}", common, version, rules) for n in range(count)]  # noqa: S311


def _common(random: Random) -> list[CommonStep | None]:
    """Return a step of the whole cluster; None where each partition has a step of its own."""

    def some(least: int, most: int) -> list[CommonStep | None]:
        return [None] * random.randint(least, most)

    def cleans(live: tuple[int, ...], *, may_keep: bool = True) -> list[CommonStep | None]:
        brokers = live if random.random() < EVERYONE else (random.choice(live),)
        return [*some(1, 2), Clean(brokers, kept=may_keep and random.random() < KEPT)]

    def forgets() -> list[CommonStep | None]:
        return [Expire()] if random.random() < EXPIRED else []

    steps = [*some(2, 4), *cleans(BROKERS, may_keep=False), *some(1, 2), *forgets()]
    steps += [Leave(random.choices((KILL, STOP, PAUSE), (3, 1, 1))[0]), *some(1, 2)]
    steps += [*cleans(STAYING), *forgets(), *cleans(STAYING), TimePasses(), *cleans(STAYING), *cleans(STAYING)]
    return [*steps, *some(1, 2), Return(), *cleans(BROKERS), *forgets(), *cleans(BROKERS), *cleans(BROKERS)]


def _one(random: Random, name: str, common: list[CommonStep | None], version: int, rules: Rules) -> Schedule:
    """Choose a step of one partition, among those that the model allows."""
    joins = random.random() < JOINED
    replicas = STAYING if joins else (1, 3, 2)
    model = Simulated(Schedule(name, (), replicas, version), rules)
    steps: list[Step] = []
    is_away = False
    for at, befalls in enumerate(common):
        until_next = takewhile(lambda one: one is not None, common[at + 1 :])
        leaves_next = any(isinstance(one, Leave) for one in until_next)
        step = befalls or _local(random, model, may_lead=not leaves_next, is_away=is_away)
        is_away = isinstance(step, Leave) or (is_away and not isinstance(step, Return))
        model.take(step)
        steps.append(step)
    return Schedule(name, tuple(steps), replicas, version)


def _local(random: Random, model: Simulated, *, may_lead: bool, is_away: bool) -> LocalStep:
    partition = model.partition
    if not may_lead and partition.leader_id == LEAVES:
        return Lead(random.choice(STAYING))
    is_open = {name: bool(client and client.txn) for name in TRANSACTIONAL_ONES for client in [model.client(name)]}
    others = [one for one in model.live if one != partition.leader_id and (may_lead or one != LEAVES)]
    choices: list[tuple[int, Callable[[], LocalStep], bool]] = [
        *(
            (weight, partial(_write, random, name), model.can_write(name))
            for name, weight in ((PLAIN, 4), (IDEMPOTENT, 2), (TRANSACTIONAL, 4), (SECOND, 2))
        ),
        *((5, partial(End, name, random.choice((COMMIT, ABORT))), is_open[name]) for name in TRANSACTIONAL_ONES),
        (
            1,
            lambda: EndElsewhere(TRANSACTIONAL, random.choice((COMMIT, ABORT))),
            not is_open[TRANSACTIONAL] and not partition.settings.epoch_bump,
        ),
        (1, lambda: Fence(SECOND), is_open[SECOND]),
        (1, lambda: Lead(random.choice(others)), bool(others)),
        (1, lambda: DeleteRecords(random.randint(1, partition.leader.log_end)), partition.leader.log_end > 0),
        (3, Join, LEAVES not in partition.replicas and not is_away and may_lead),
    ]
    legal = [(weight, make) for weight, make, is_legal in choices if is_legal]
    return random.choices([make for _, make in legal], [weight for weight, _ in legal])[0]()


def _write(random: Random, producer: str) -> Write:
    count = random.choices((1, 2, 3), (5, 2, 1))[0]
    return Write(producer, tuple("-" * (random.random() < DELETED) + random.choice(KEYS) for _ in range(count)))
