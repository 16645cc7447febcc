"""What a round is drawn from a seed: topics with their settings, clients, and the generator of its operations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from harness.errors import UsageError
from harness.soak.faults import choose_fault
from harness.soak.generators import Each, Generator, Mix, Phases, Stagger, Together, Until
from harness.soak.operations import (
    ABORT,
    COMMIT,
    AlterTopic,
    CommitOffset,
    DeleteGroup,
    DeleteRecords,
    Die,
    End,
    RecreateTopic,
    SendOffset,
    VisitGroup,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.brokers.protocol.replica import TopicPartition
    from harness.soak.faults import Fault
    from harness.soak.generators import Context
    from harness.soak.operations import Operation

TOPICS: Final = 5
HOME_PARTITIONS: Final = 4
"""A transactional client comes back to the same few, so that a later marker of its own meets a missed one."""
MOST_RECORDS: Final = 5
"""Of a transaction."""
PATIENCE_S: Final = (0.0, 1.0, 3.0, 6.0, 12.0)
"""How long transactions of a client stay open at least: some across whole outages."""
COMMIT_SHARE, DELETE_SHARE = 0.55, 0.4
GROUPS: Final = ("g0", "g1")

SETTINGS: Final[Mapping[str, Sequence[str | None]]] = {
    "cleanup.policy": ("compact", "compact", "compact", "compact,delete"),
    "compression.type": (None, "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message.timestamp.type": (None, "CreateTime", "LogAppendTime"),
    "segment.ms": ("100", "300", "1000"),
    "segment.bytes": (None, "1048576"),
    "delete.retention.ms": ("300", "300", "1000"),
    "min.compaction.lag.ms": (None, None, "500"),
    "max.compaction.lag.ms": ("200", "200", "2000"),
    "min.cleanable.dirty.ratio": ("0.0001", "0.1"),
}
"""Topic settings and their values; None leaves the default."""
RETENTION: Final = {"compact,delete": {"retention.ms": "20000"}}
"""Settings that come with a policy."""
CHANGED: Final = ("segment.ms", "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
"""Settings that are changed in mid-round, too."""


@dataclass(frozen=True)
class Topic:
    """A topic of a round."""

    name: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Client:
    """A client process. Two of them may have the same ``transactional_id``.

    ``library``: what it writes with. ``home``: the partitions that it writes to; empty for all. ``patience_s``: how
    long its transactions stay open at least.
    """

    name: str
    library: str
    transactional_id: str | None = None
    is_idempotent: bool = False
    home: tuple[TopicPartition, ...] = ()
    patience_s: float = 0.0


@dataclass(frozen=True)
class Shape:
    """How big rounds are, and what their target has: the same for all rounds of a soak.

    ``settings``: topic settings that it knows; ``features``: what else it can do, of `FEATURES`.
    """

    brokers: tuple[int, ...] = (1, 2, 3)
    partitions: int = 30
    clients: int = 20
    play_s: float = 30.0
    rate_hz: float = 300.0
    libraries: tuple[str, ...] = ("librdkafka", "java")
    settings: frozenset[str] = frozenset(SETTINGS)
    features: frozenset[str] = frozenset()
    group_protocols: tuple[str, ...] = ()


GROUP_OFFSETS, IDEMPOTENCE, DELETE_RECORDS, RECREATION, ALTERATION = (
    "group offsets", "idempotent producers", "DeleteRecords", "topics created again", "changed settings",
)  # fmt: skip
FEATURES: Final = frozenset({GROUP_OFFSETS, IDEMPOTENCE, DELETE_RECORDS, RECREATION, ALTERATION})
"""What rounds draw only where a target has it."""


@dataclass(frozen=True)
class Plan:
    """A round before it is played. ``seed``: also of what the cluster leaves to chance, where it is simulated.

    ``lasts_s``: faults are healed no sooner than that after its beginning. ``filled``: the partitions that the filler
    writes to; empty for all.
    """

    seed: int
    topics: tuple[Topic, ...]
    clients: tuple[Client, ...]
    brokers: tuple[int, ...] = (1, 2, 3)
    lasts_s: float = 0.0
    filled: tuple[TopicPartition, ...] = ()

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition."""
        return [(topic.name, number) for topic in self.topics for number in range(topic.partitions)]

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Every partition with its brokers, another leader each."""
        count = len(self.brokers)
        return {tp: self.brokers[at % count :] + self.brokers[: at % count] for at, tp in enumerate(self.partitions)}

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)


def plan_of(content: Mapping[str, Any], source: str) -> Plan:
    """Return the plan that `Plan.as_json` gave. Raises `UsageError` for anything else."""
    try:
        return Plan(
            int(content["seed"]),
            tuple(Topic(one["name"], int(one["partitions"]), dict(one["settings"])) for one in content["topics"]),
            tuple(Client(**{**one, "home": _partitions(one["home"])}) for one in content["clients"]),
            tuple(map(int, content["brokers"])),
            float(content["lasts_s"]),
            _partitions(content["filled"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{source} has no plan of a round: {type(error).__name__}: {error}") from error


def _partitions(content: Any) -> tuple[TopicPartition, ...]:
    return tuple((str(topic), int(number)) for topic, number in content)


def draw_plan(seed: int, name: str, shape: Shape) -> Plan:
    """Return the plan of a seed; topics are called after ``name``."""
    random = Random(f"soak plan {seed}")  # noqa: S311  (to be repeated, nothing secret)
    count = min(TOPICS, shape.partitions)
    topics = tuple(
        Topic(f"{name}-{number}", len(range(number, shape.partitions, count)), _settings(random, shape.settings))
        for number in range(count)
    )
    partitions = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    clients = [Client("plain", shape.libraries[0])]
    if IDEMPOTENCE in shape.features:
        clients.append(Client("idempotent", shape.libraries[0], is_idempotent=True))
    for number in range(shape.clients):
        one = Client(
            f"t{number}",
            shape.libraries[number * len(shape.libraries) // shape.clients],
            transactional_id=f"{name}-t{number}",
            home=tuple(random.sample(partitions, min(HOME_PARTITIONS, len(partitions)))),
            patience_s=random.choice(PATIENCE_S),
        )
        clients.append(one)
    twin = random.choice([one for one in clients if one.transactional_id])
    clients.append(Client(f"{twin.name}-twin", twin.library, twin.transactional_id, home=twin.home))
    return Plan(seed, topics, tuple(clients), shape.brokers, shape.play_s)


def _settings(random: Random, known: Collection[str]) -> dict[str, str]:
    drawn = {name: random.choice(values) for name, values in SETTINGS.items()}
    given = {name: value for name, value in drawn.items() if value is not None and name in known}
    return {**given, **RETENTION.get(given.get("cleanup.policy", ""), {})}


def generator_of(plan: Plan, shape: Shape, faults: Mapping[str, Fault]) -> Generator:
    """Return the generator of a round: clients alone at first, then beside them administrators and faults."""
    warm_s = shape.play_s / 6
    clients = Stagger(1 / shape.rate_hz, Mix(_client_operations(plan, shape)))
    admin = _admin_operations(plan, shape)
    parts: list[Generator] = [clients]
    if admin:
        parts.append(Stagger(shape.play_s / 8, Mix(admin), next_s=warm_s))
    if faults:
        parts.append(Stagger(shape.play_s / 12, Each(choose_fault(faults, shape.brokers)), next_s=warm_s))
    return Phases((Until(warm_s, clients), Until(shape.play_s, Together(tuple(parts)))))


def _client_operations(plan: Plan, shape: Shape) -> tuple[tuple[float, Generator], ...]:
    # About two writes of a key in a round: what is written in an outage is often the last of its key.
    keys = max(4, round(shape.rate_hz * shape.play_s / (2 * shape.partitions)))
    writers = [one for one in plan.clients if one.transactional_id is None]
    transactional = [one for one in plan.clients if one.transactional_id is not None]
    weighted: list[tuple[float, Callable[[Context], Operation | None]]] = [
        (50, _writes(writers, plan.partitions, keys)),
        (30, _writes(transactional, plan.partitions, keys)),
        (18, _ends(transactional)),
        (0.5, _deaths(transactional)),
    ]
    if GROUP_OFFSETS in shape.features:
        weighted += [
            (2, _sends_offset(transactional, plan)),
            (1, _commits_offset(writers[:1], plan)),
            (0.05, _visits(writers[:1], plan, shape.group_protocols)),
            (0.02, _deletes_group(writers[:1], plan)),
        ]
    return tuple((weight, Each(choose)) for weight, choose in weighted)


def _admin_operations(plan: Plan, shape: Shape) -> tuple[tuple[float, Generator], ...]:
    by_feature: Mapping[str, Callable[[Context], Operation | None]] = {
        DELETE_RECORDS: _deletes_records(plan, shape.settings),
        ALTERATION: _alters(plan, shape.settings),
        RECREATION: _recreates(plan),
    }
    return tuple((1, Each(choose)) for feature, choose in by_feature.items() if feature in shape.features)


def _writes(
    clients: Sequence[Client], partitions: Sequence[TopicPartition], keys: int
) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("write")
        idle = [
            one
            for one in clients
            if one.name not in context.busy and context.situation.records_of(one.name) < MOST_RECORDS
        ]
        if not idle:
            return None
        client = random.choice(idle)
        topic, partition = random.choice(client.home or partitions)
        deletes = random.random() < DELETE_SHARE
        return Write(client.name, topic, partition, f"k{random.randrange(keys)}", deletes)

    return choose


def _ends(clients: Sequence[Client]) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random, situation = context.random("end"), context.situation
        due = [
            one.name
            for one in clients
            if one.name in situation.open
            and one.name not in context.busy
            and context.now_s - situation.open[one.name].since_s >= one.patience_s
        ]
        if not due:
            return None
        return End(random.choice(due), COMMIT if random.random() < COMMIT_SHARE else ABORT)

    return choose


def _deaths(clients: Sequence[Client]) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        alive = [one.name for one in clients if one.name in context.situation.open and one.name not in context.busy]
        return Die(context.random("die").choice(alive)) if alive else None

    return choose


def _sends_offset(clients: Sequence[Client], plan: Plan) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("send offset")
        begun = [one.name for one in clients if one.name in context.situation.open and one.name not in context.busy]
        return SendOffset(random.choice(begun), *_offset(random, plan)) if begun else None

    return choose


def _commits_offset(clients: Sequence[Client], plan: Plan) -> Callable[[Context], Operation | None]:
    return lambda context: CommitOffset(clients[0].name, *_offset(context.random("commit offset"), plan))


def _offset(random: Random, plan: Plan) -> tuple[str, str, int, int]:
    topic, partition = random.choice(plan.partitions[: len(GROUPS)])
    return _group(random, plan), topic, partition, random.randrange(1000)


def _group(random: Random, plan: Plan) -> str:
    return f"{plan.topics[0].name}-{random.choice(GROUPS)}"


def _visits(clients: Sequence[Client], plan: Plan, protocols: Sequence[str]) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("visit")
        if not protocols:
            return None
        group, topic = f"{plan.topics[0].name}-visited", plan.topics[0].name
        return VisitGroup(clients[0].name, group, topic, random.choice(list(protocols)))

    return choose


def _deletes_group(clients: Sequence[Client], plan: Plan) -> Callable[[Context], Operation | None]:
    return lambda context: DeleteGroup(clients[0].name, _group(context.random("delete group"), plan))


def _deletes_records(plan: Plan, known: Collection[str]) -> Callable[[Context], Operation | None]:
    """Return a function that deletes records where that is allowed.

    Of topics that are only compacted no record can be deleted (``Partition.deleteRecordsOnLeader``); simulated brokers
    know no policy, and allow it.
    """
    allowed = {
        topic.name
        for topic in plan.topics
        if "cleanup.policy" not in known or topic.settings.get("cleanup.policy") in RETENTION
    }
    partitions = [tp for tp in plan.partitions if tp[0] in allowed]

    def choose(context: Context) -> Operation | None:
        random = context.random("delete records")
        return DeleteRecords(*random.choice(partitions), keeps=random.randrange(40)) if partitions else None

    return choose


def _alters(plan: Plan, known: Collection[str]) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("alter")
        topic, setting = random.choice(plan.topics).name, random.choice([one for one in CHANGED if one in known])
        return AlterTopic(topic, setting, random.choice([one for one in SETTINGS[setting] if one is not None]))

    return choose


def _recreates(plan: Plan) -> Callable[[Context], Operation | None]:
    # The last topic alone: clients that have it open fail, and the other topics are to be written meanwhile.
    return lambda _: RecreateTopic(plan.topics[-1].name)
