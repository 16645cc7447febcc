"""Rounds before they are played: drawn from a seed, or made from a stored schedule for the brokers of a target."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from harness.errors import UsageError
from harness.models.world.world import IDEMPOTENT as MODEL_IDEMPOTENT
from harness.models.world.world import PRODUCERS
from harness.schedules import operations as ops
from harness.schedules.schedule import RoundClient, RoundPlan, RoundTopic, Schedule, SchedulePlayer, Step, unsupported
from nemesis import FAULTS, SCRIPTS
from nemesis.fault import Fault

TOPICS: Final = 5
HOME_PARTITIONS: Final = 4
"""A transactional client writes to the same few partitions, so that one of its later markers meets a missed one."""
PLAIN, IDEMPOTENT, OF_GROUPS = "plain", "idempotent", "groups"
"""Prefixes of the names of clients without transactions. Only clients of groups perform the operations of groups, as
each of these waits for a coordinator."""
PLAIN_CLIENTS: Final = 3
GROUP_CLIENTS: Final = 2
"""Of each library."""
FILLER_PERIOD_S: Final = 0.4
PATIENCE_S: Final = (0.0, 1.0, 3.0, 6.0, 12.0)
"""The minimum duration of a client's transactions: some stay open across whole outages."""
ROOM_S: Final = 15.0
"""The time after the last step of a schedule: real brokers elect leaders, and their cleaners pass, meanwhile."""
APART_S: Final = 3.0
"""The time between the steps of a schedule: simulated brokers do at once what real ones take a second or two for."""

