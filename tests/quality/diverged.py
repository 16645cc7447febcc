"""Diverged partitions of three replicas, with the metadata log that fits, from seeds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from controller import V3_5, V3_6, V4_0, Controller
from disk import Copy, write_broker
from expected import ABORTED_TO_COMMITTED, COMMITTED_TO_ABORTED, STUCK_LSO, TOMBSTONE_DIVERGENCE
from metadata_logs import Written, write_metadata_log, write_topic_id
from partition import Partition, draw_settings, new_partition
from planted import ABORTED_DELETE, COMMITTED_DELETE, PLOTS, Stage, clean_until
from traffic import SHARES, Traffic

PAYLOADS: Final = (
    TOMBSTONE_DIVERGENCE, ABORTED_TO_COMMITTED, ABORTED_DELETE, COMMITTED_TO_ABORTED, COMMITTED_DELETE, STUCK_LSO,
)  # fmt: skip
REPLICAS: Final = 3
TWO_WRONG_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Weather:
    """The number of events on brokers in addition to the outage.

    ``shares``: of what befalls the partition. ``most_moves``: leaders that change at each stage of the outage;
    ``absent_share``: of these, by the absence of the leader.
    """

    name: str
    shares: Mapping[Callable[[Traffic], None], float]
    most_moves: int
    absent_share: float


CALM: Final = Weather("calm", {**SHARES, Traffic.leave: 0.3, Traffic.lose_tail: 0.1, Traffic.elect: 4}, 2, 0.05)
ROUGH: Final = Weather("rough", SHARES, 3, 0.4)
"""Every replica is out of the ISR now and then: often none is left that provably received everything."""
_RECORDS = (5, 25)
_LAG_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Diverged:
    """A cluster that is not yet written: its replicas, and the records of its metadata log."""

    name: str
    payload: str
    weather: Weather
    partition: Partition
    copies: dict[int, Copy]
    metadata: tuple[Written, ...]
    traits: frozenset[str]

    def write(self, top: Path) -> dict[int, Path]:
        """Write ``top/<name>/broker-<n>``, the metadata log on one of them, and return the log directories."""
        folders = {broker: top / self.name / f"broker-{broker}" for broker in self.copies}
        for broker, copy in self.copies.items():
            write_broker(folders[broker], [copy], bare=False)
            write_topic_id(folders[broker] / copy.folder, self.partition.topic)
        write_metadata_log(folders[min(folders)], self.metadata)
        return folders


def diverge(seed: int, payload: str, weather: Weather) -> Diverged:
    """Let one partition live its life with an outage; at times nothing is wrong in the end."""
    random = Random(f"{payload} {weather.name} {seed}")  # noqa: S311
    brokers = random.sample(range(1, 9), REPLICAS)
    wrong = set(random.sample(brokers, 2 if random.random() < TWO_WRONG_SHARE else 1))
    joins = random.random() < 0.1
    if joins and brokers[0] in wrong:
        brokers.sort(key=lambda broker: broker in wrong)
    name = f"{payload}-{weather.name}-{seed}"
    traffic, controller = _cluster(random, name, brokers, weather, absent=wrong if joins else set())
    _Outage(traffic, controller, random, payload, wrong, weather, joins=joins).live()
    if joins:
        traffic.traits.add("joined")
    copies = {broker: _copy(random, traffic.partition, broker) for broker in brokers}
    log, traits = tuple(controller.log), frozenset(traffic.traits)
    return Diverged(name, payload, weather, traffic.partition, copies, log, traits)


def _cluster(
    random: Random, name: str, brokers: list[int], weather: Weather, absent: set[int]
) -> tuple[Traffic, Controller]:
    partition = new_partition((name, 0), draw_settings(random, 1), random, brokers, absent)
    assigned = [broker for broker in brokers if broker not in absent]
    controller = Controller(name, partition.replication, random, random.choice((V3_5, V3_6, V4_0)), assigned)
    controller.begin()
    partition.replication.changed = controller.note
    keys = [b"k%d" % number for number in range(random.choice((2, 6, 20)))]
    return Traffic(partition, random, keys, held=set(absent), shares=weather.shares), controller


@dataclass(frozen=True, slots=True)
class _Outage:
    """A partition's life around the outage of the brokers that are to be ``wrong``; ``joins``: they are added."""

    traffic: Traffic
    controller: Controller
    random: Random
    payload: str
    wrong: set[int]
    weather: Weather
    joins: bool

    def live(self) -> None:
        traffic, partition, random = self.traffic, self.traffic.partition, self.random
        traffic.run(random.randint(*_RECORDS))
        traffic.end_all()
        traffic.come_all_back()
        partition.fetch_all()
        plot = PLOTS[self.payload](Stage(partition, random, self.payload))
        next(plot)
        if not self.joins and len(self.wrong) + 1 < REPLICAS and random.random() < _LAG_SHARE:
            conditions = self._lag(plot)
        else:
            self._leave()
            conditions = [next(plot)]
        others_clean = random.choice((0.0, 0.5, 1.0))
        self._clean_until(conditions, others_clean)
        for more in plot:
            self._clean_until([more], others_clean)
        for broker in random.sample(sorted(self.wrong), len(self.wrong)):
            partition.come_back(broker)
            traffic.held.discard(broker)
            self._move()
            if random.random() < 0.3:
                traffic.run(random.randint(1, 5))
        traffic.run(random.randint(*_RECORDS))
        self._clean_the_wrong()
        if random.random() < 0.8:
            traffic.end_all()
        if random.random() < 0.85:
            traffic.come_all_back()
        partition.fetch_all()

    def _lag(self, plot: Iterator[Callable[[], bool]]) -> list[Callable[[], bool]]:
        """Let them be in the ISR throughout the leader epoch in which they miss records, and leave it in the next.

        At times the producer's next transaction, of which they get all, is of the same leader epoch.
        """
        partition = self.traffic.partition
        partition.fetch_all()
        if partition.leader_id in self.wrong:
            self._depose(set())
            self.traffic.come_all_back()
        self.traffic.held |= self.wrong
        conditions = [next(plot)]
        if self.payload != STUCK_LSO and self.random.random() < 0.5:
            # A transaction that is still open would keep the marker.
            conditions += plot
        self.traffic.traits.add("lagged")
        right = [broker for broker in partition.replicas if broker not in self.wrong]
        successor = next(broker for broker in right if broker != partition.leader_id)
        self.controller.prefer(successor)
        partition.elect(successor)
        for broker in self.wrong:
            partition.leave(broker)
        partition.fetch_all()
        return conditions

    def _leave(self) -> None:
        """Take the brokers down in turn, a leader last; each has copied everything that was written before."""
        partition = self.traffic.partition
        if self.joins:
            self.controller.add(sorted(self.wrong))
            for broker in sorted(self.wrong):
                partition.fetch(broker)
            return
        order = self.random.sample(sorted(self.wrong), len(self.wrong))
        for number, broker in enumerate(order):
            partition.come_back(broker)
            if broker == partition.leader_id:
                self._depose(set(order[number + 1 :]))
            self.traffic.held.add(broker)
            if broker not in partition.away:
                partition.leave(broker)
            if number + 1 < len(order) and self.random.random() < 0.5:
                partition.write([(b"between", b"v")])
            partition.fetch_all()

    def _depose(self, leaving: set[int]) -> None:
        """Have another broker lead: by a preferred move, or because the leader is gone."""
        partition = self.traffic.partition
        partition.fetch_all()
        if partition.replication.in_sync == [partition.leader_id]:
            self.traffic.come_all_back()
        others = [one for one in partition.replication.in_sync if one != partition.leader_id]
        successor = self.random.choice(sorted(set(others) - leaving) or others)
        if self.random.random() < 0.5:
            self.controller.prefer(successor)
            partition.elect(successor)
        else:
            partition.lose_leader(successor, [])
            self.traffic.traits.add("leader-died")

    def _clean_until(self, conditions: list[Callable[[], bool]], others_clean: float) -> None:
        self._move()
        clean_until(self.traffic, self.wrong, conditions, others_clean)
        if self.random.random() < 0.3:
            self._move()

    def _move(self) -> None:
        """Let leaders change, by preferred moves and by the absence of the leader, which is back soon."""
        partition = self.traffic.partition
        for _ in range(self.random.randint(0, self.weather.most_moves)):
            present = [one for one in partition.replication.in_sync if one != partition.leader_id]
            if not present:
                return
            self.traffic.traits.add("leader-change")
            former, successor = partition.leader_id, self.random.choice(present)
            if self.random.random() >= self.weather.absent_share:
                self.controller.prefer(successor)
                partition.elect(successor)
            else:
                partition.fetch_all()
                partition.lose_leader(successor, [])
                partition.write([(b"meanwhile", b"v")])
                partition.come_back(former)
            if self.random.random() < 0.5:
                partition.write([(b"moved", b"v")])
            partition.fetch_all()

    def _clean_the_wrong(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 3))):
            for broker in sorted(self.wrong):
                self.traffic.partition.write([(b"filler", b"last")], roll=True)
                self.traffic.pass_time(self.traffic.partition.settings.cleaning.delete_retention_ms // 2)
                self.traffic.partition.clean(broker)


def _copy(random: Random, partition: Partition, broker: int) -> Copy:
    replica = partition.replicas[broker]
    if random.random() < 0.3:
        replica.snapshots[replica.log_end] = dict(replica.producers)
    lag = 0 if broker == partition.leader_id else random.choice((0, 0, 1, 5))
    return Copy(partition, replica, high_watermark=max(replica.log_start, replica.high_watermark - lag))
