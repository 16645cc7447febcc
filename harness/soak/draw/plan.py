"""What a round is drawn from a seed before it begins: topics with their settings, and clients."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from harness.schedules.plan import RoundClient, RoundPlan, RoundTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

TOPICS: Final = 5
HOME_PARTITIONS: Final = 4
"""A transactional client comes back to the same few, so that a later marker of its own meets a missed one."""
PLAIN, IDEMPOTENT, OF_GROUPS = "plain", "idempotent", "groups"
"""What clients outside of transactions are called after; the last ones do what is to be done with groups, alone: each
of their operations waits for a coordinator."""
PLAIN_CLIENTS: Final = 3
GROUP_CLIENTS: Final = 2
PATIENCE_S: Final = (0.0, 1.0, 3.0, 6.0, 12.0)
"""How long transactions of a client stay open at least: some across whole outages."""

SETTINGS: Final[Mapping[str, Sequence[str | None]]] = {
    "cleanup.policy": ("compact", "compact", "compact", "compact,delete"),
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


def draw_plan(seed: int, name: str, shape: Shape) -> RoundPlan:
    """Return the plan of a seed; topics are called after ``name``."""
    random = Random(f"soak plan {seed}")  # noqa: S311  (to be repeated, nothing secret)
    count = min(TOPICS, shape.partitions)
    topics = tuple(
        RoundTopic(f"{name}-{number}", len(range(number, shape.partitions, count)), _settings(random, shape.settings))
        for number in range(count)
    )
    partitions = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    library = shape.libraries[0]
    clients = [RoundClient(f"{PLAIN}-{number}", library) for number in range(PLAIN_CLIENTS)]
    if IDEMPOTENCE in shape.features:
        clients.append(RoundClient(IDEMPOTENT, library, is_idempotent=True))
    if GROUP_OFFSETS in shape.features:
        clients += [RoundClient(f"{OF_GROUPS}-{number}", library) for number in range(GROUP_CLIENTS)]
    for number in range(shape.clients):
        one = RoundClient(
            f"t{number}",
            shape.libraries[number * len(shape.libraries) // shape.clients],
            transactional_id=f"{name}-t{number}",
            home=tuple(random.sample(partitions, min(HOME_PARTITIONS, len(partitions)))),
            patience_s=random.choice(PATIENCE_S),
        )
        clients.append(one)
    twin = random.choice([one for one in clients if one.transactional_id])
    clients.append(RoundClient(f"{twin.name}-twin", twin.library, twin.transactional_id, home=twin.home))
    return RoundPlan(seed, topics, tuple(clients), shape.brokers, shape.play_s)


def _settings(random: Random, known: Collection[str]) -> dict[str, str]:
    drawn = {name: random.choice(values) for name, values in SETTINGS.items()}
    given = {name: value for name, value in drawn.items() if value is not None and name in known}
    return {**given, **RETENTION.get(given.get("cleanup.policy", ""), {})}
