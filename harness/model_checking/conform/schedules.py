"""Schedules to conform to: the known ways to an anomaly, random ones from a seed, and the schedule of a file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile, zip_longest
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from harness.errors import UsageError, raised_as
from harness.model_checking.conform.picture import FILLER_KEY, KEYS, LATE_KEY, Simulated, is_of_groups
from harness.models.world.world import ABSENT, BROKERS, FAULTS, IDEMPOTENT, MODEL, PLAIN, PRODUCERS, Rules
from harness.schedules import operations as ops
from harness.schedules.scenario import CONSUMER_OFFSETS
from harness.schedules.schedule import RoundPlan, RoundTopic, Schedule, in_order, read_schedule, unsupported

STAYING: Final = (1, 3)
"""The brokers that always stay up; ABSENT alone goes down and returns, or joins."""
REPLICAS: Final = (1, 3, 2)
"""The replicas of a partition at the beginning, the leader first."""
TRANSACTIONAL, SECOND = PRODUCERS
TIME_PASSES, EXPIRE, REST = ops.TimePasses(), ops.ProducersExpire(), ops.Rest()
LEAVES: Final = tuple(ops.Inject(fault, ABSENT) for fault in FAULTS)
RETURN, JOIN = ops.Heal(ops.OUTAGE, ABSENT), ops.JoinIsr(ABSENT)
CLUSTER_WIDE: Final = (ops.Inject, ops.Heal, ops.CleanerPass, ops.TimePasses, ops.ProducersExpire)
"""Operations of the whole cluster: when many schedules run on one cluster, they have these in common."""
FILLER: Final = ops.WriteBatch(PLAIN, (FILLER_KEY,))
"""Rolls a segment: earlier batches can then be cleaned, and the log has dirty records."""
DELETED, KEPT, EVERYONE, EXPIRED, JOINED = 0.3, 0.3, 0.6, 0.6, 0.2
"""The shares of tombstones, of passes that keep aging batches, of passes of all brokers, of expiry, and of joins."""
WRITERS: Final = {PLAIN: 4, IDEMPOTENT: 2, TRANSACTIONAL: 4, SECOND: 2}
"""The clients that write records, by weight; idempotent producers commit no offsets."""
PUT, DELETE, BEGIN, BEGIN_DELETE = (
    ops.WriteBatch(client, ("K",), tombstones) for client in (PLAIN, TRANSACTIONAL) for tombstones in ((), (0,))
)
GOOD: Final = ops.WriteBatch(TRANSACTIONAL, (LATE_KEY,))
COMMITS, ABORTS = ops.End(TRANSACTIONAL, ops.COMMIT), ops.End(TRANSACTIONAL, ops.ABORT)
PASS: Final = (FILLER, ops.CleanerPass(BROKERS))

WAYS: Final[Mapping[str, Sequence[Sequence[ops.Operation]]]] = {
    "tombstone-divergence": ([PUT], [DELETE], [], []),
    "aborted-to-committed": ([BEGIN], [ABORTS], [GOOD, COMMITS], []),
    "aborted-to-committed-delete": ([PUT, BEGIN_DELETE], [ABORTS], [GOOD, COMMITS], []),
    "committed-to-aborted-value": ([BEGIN], [PUT, COMMITS], [GOOD, ABORTS], []),
    "committed-to-aborted-delete": ([PUT, BEGIN_DELETE], [COMMITS], [GOOD, ABORTS], []),
    "stuck-lso": ([BEGIN], [PUT, COMMITS], [], []),
}
"""The steps of clients before the outage, the steps that the absent broker misses, the steps after their removal, and
the steps at the end."""
GROUP_WAYS: Final[Mapping[str, Sequence[Sequence[ops.Operation]]]] = {
    "group-frozen": ([BEGIN], [COMMITS, PUT], [], [DELETE, ops.ElectLeader(3), ops.ElectLeader(2)]),
    "group-skips": ([PUT, BEGIN], [ABORTS], [GOOD, COMMITS], []),
    "group-begins-at-aborted": ([BEGIN], [ABORTS], [GOOD, COMMITS], []),
    "deleted-offset-back": ([PUT], [DELETE], [], []),
    "offset-hidden-but-superseded": ([BEGIN], [COMMITS, PUT], [GOOD, ABORTS], []),
    "offset-deleted-while-pending": ([PUT, BEGIN, DELETE, COMMITS, ops.ElectLeader(3), ops.ElectLeader(1)], [], [], []),
}
"""The same for groups (`harness.models.world.groups`); in the end, broker 2 coordinates them."""


def partition_schedule(
    name: str, steps: Sequence[ops.Operation] = (), replicas: tuple[int, ...] = REPLICAS, *, of_groups: bool = False
) -> Schedule:
    """Return operations on one partition: of a topic, or of ``__consumer_offsets``, as ``case`` has the name."""
    topic = RoundTopic(CONSUMER_OFFSETS if of_groups else name, 1, {})
    return Schedule(in_order(*steps), case=name, plan=RoundPlan(topics=(topic,), brokers=replicas))


def written(*, of_groups: bool = False) -> list[Schedule]:
    """Return the known ways to each payload, or to each difference between the answers of two group coordinators."""
    ways = GROUP_WAYS if of_groups else WAYS
    phases = [list(zip_longest(*parts, fillvalue=REST)) for parts in zip(*ways.values(), strict=True)]
    schedules = []
    for at, name in enumerate(ways):
        before, missed, late, end = ([steps[at] for steps in phase] for phase in phases)
        steps = [*before, LEAVES[0], *missed, *PASS, EXPIRE, *PASS, *PASS, *PASS, *late, RETURN]
        steps += [*PASS, ops.ElectLeader(ABSENT), *end, *PASS]
        schedules.append(partition_schedule(name, steps, of_groups=of_groups))
    return schedules


def at_random(seed: str, count: int, rules: Rules, *, of_groups: bool = False) -> list[Schedule]:
    """Return so many schedules with their cluster-wide steps in common; the same for the same seed."""
    common = _common(Random(f"{seed} common"))  # noqa: S311  (no secret)
    prefix = "group-" if of_groups else ""
    return [
        _random_schedule(Random(f"{seed} {n}"), f"{prefix}random-{n}", common, rules, of_groups=of_groups)  # noqa: S311
        for n in range(count)
    ]


def _common(random: Random) -> list[ops.Operation | None]:
    """Return the steps of the whole cluster; None where each partition has a separate step."""

    def some(least: int, most: int) -> list[ops.Operation | None]:
        return [None] * random.randint(least, most)

    def cleans(live: tuple[int, ...], *, may_keep: bool = True) -> list[ops.Operation | None]:
        brokers = live if random.random() < EVERYONE else (random.choice(live),)
        return [*some(1, 2), ops.CleanerPass(brokers, may_keep and random.random() < KEPT)]

    def forgets() -> list[ops.Operation | None]:
        return [EXPIRE] if random.random() < EXPIRED else []

    steps = [*some(2, 4), *cleans(BROKERS, may_keep=False), *some(1, 2), *forgets()]
    steps += [random.choices(LEAVES, (3, 1, 1))[0], *some(1, 2)]
    steps += [*cleans(STAYING), *forgets(), *cleans(STAYING), TIME_PASSES, *cleans(STAYING), *cleans(STAYING)]
    return [*steps, *some(1, 2), RETURN, *cleans(BROKERS), *forgets(), *cleans(BROKERS), *cleans(BROKERS)]


def _random_schedule(
    random: Random, name: str, common: list[ops.Operation | None], rules: Rules, *, of_groups: bool
) -> Schedule:
    joins = not of_groups and random.random() < JOINED
    schedule = partition_schedule(name, replicas=STAYING if joins else REPLICAS, of_groups=of_groups)
    model = Simulated(schedule, rules)

    steps: list[ops.Operation] = []
    for at, step in enumerate(common, 1):
        until_next = takewhile(lambda step: step is not None, common[at:])
        steps.append(step or _choose(model, random, may_lead=not any(it in LEAVES for it in until_next)))
        model.take(steps[-1])
    return replace(schedule, steps=in_order(*steps))


Choice: TypeAlias = "tuple[int, Callable[[], ops.Operation], bool]"
"""The weight of a step, a function that makes the step, and whether the step is possible now."""


def _choose(model: Simulated, random: Random, *, may_lead: bool) -> ops.Operation:
    """Choose a step of one partition. ``may_lead``: whether ABSENT may lead, or join, before the next step."""
    world = model.world
    leader_id, log_end = world.replication.leader_id, world.replication.leader.log_end
    if not may_lead and leader_id == ABSENT:
        return ops.ElectLeader(random.choice(STAYING))
    is_open = {name: world.clients[name].open_txn is not None for name in PRODUCERS}
    leaders = [broker for broker in sorted(world.up) if broker != leader_id and (may_lead or broker != ABSENT)]
    lone_ends = [ops.EndElsewhere(TRANSACTIONAL, outcome) for outcome in ops.OUTCOMES]
    others: list[Choice] = [
        (1, lambda: ops.DeleteRecords(log_end - random.randint(1, log_end)), log_end > 0),
        (3, lambda: JOIN, may_lead and ABSENT not in world.replicas and ABSENT not in world.down),
    ]
    choices: list[Choice] = [
        *(_offset_writes if world.rules.of_groups else _record_writes)(model, random),
        *((5, partial(ops.End, name, random.choice(ops.OUTCOMES)), is_open[name]) for name in PRODUCERS),
        (1, lambda: random.choice(lone_ends), not is_open[TRANSACTIONAL] and not world.rules.epoch_bump),
        (1, lambda: ops.Restart(SECOND), is_open[SECOND]),
        (1, lambda: ops.ElectLeader(random.choice(leaders)), bool(leaders)),
        *([] if world.rules.of_groups else others),
    ]
    legal = [(weight, make) for weight, make, is_legal in choices if is_legal]
    return random.choices([make for _, make in legal], [weight for weight, _ in legal])[0]()


def _record_writes(model: Simulated, random: Random) -> list[Choice]:
    def write(producer: str) -> ops.Operation:
        count = random.choices((1, 2, 3), (5, 2, 1))[0]
        records = [(random.random() < DELETED, random.choice(KEYS)) for _ in range(count)]
        tombstones = tuple(at for at, (deletes, _) in enumerate(records) if deletes)
        return ops.WriteBatch(producer, tuple(key for _, key in records), tombstones)

    return [(weight, partial(write, name), model.can_write(name)) for name, weight in WRITERS.items()]


def _offset_writes(model: Simulated, random: Random) -> list[Choice]:
    """Return commits of one offset each, as coordinators order the offsets of one commit by a hash."""
    deletable = [key for key in KEYS if model.world.may_delete(PLAIN, key)]

    def commit(producer: str) -> ops.Operation:
        return ops.WriteBatch(producer, (random.choice(KEYS),))

    return [
        *((weight, partial(commit, name), True) for name, weight in WRITERS.items() if name != IDEMPOTENT),
        (2, lambda: ops.WriteBatch(PLAIN, (random.choice(deletable),), (0,)), bool(deletable)),
    ]


def read_for_conform(path: Path, rules: Rules) -> Schedule:
    """Return the schedule in a file, of ``explore`` or a soak. Raises `UsageError` for one that cannot be played."""
    schedule = read_schedule(path)
    with raised_as(UsageError, f"{path}: conform cannot play this schedule", ValueError, UsageError):
        schedule = _of_one_partition(schedule)
        model = Simulated(schedule, rules)
        for step in schedule.operations:
            model.take(step)
    return schedule


def _of_one_partition(schedule: Schedule) -> Schedule:
    """Return a schedule with the model's clients and brokers, and other traffic before each pass. Raises ValueError."""
    if reason := unsupported(schedule, replace(MODEL, name="harness conform")):
        raise ValueError(reason)
    plan = schedule.plan
    ids = [client.transactional_id for client in plan.clients if client.transactional_id]
    places = {
        (step.topic, step.partition) for step in schedule.operations if isinstance(step, ops.Write | ops.DeleteRecords)
    }
    faulted = {step.broker for step in schedule.operations if isinstance(step, ops.Inject | ops.Heal)} or {ABSENT}
    cleaned = {broker for step in schedule.operations if isinstance(step, ops.CleanerPass) for broker in step.brokers}
    if not plan.brokers or not {*plan.brokers, *faulted, *cleaned} <= {*BROKERS}:
        raise ValueError(f"it needs replicas, faults and passes of the brokers {', '.join(map(str, BROKERS))} only")
    if len(places) > 1 or len(faulted) > 1 or len(ids) > len(PRODUCERS) or len(set(ids)) < len(ids):
        raise ValueError("it needs one partition, faults of one broker, and at most two clients with transactions")
    free = iter(PRODUCERS)
    names = {
        client.name: next(free) if client.transactional_id else IDEMPOTENT if client.is_idempotent else PLAIN
        for client in plan.clients
    }
    (absent,) = faulted
    brokers = {absent: ABSENT, ABSENT: absent}

    def translated(step: Any) -> ops.Operation:
        changes: dict[str, Any] = {"process": names.get(step.process, step.process)}
        if isinstance(step, ops.Write | ops.DeleteRecords):
            changes |= {"topic": "", "partition": 0}
        if isinstance(step, ops.CleanerPass):
            changes["brokers"] = tuple(brokers.get(broker, broker) for broker in step.brokers)
        if hasattr(step, "broker"):
            changes["broker"] = brokers.get(step.broker, step.broker)
        made: ops.Operation = replace(step, **changes)
        return made

    replicas = plan.replicas.get(next(iter(places), ("", 0)), plan.brokers)
    steps = [
        part
        for step in map(translated, schedule.operations)
        for part in ((FILLER, step) if isinstance(step, ops.CleanerPass) else (step,))
    ]
    replicas = tuple(brokers.get(broker, broker) for broker in replicas)
    return partition_schedule("schedule", steps, replicas, of_groups=is_of_groups(schedule))
