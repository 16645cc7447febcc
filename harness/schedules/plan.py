"""The topics and clients of a schedule, and the seed of what its cluster leaves to chance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.kafka_api.messages import TopicPartition


@dataclass(frozen=True)
class RoundTopic:
    """A topic of a round."""

    name: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class RoundClient:
    """A client process. Two of them may have the same ``transactional_id``.

    ``library``: its client library. ``home``: the partitions that it writes to; empty for all. ``patience_s``: how
    long its transactions stay open at least.
    """

    name: str
    library: str
    transactional_id: str | None = None
    is_idempotent: bool = False
    home: tuple[TopicPartition, ...] = ()
    patience_s: float = 0.0


@dataclass(frozen=True)
class RoundPlan:
    """A round before it is played. ``seed``: also of what the cluster leaves to chance, where it is simulated.

    ``lasts_s``: faults are healed no sooner than that after its beginning. ``filled``: the partitions that the filler
    writes to; empty for all.
    """

    seed: int = 0
    topics: tuple[RoundTopic, ...] = ()
    clients: tuple[RoundClient, ...] = ()
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

    @property
    def transactional(self) -> frozenset[str]:
        """The clients that write in transactions."""
        return frozenset(client.name for client in self.clients if client.transactional_id)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        return asdict(self)


def plan_of(content: Mapping[str, Any], source: str) -> RoundPlan:
    """Return the plan that `RoundPlan.as_json` gave. Raises `UsageError` for anything else."""
    try:
        return RoundPlan(
            int(content["seed"]),
            tuple(
                RoundTopic(topic["name"], int(topic["partitions"]), dict(topic["settings"]))
                for topic in content["topics"]
            ),
            tuple(RoundClient(**{**client, "home": _partitions(client["home"])}) for client in content["clients"]),
            tuple(map(int, content["brokers"])),
            float(content["lasts_s"]),
            _partitions(content["filled"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{source}: the plan is wrong: {type(error).__name__}: {error}") from error


def _partitions(content: Any) -> tuple[TopicPartition, ...]:
    return tuple((str(topic), int(number)) for topic, number in content)
