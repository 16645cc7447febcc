"""A simulated cluster with diverged partitions, for repairs: records, cleaners, leaders, and brokers that die.

Time passes only in waits of `SimulatedTime`, a tick each time. In a tick clients write, followers and copies fetch,
cleaners clean, leaders change and brokers die or start, by a source of randomness. Simplified where a repair does not
depend on it: what is written is on every member of the ISR at once, and acknowledged.

- A copy fetches from its present leader, from its own log end on, what that leader still has.
- A cleaner removes superseded values and tombstones up to an offset, on each broker for itself. It rests while an
  assigned replica is out of the ISR, except for copies: only what a repair does can let replicas diverge.
- A broker deletes the folder of an unassigned replica some ticks later, if it is still unassigned; a broker that starts
  keeps the folder of an assigned one. While it starts it reports no folders.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from fakes.clock import JumpingClock
from fakes.guarded import KilledError
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.steps import ObservedPartition, PartitionRepair

KEYS = 1000
"""So many that hardly any is written again, which would repair it. Key 0 is deleted, and back on wrong replicas."""
COPIED_A_TICK, RESTARTING_TICKS, DELETING_TICKS, HOLDING_TICKS = 5, 4, 3, 2
FAULTS_TICKS = 150
"""Compaction is paused, so logs grow: without an end of the faults no copy would end."""


@dataclass
class Log:
    """``records``: key and value by offset; the value of a tombstone is None. ``end``: the log end offset."""

    records: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    end: int = 0

    def clean(self, until: int) -> None:
        """Remove superseded records below an offset, and tombstones."""
        below = {offset: record for offset, record in self.records.items() if offset < until}
        last = {key: offset for offset, (key, _) in sorted(below.items())}
        for offset, (key, value) in below.items():
            if last[key] != offset or value is None:
                del self.records[offset]

    @property
    def state(self) -> dict[int, int]:
        """The last value of each key."""
        state: dict[int, int | None] = {}
        for _, (key, value) in sorted(self.records.items()):
            state[key] = value
        return {key: value for key, value in state.items() if value is not None}


@dataclass
class SimulatedPartition:
    """``logs``: folders by broker, including removed replicas. ``truth``: the acknowledged records."""

    replicas: tuple[int, ...]
    isr: set[int]
    leader: int
    epoch: int
    logs: dict[int, Log]
    min_insync: int = 1
    copying: set[int] = field(default_factory=set)
    deleting: dict[int, int] = field(default_factory=dict)
    truth: dict[int, int] = field(default_factory=dict)


@dataclass
class DivergedCluster(LiveRepairCluster):
    """A cluster, holds and a throttle for `Repairs`. ``point`` is called before and after each change.

    ``is_paused``: whether compaction of a topic is paused, where something else than `hold` pauses it.
    """

    random: Random
    partitions: dict[TopicPartition, SimulatedPartition]
    brokers: frozenset[int]
    faults: bool = True
    point: Callable[[], None] = lambda: None
    down: dict[int, int] = field(default_factory=dict)
    starting: dict[int, int] = field(default_factory=dict)
    previous: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    held_for: dict[str, int] = field(default_factory=dict)
    limited: bool = False
    is_paused: Callable[[str], bool] | None = None
    ticks: int = 0
    violations: list[str] = field(default_factory=list)

    def observe(self, entries: Collection[PartitionRepair]) -> dict[TopicPartition, ObservedPartition | str]:
        if self._is_faulty():
            raise HarnessError("no broker answers")
        return {entry.partition: self._seen(entry.partition) for entry in entries}

    def _is_faulty(self) -> bool:
        return self.faults and self.random.random() < 0.05

    def _seen(self, partition: TopicPartition) -> ObservedPartition | str:
        if self._is_faulty():
            return "brokers do not agree yet"
        replicated, online = self.partitions[partition], self.online
        reported = {b: len(log.records) for b, log in replicated.logs.items() if b in online}
        return ObservedPartition(
            "id", replicated.leader, replicated.epoch, replicated.replicas, frozenset(replicated.isr),
            replicated.min_insync, online, self.is_effective(partition[0]), adding=frozenset(replicated.copying),
            folders_bytes=reported, answered=online | frozenset(self.starting),
        )  # fmt: skip

    def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        self._refuse_at_random()
        replicated = self.partitions[partition]
        removed = set(replicated.replicas) - set(replicas)
        enough_before = len(replicated.isr) >= replicated.min_insync
        for broker in set(replicas) - set(replicated.replicas):
            replicated.copying.add(broker)
            # A broker that has not deleted its folder yet continues with it, and so does a broker that starts later.
            replicated.deleting.pop(broker, None)
            replicated.logs.setdefault(broker, Log())
        replicated.replicas = tuple(replicas)
        for broker in removed:
            replicated.copying.discard(broker)
            replicated.isr.discard(broker)
            if broker not in self.down and broker not in self.starting:
                replicated.deleting[broker] = self.random.randint(0, DELETING_TICKS)
        if removed:
            replicated.epoch += 1
            if replicated.leader in removed:
                replicated.leader = min(replicated.isr, default=-1)
            if enough_before and len(replicated.isr) < replicated.min_insync:
                self.violations.append(f"{partition}: producers with acks=all are refused")
            if len(replicated.isr) < 2:
                self.violations.append(f"{partition}: a single replica is left in sync")
        self.point()

    def elect_preferred(self, partition: TopicPartition) -> None:
        self._refuse_at_random()
        replicated = self.partitions[partition]
        if replicated.replicas[0] in replicated.isr and replicated.replicas[0] != replicated.leader:
            self._lead(replicated, replicated.replicas[0])
        self.point()

    def held(self) -> frozenset[str]:
        return frozenset(self.previous)

    def hold(self, topics: Collection[str]) -> None:
        self._refuse_at_random()
        for topic in topics:
            self.previous.setdefault(topic, self.settings[topic])
        self.point()
        for topic in topics:
            self.settings[topic] = "paused"
            self.held_for.setdefault(topic, 0)
        self.point()

    def release(self, topics: Collection[str]) -> None:
        self.point()
        for topic in topics:
            self.settings[topic] = self.previous[topic]
            self.held_for.pop(topic, None)
        self.point()
        for topic in topics:
            del self.previous[topic]

    def limit(self, entries: Collection[PartitionRepair]) -> None:  # noqa: ARG002
        self.point()
        self.limited = True

    def lift(self) -> None:
        self.point()
        self.limited = False

    def _refuse_at_random(self) -> None:
        self.point()
        if self._is_faulty():
            raise HarnessError("the controller does not answer")

    @property
    def online(self) -> frozenset[int]:
        return self.brokers - self.down.keys() - self.starting.keys()

    def is_effective(self, topic: str) -> bool:
        return self.is_paused(topic) if self.is_paused else self.held_for.get(topic, 0) >= HOLDING_TICKS

    def tick(self) -> None:
        for topic in self.held_for:
            self.held_for[topic] += 1
        self.ticks += 1
        if self.faults and self.ticks < FAULTS_TICKS:
            self._fault()
        self._start_brokers()
        for partition, replicated in self.partitions.items():
            self._delete_folders(replicated)
            self._write(replicated)
            self._fetch(replicated)
            self._clean(partition, replicated)

    def _fault(self) -> None:
        if self.random.random() < 0.03:
            replicated = self.random.choice(list(self.partitions.values()))
            if others := sorted(replicated.isr - {replicated.leader}):
                self._lead(replicated, self.random.choice(others))
        if not self.down and not self.starting and self.random.random() < 0.02:
            broker = self.random.choice(sorted(self.brokers))
            if all(replicated.isr - {broker} for replicated in self.partitions.values()):
                self._die(broker)

    def _die(self, broker: int) -> None:
        self.down[broker] = self.random.randint(2, 12)
        for replicated in self.partitions.values():
            replicated.deleting.pop(broker, None)
            replicated.isr.discard(broker)
            if replicated.leader == broker:
                self._lead(replicated, min(replicated.isr))

    def _start_brokers(self) -> None:
        for broker in [broker for broker, ticks in self.down.items() if ticks <= 0]:
            del self.down[broker]
            self.starting[broker] = RESTARTING_TICKS
        for broker in [broker for broker, ticks in self.starting.items() if ticks <= 0]:
            del self.starting[broker]
            for replicated in self.partitions.values():
                if broker not in replicated.replicas:
                    replicated.logs.pop(broker, None)
        for ticking in (self.down, self.starting):
            for broker in ticking:
                ticking[broker] -= 1

    def _lead(self, replicated: SimulatedPartition, leader: int) -> None:
        replicated.leader = leader
        replicated.epoch += 1

    def _delete_folders(self, replicated: SimulatedPartition) -> None:
        for broker in list(replicated.deleting):
            replicated.deleting[broker] -= 1
            if replicated.deleting[broker] < 0:
                del replicated.deleting[broker]
                del replicated.logs[broker]

    def _write(self, replicated: SimulatedPartition) -> None:
        if len(replicated.isr) < replicated.min_insync or replicated.leader < 0 or self.random.random() < 0.5:
            return
        offset = replicated.logs[replicated.leader].end
        deletes = bool(replicated.truth) and self.random.random() < 0.4
        key = self.random.choice(sorted(replicated.truth)) if deletes else self.random.randrange(1, KEYS)
        value = None if deletes else offset
        for broker in replicated.isr:
            replicated.logs[broker].records[offset] = (key, value)
            replicated.logs[broker].end = offset + 1
        replicated.truth.pop(key, None)
        if value is not None:
            replicated.truth[key] = value

    def _fetch(self, replicated: SimulatedPartition) -> None:
        if replicated.leader < 0:
            return
        source = replicated.logs[replicated.leader]
        for broker in (set(replicated.replicas) - replicated.isr) & self.online:
            log = replicated.logs.setdefault(broker, Log())
            until = min(source.end, log.end + self.random.randint(1, COPIED_A_TICK))
            log.records |= {o: source.records[o] for o in range(log.end, until) if o in source.records}
            log.end = until
            if log.end == source.end:
                replicated.isr.add(broker)
                replicated.copying.discard(broker)

    def _clean(self, partition: TopicPartition, replicated: SimulatedPartition) -> None:
        if self.is_effective(partition[0]) or not set(replicated.replicas) <= replicated.isr | replicated.copying:
            return
        for broker in sorted(replicated.isr):
            if self.random.random() < 0.3:
                replicated.logs[broker].clean(self.random.randint(0, replicated.logs[broker].end))

    def settle(self) -> None:
        """Let everything come back, without further faults."""
        self.faults = False
        for _ in range(100):
            self.tick()

    def wrongs(self, partition: TopicPartition) -> list[str]:
        """Return what replicas serve that was not acknowledged so."""
        replicated = self.partitions[partition]
        served = {broker: replicated.logs[broker].state for broker in replicated.replicas}
        wrong = {broker: state for broker, state in served.items() if state != replicated.truth}
        return [f"{partition}: broker {b} serves {state}, and not {replicated.truth}" for b, state in wrong.items()]


class SimulatedTime(JumpingClock):
    """A clock whose waits let the cluster continue."""

    step_s = 0.5

    def __init__(self, cluster: DivergedCluster) -> None:
        super().__init__()
        self.passing = cluster.tick


@dataclass
class KillAt:
    """Kills at the n-th point; never where ``at`` is None. ``passed`` counts."""

    at: int | None = None
    passed: int = 0

    def __call__(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise KilledError


def diverged(
    random: Random, *, replicas: int, wrong: int, partitions: int, min_insync: int, spare: bool, faults: bool
) -> DivergedCluster:
    """Return a cluster whose last ``wrong`` replicas serve deleted values; a random replica leads each partition.

    ``spare``: a broker without a replica.
    """
    brokers = frozenset(range(1, replicas + 1 + spare))
    made = {}
    for number in range(partitions):
        order = random.sample(range(1, replicas + 1), replicas)
        leader, logs = random.choice(order), {broker: Log() for broker in order}
        made[f"t{number % 2}", number] = SimulatedPartition(tuple(order), set(order), leader, 5, logs, min_insync)
    cluster = DivergedCluster(random, made, brokers, faults, settings={topic: f"own-{topic}" for topic, _ in made})
    for replicated in made.values():
        for log in replicated.logs.values():
            log.records, log.end = {0: (0, 0), 1: (0, None)}, 2
        for _ in range(60):
            cluster._write(replicated)
        for broker, log in replicated.logs.items():
            if broker in replicated.replicas[-wrong:]:
                del log.records[1]
            log.clean(random.choice((0, 0, log.end // 2, log.end)))
    return cluster
