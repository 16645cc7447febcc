"""Schedules: the known ways to an anomaly, and random ones from a seed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import takewhile, zip_longest
from random import Random
from typing import TYPE_CHECKING, Final

from harness.conformance.simulated import Simulated
from models.world import ABSENT, BROKERS, IDEMPOTENT, KILL, NOTHING_HERE, OUTCOMES, PAUSE, PLAIN, PRODUCERS, STOP

if TYPE_CHECKING:
    from collections.abc import Callable

    from models.rules import VersionRules

STAYING: Final = (1, 3)
"""The brokers that never go away; ABSENT alone goes away and comes back, or joins."""
TRANSACTIONAL, SECOND = PRODUCERS
TIME_PASSES, EXPIRE, REST = "time passes", "producers expire", "rest"
LEAVES: Final = tuple(f"{ABSENT} {how}" for how in (KILL, STOP, PAUSE))
RETURN, JOIN = f"{ABSENT} returns", f"{ABSENT} joins"
CLUSTER_WIDE: Final = re.compile(rf"{ABSENT} is \w+|{RETURN}|[\d, ]+ clean( and keep)?|{TIME_PASSES}|{EXPIRE}")
"""Steps of the whole cluster: when many schedules run on one cluster, they have these in common."""
FILLER: Final = f"{PLAIN} writes filler"
"""Rolls a segment: earlier batches can then be cleaned, and the log has dirty records."""
KEYS: Final = ("K", "L", "M")
DELETED, KEPT, EVERYONE, EXPIRED, JOINED = 0.3, 0.3, 0.6, 0.6, 0.2
"""How often a record is a tombstone, a pass keeps what ages, all brokers clean, producers expire, a replica joins."""
PUT, DELETE, BEGIN, BEGIN_DELETE = (f"{who} writes {key}" for who in (PLAIN, TRANSACTIONAL) for key in ("K", "-K"))
GOOD: Final = f"{TRANSACTIONAL} writes G"
COMMITS, ABORTS = (f"{TRANSACTIONAL} {verb}" for verb in OUTCOMES)


def clean(brokers: tuple[int, ...] = BROKERS, *, kept: bool = False) -> str:
    """Return a pass of these brokers' cleaners."""
    return f"{', '.join(map(str, brokers))} clean{' and keep' * kept}"


PASS: Final = (FILLER, clean())

WAYS: Final = {
    "tombstone-divergence": ([PUT], [DELETE], []),
    "aborted-to-committed": ([BEGIN], [ABORTS], [GOOD, COMMITS]),
    "aborted-to-committed-delete": ([PUT, BEGIN_DELETE], [ABORTS], [GOOD, COMMITS]),
    "committed-to-aborted-value": ([BEGIN], [PUT, COMMITS], [GOOD, ABORTS]),
    "committed-to-aborted-delete": ([PUT, BEGIN_DELETE], [COMMITS], [GOOD, ABORTS]),
    "stuck-lso": ([BEGIN], [PUT, COMMITS], []),
}
"""What clients do before the outage, the steps that the absent broker misses, and the steps after their removal."""


@dataclass(frozen=True)
class Schedule:
    """Steps of `models.steps` for one partition. ``name``: its topic. ``replicas``: its initial brokers, leader first.

    ``version``: of its transactions; 2 raises the epoch with every end (KIP-890).
    """

    name: str
    steps: tuple[str, ...]
    replicas: tuple[int, ...] = (1, 3, 2)
    version: int = 1


def written(version: int) -> list[Schedule]:
    """Return a way to each payload: markers and tombstones are removed while broker 2 is away."""
    before, missed, late = ([*zip_longest(*parts, fillvalue=REST)] for parts in zip(*WAYS.values(), strict=True))
    schedules = []
    for number, name in enumerate(WAYS):
        steps: list[str] = [*(one[number] for one in before), LEAVES[0], *(one[number] for one in missed)]
        steps += [*PASS, EXPIRE, *PASS, *PASS, *PASS, *(one[number] for one in late), RETURN]
        steps += [*PASS, f"{ABSENT} leads", *PASS]
        schedules.append(Schedule(name, tuple(steps), version=version))
    return schedules


