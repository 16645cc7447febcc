"""A simulated cluster for the guard: settings, replicas, a channel, a group; and what goes wrong, by a seed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fakes.clock import JumpingClock
from harness.errors import HarnessError
from harness.host.clock import Clock
from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.topics import ConfigEntry
from harness.protect.guard import cluster as live
from harness.protect.guard.channel import GroupLeadership, KafkaChannel
from harness.protect.guard.journal import Entry, PauseState, ReplayedJournal, parse_entry
from harness.protect.guard.service import Guard, GuardEvent, GuardOptions

DEFAULTS = {
    live.DIRTY_RATIO: "0.5", live.MAX_LAG_MS: str(2**63 - 1), live.POLICY: "compact",
    live.RETENTION_MS: "86400000", live.MIN_LAG_MS: "0",
}  # fmt: skip
BROKERS = (1, 2, 3)
BoundedClock = JumpingClock


class KilledError(BaseException):
    """The guard was killed: no handler of the guard's runs."""


@dataclass
class FakeCluster(live.LiveCluster):
    """Topics with their own settings; ``away``: replicas out of the ISR, by topic. ``interfere`` runs before requests.

    ``before``, ``after``: called with the name of each request, before and after it takes effect; they may raise.
    """

    explicit: dict[str, dict[str, str]]
    away: dict[str, set[int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    before: Callable[[str], None] = lambda _: None
    after: Callable[[str], None] = lambda _: None
    asked: list[str] = field(default_factory=list)
    log: list[bytes] = field(default_factory=list)
    log_start: int = 0
    members: list[object] = field(default_factory=list)
    is_alarmed: bool = False
    requests: int = 0

    def close(self) -> None:
        """Nothing is open."""

    def view(self) -> live.ClusterView:
        self._begin("view")
        answer = live.united([{(topic, 0): self._state(topic) for topic in self.explicit if topic not in self.hidden}])
        self.after("view")
        return answer

    def with_added(self, view: live.ClusterView) -> live.ClusterView:
        return view

    def settings(self, topics: Collection[str]) -> live.SettingsRead:
        if not topics:
            return live.SettingsRead({})
        self._begin("settings")
        settings = {topic: self.effective(topic) for topic in topics if topic in self.explicit.keys() - self.unreadable}
        unreadable = {topic: why for topic, why in self.unreadable.items() if topic in topics}
        answer = live.SettingsRead(settings, frozenset(set(topics) - self.explicit.keys()), unreadable)
        self.after("settings")
        return answer

    def alter(self, changes: Mapping[str, live.TopicValues]) -> Mapping[str, str]:
        if not changes:
            return {}
        self._begin("alter")
        for topic, values in changes.items():
            if topic in self.refused or topic not in self.explicit:
                continue
            assert values.keys() <= live.PAUSE.keys(), "the guard changes two settings only"
            for name, value in values.items():
                if value is None:
                    self.explicit[topic].pop(name, None)
                else:
                    self.explicit[topic][name] = "1.0" if value == "1" else value  # as brokers answer
        self.after("alter")
        return {topic: why for topic, why in self.refused.items() if topic in changes}

    def effective(self, topic: str) -> dict[str, ConfigEntry]:
        explicit = self.explicit[topic]
        return {name: ConfigEntry(explicit.get(name, value), name in explicit) for name, value in DEFAULTS.items()}

    def is_paused(self, topic: str) -> bool:
        values = {name: setting.value for name, setting in self.effective(topic).items()}
        return float(values[live.DIRTY_RATIO]) >= 1 and int(values[live.MAX_LAG_MS]) == 2**63 - 1

    def exposed(self) -> set[str]:
        return {topic for topic, brokers in self.away.items() if brokers and topic in self.explicit}

    def _state(self, topic: str) -> PartitionState:
        return PartitionState(1, BROKERS, tuple(b for b in BROKERS if b not in self.away.get(topic, ())))

    def _begin(self, name: str) -> None:
        self.asked.append(name)
        self.before(name)


@dataclass
class FakeChannel(KafkaChannel):
    """A reader and writer of the cluster's log of entries."""

    cluster: FakeCluster
    clock: Clock = field(default_factory=BoundedClock)
    writer: str = "repair"
    replayed: ReplayedJournal = field(default_factory=ReplayedJournal)

    def ensure(self) -> None:
        """It is there."""

    def read(self) -> PauseState:
        self.cluster._begin("read")
        start = self.replayed.start(self.cluster.log_start)
        entries = enumerate(map(parse_entry, self.cluster.log[start:]), start)
        self.replayed.add([(offset, entry) for offset, entry in entries if entry is not None], len(self.cluster.log))
        self.cluster.after("read")
        return self.replayed.state

    def trim(self) -> None:
        self.cluster.log_start = max(self.cluster.log_start, self.replayed.needed_from)

    def append(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.cluster._begin("append")
        for entry in entries:
            self.cluster.log.append(entry.to_json().encode())
            self.cluster.after("append")


@dataclass(eq=False)
class FakeLeadership(GroupLeadership):
    """The first member of the group leads."""

    cluster: FakeCluster
    error: str | None = None

    def __post_init__(self) -> None:
        self.cluster.members.append(self)

    def leads(self) -> bool:
        return self.cluster.members[:1] == [self]

    def close(self) -> None:
        self.cluster.members.remove(self)


@dataclass
class Started:
    """A guard on a simulated cluster, with its reports."""

    guard: Guard
    leadership: FakeLeadership
    events: list[GuardEvent]

    def kinds(self) -> list[str]:
        return [str(event.event) for event in self.events]


def start(cluster: FakeCluster, clock: BoundedClock | None = None, **options: Any) -> Started:
    """Start a guard; it has done no round yet."""
    events: list[GuardEvent] = []
    leadership = FakeLeadership(cluster)
    clock = clock or BoundedClock(now=1.0)
    guard = Guard(cluster, FakeChannel(cluster), leadership, clock, GuardOptions(**options), events.append)
    return Started(guard, leadership, events)


def failing(name: str, times: int = 1) -> Callable[[str], None]:
    """Return what makes requests of one name fail so many times."""
    remaining = [times]

    def fail(asked: str) -> None:
        if asked == name and remaining[0]:
            remaining[0] -= 1
            raise HarnessError(f"{name} failed")

    return fail