POLICY: Final = "cleanup.policy"
SETTINGS: Final[Mapping[str, Sequence[str | None]]] = {
    POLICY: ("compact", "compact", "compact", "compact,delete"),
    "compression.type": (None, "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message.timestamp.type": (None, "CreateTime", "LogAppendTime"),
    "segment.ms": ("100", "300", "1000"),
    "segment.bytes": (None, "1048576"),
    "delete.retention.ms": ("300", "300", "1000"),
    # Never more than the other lag: brokers reject that.
    "min.compaction.lag.ms": (None, None, "200"),
    "max.compaction.lag.ms": ("200", "200", "2000"),
    "min.cleanable.dirty.ratio": ("0.0001", "0.1"),
}
"""Topic settings and their values; None leaves the default."""
RETENTION: Final = {"compact,delete": {"retention.ms": "20000"}}
"""Settings that come with a policy."""
OF_ADMINISTRATORS: Final = (ops.DeleteRecords, ops.RecreateTopic, ops.AlterTopic)
ON_GROUPS: Final = (ops.SendOffset, ops.CommitOffset, ops.VisitGroup, ops.DeleteGroup)
"""Operations that need a group coordinator."""
BROKERS: Final = (1, 2, 3)
JAVA: Final = "java"
LIBRARIES: Final = ("librdkafka", JAVA)
WAITED_FOR: Final = (ops.CleanerPass, ops.TimePasses, ops.ProducersExpire, ops.Rest)
"""Operations for which a round leaves time: brokers perform them by themselves."""
OF_ALL: Final = frozenset({ops.Write, ops.End, ops.Die, ops.Inject, ops.Heal, *OF_ADMINISTRATORS, *ON_GROUPS})
SOAK: Final = SchedulePlayer("harness soak", OF_ALL, frozenset(FAULTS))
FROM_MODELS: Final = replace(SOAK, operations=SOAK.operations | {*WAITED_FOR}, faults=frozenset({*FAULTS, ops.OUTAGE}))
"""The operations of a schedule without clients that a round can have."""


@dataclass(frozen=True)
class Shape:
    """The size of rounds, and the abilities of their target: the same for all rounds of a soak.

    ``settings``: the topic settings of the target. ``is_real``: whether it has group coordinators, and producers that
    are idempotent outside of transactions. ``group_protocols``: by which members join. ``broker_settings``: the
    user's, which win.
    """

    partitions: int = 30
    clients: int = 20
    play_s: float = 30.0
    rate_hz: float = 300.0
    settings: frozenset[str] = frozenset(SETTINGS)
    is_real: bool = False
    group_protocols: tuple[str, ...] = ()
    broker_settings: Mapping[str, str] = field(default_factory=dict)


def draw_plan(seed: int, name: str, shape: Shape) -> RoundPlan:
    """Return the plan of a seed. ``name``: the prefix of topics."""
    random = Random(f"soak plan {seed}")  # noqa: S311  (reproducible, no secret)
    count = min(TOPICS, shape.partitions)
    topics = tuple(
        RoundTopic(f"{name}-{number}", len(range(number, shape.partitions, count)), _settings(random, shape.settings))
        for number in range(count)
    )
    partitions = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    library = LIBRARIES[0]
    clients = [RoundClient(f"{PLAIN}-{number}", library) for number in range(PLAIN_CLIENTS)]
    if shape.is_real:
        clients.append(RoundClient(IDEMPOTENT, library, is_idempotent=True))
        # librdkafka cannot join groups of the consumer protocol of 3.9, which is early access.
        of_groups = enumerate(LIBRARIES * GROUP_CLIENTS)
        clients += [RoundClient(f"{OF_GROUPS}-{number}", of_client) for number, of_client in of_groups]
    transactional = []
    for number in range(shape.clients):
        of_client = LIBRARIES[number * len(LIBRARIES) // shape.clients]
        home = tuple(random.sample(partitions, min(HOME_PARTITIONS, len(partitions))))
        client = RoundClient(f"t{number}", of_client, f"{name}-t{number}", home=home)
        transactional.append(replace(client, patience_s=random.choice(PATIENCE_S)))
    twin = random.choice(transactional)
    clients += [*transactional, replace(twin, name=f"{twin.name}-twin", patience_s=0.0)]
    return RoundPlan(seed, topics, tuple(clients), BROKERS, shape.play_s)


def _settings(random: Random, supported: Collection[str]) -> dict[str, str]:
    drawn = {name: random.choice(values) for name, values in SETTINGS.items()}
    settings = {name: value for name, value in drawn.items() if value is not None and name in supported}
    return {**settings, **RETENTION.get(settings.get(POLICY, ""), {})}


def available(
    unsupported_faults: Collection[str], why_lacking: Callable[[frozenset[str]], str | None]
) -> tuple[dict[str, Fault], dict[str, str]]:
    """Return the faults that rounds can have, and why not the others; ``why_lacking``: what a host needs."""
    left_out = {name: script.soak_excluded for name, script in SCRIPTS.items() if name not in FAULTS}
    for name, fault in FAULTS.items():
        reason = fault.soak_excluded or ("not supported by this target" if name in unsupported_faults else None)
        reason = reason or (why_lacking(fault.needs) if fault.needs else None)
        if reason is not None:
            left_out[name] = reason
    return {name: fault for name, fault in FAULTS.items() if name not in left_out}, left_out


def as_round(schedule: Schedule) -> Schedule:
    """Return a schedule of models as a round with one topic and its clients, with time for cleaners between the steps.

    A round is returned as it is. Raises `UsageError` for operations that no round has.
    """
    is_round = schedule.plan.clients or any(getattr(operation, "topic", "") for operation in schedule.operations)
    if reason := unsupported(schedule, SOAK if is_round else FROM_MODELS):
        raise UsageError(reason)
    if is_round:
        return schedule
    if schedule.plan.topics:
        raise UsageError(f"its records belong to {schedule.plan.topics[0].name}: rounds write to other topics")
    topic = RoundTopic("schedule", 1, {name: values[0] for name, values in SETTINGS.items() if values[0] is not None})

    def of_round(operation: ops.Operation) -> ops.Operation:
        match operation:
            case ops.Write() | ops.DeleteRecords():
                return replace(operation, topic=topic.name)
            case ops.Inject(fault=fault) | ops.Heal(fault=fault) if fault == ops.OUTAGE:
                return replace(operation, fault="kill")
        return operation

    steps = [
        Step(APART_S * number, of_round(operation))
        for number, operation in enumerate(schedule.operations, 1)
        if not isinstance(operation, WAITED_FOR)
    ]
    names = sorted({step.operation.process for step in steps if isinstance(step.operation, ops.Write | ops.End)})
    ids = {name: f"{topic.name}-{name}" for name in PRODUCERS}
    clients = tuple(RoundClient(n, LIBRARIES[0], ids.get(n), is_idempotent=n == MODEL_IDEMPOTENT) for n in names)
    lasts_s = APART_S * len(schedule.steps) + ROOM_S
    return replace(schedule, steps=tuple(steps), plan=RoundPlan(topics=(topic,), clients=clients, lasts_s=lasts_s))


def fitted(schedule: Schedule, shape: Shape, faults: Collection[str]) -> Schedule:
    """Return a stored round without the operations, settings and abilities of clients that a target does not have.

    Simulated topics are always compacted, and have few settings; real topics need the setting.
    """
    lacking = () if shape.is_real else ON_GROUPS
    player = replace(SOAK, operations=SOAK.operations - {*lacking}, faults=frozenset(faults))

    def fits(step: Step) -> bool:
        has_setting = not isinstance(step.operation, ops.AlterTopic) or step.operation.setting in shape.settings
        return has_setting and player.supports(step.operation)

    def settings(topic: RoundTopic) -> Mapping[str, str]:
        if POLICY in shape.settings:
            return {POLICY: "compact", **topic.settings}
        return {name: value for name, value in topic.settings.items() if name in shape.settings}

    topics = tuple(replace(topic, settings=settings(topic)) for topic in schedule.plan.topics)
    clients = tuple(
        replace(client, is_idempotent=client.is_idempotent and shape.is_real) for client in schedule.plan.clients
    )
    plan = replace(schedule.plan, topics=topics, clients=clients)
    return replace(schedule, plan=plan, steps=tuple(filter(fits, schedule.steps)))