def at_random(seed: str, count: int, version: int, rules: VersionRules) -> list[Schedule]:
    """Return so many schedules with their cluster-wide steps in common; the same for the same seed."""
    common = _common(Random(f"{seed} common"))  # noqa: S311  (not for secrets)
    return [_one(Random(f"{seed} {n}"), f"random-{n}", common, version, rules) for n in range(count)]  # noqa: S311


def _common(random: Random) -> list[str | None]:
    """Return a step of the whole cluster; None where each partition has a step of its own."""

    def some(least: int, most: int) -> list[str | None]:
        return [None] * random.randint(least, most)

    def cleans(live: tuple[int, ...], *, may_keep: bool = True) -> list[str | None]:
        brokers = live if random.random() < EVERYONE else (random.choice(live),)
        return [*some(1, 2), clean(brokers, kept=may_keep and random.random() < KEPT)]

    def forgets() -> list[str | None]:
        return [EXPIRE] if random.random() < EXPIRED else []

    steps = [*some(2, 4), *cleans(BROKERS, may_keep=False), *some(1, 2), *forgets()]
    steps += [random.choices(LEAVES, (3, 1, 1))[0], *some(1, 2)]
    steps += [*cleans(STAYING), *forgets(), *cleans(STAYING), TIME_PASSES, *cleans(STAYING), *cleans(STAYING)]
    return [*steps, *some(1, 2), RETURN, *cleans(BROKERS), *forgets(), *cleans(BROKERS), *cleans(BROKERS)]


def _one(random: Random, name: str, common: list[str | None], version: int, rules: VersionRules) -> Schedule:
    """Choose a step of one partition, among those that the model allows."""
    joins = random.random() < JOINED
    replicas = STAYING if joins else (1, 3, 2)
    model = Simulated(Schedule(name, (), replicas, version), rules)
    steps: list[str] = []
    is_away = False
    for at, befalls in enumerate(common):
        until_next = takewhile(lambda one: one is not None, common[at + 1 :])
        leaves_next = any(one in LEAVES for one in until_next)
        step = befalls or _local(random, model, may_lead=not leaves_next, is_away=is_away)
        is_away = step in LEAVES or (is_away and step != RETURN)
        model.take(step)
        steps.append(step)
    return Schedule(name, tuple(steps), replicas, version)


def _local(random: Random, model: Simulated, *, may_lead: bool, is_away: bool) -> str:
    world = model.world
    leader_id, log_end = world.replication.leader_id, world.replication.leader.log_end
    if not may_lead and leader_id == ABSENT:
        return f"{random.choice(STAYING)} leads"
    is_open = {name: world.clients[name].open is not None for name in PRODUCERS}
    others = [one for one in sorted(world.up) if one != leader_id and (may_lead or one != ABSENT)]
    lone_ends = [f"{TRANSACTIONAL} {verb}{NOTHING_HERE}" for verb in OUTCOMES]
    choices: list[tuple[int, Callable[[], str], bool]] = [
        *(
            (weight, partial(_write, random, name), model.can_write(name))
            for name, weight in ((PLAIN, 4), (IDEMPOTENT, 2), (TRANSACTIONAL, 4), (SECOND, 2))
        ),
        *((5, partial("{} {}".format, name, random.choice(list(OUTCOMES))), is_open[name]) for name in PRODUCERS),
        (1, lambda: random.choice(lone_ends), not is_open[TRANSACTIONAL] and not world.rules.epoch_bump),
        (1, lambda: f"{SECOND} begins anew, and is aborted", is_open[SECOND]),
        (1, lambda: f"{random.choice(others)} leads", bool(others)),
        (1, lambda: f"records before {random.randint(1, log_end)} are deleted", log_end > 0),
        (3, lambda: JOIN, ABSENT not in world.replicas and not is_away and may_lead),
    ]
    legal = [(weight, make) for weight, make, is_legal in choices if is_legal]
    return random.choices([make for _, make in legal], [weight for weight, _ in legal])[0]()


def _write(random: Random, producer: str) -> str:
    count = random.choices((1, 2, 3), (5, 2, 1))[0]
    records = ("-" * (random.random() < DELETED) + random.choice(KEYS) for _ in range(count))
    return f"{producer} writes {' '.join(records)}"
