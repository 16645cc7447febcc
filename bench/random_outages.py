"""A real cluster under random traffic and random outages: the evidence that audits are then tried on.

Three brokers, each a KRaft controller as well, so that any of them may be the one that is away. Transactions are open
across each outage, and end while the broker is away, after it is back, or in the next outage. Every broker comes
back; in the end every transaction has ended, compaction is frozen and the replicas are level.
"""

from __future__ import annotations

import random
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from random_load import load
from random_traffic import Traffic, save_client_log
from served_states import read_served

from harness.broker_files.segments.batches import iter_batches, iter_records, marker
from harness.clients import find_client
from harness.cluster.boot import booted_cluster, client_spec, equip
from harness.errors import HarnessError, WaitTimeoutError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import ReplicaState, WireReader
from harness.protect.gate.build import build_agent
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import ClusterSpec, RuntimeRequest, live_addresses, live_brokers
from harness.runtimes.local import LocalRuntime
from harness.schedules.timers import FAST, FREEZE
from harness.targets import find_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from served_states import Served

    from harness.broker_files.segments.batches import Batch
    from harness.cluster.cluster import Cluster
    from harness.soak.evidence.replica_log import Replica

BROKERS = (1, 2, 3)
SOURCE = "a Fetch answer"
BOUND_S = 120.0
REMOVAL_BOUND_S = 30.0
FILLER_PERIOD_S = 0.4
GATED_FILLS = 15
"""Six seconds: cleaners without a gate have removed most records within that time."""
CLIENTS = ("librdkafka",) * 12 + ("java",) * 8
"""Of the transactional producers."""
BROKER_SETTINGS = {
    **FAST.broker,
    # Kafka's default. On a busy machine replicas leave the ISR otherwise for as long as a broker gets no processor, and
    # brokers that are down leave it anyway, as the controller fences them.
    "replica.lag.time.max.ms": "30000",
    "broker.session.timeout.ms": "3000",
}
TOPIC_SETTINGS = {
    **FAST.topic,
    # A hundred replicas roll: half as often as in a run of the harness, with small index files.
    "segment.ms": "300",
    "segment.index.bytes": "16384",
}


@dataclass(frozen=True)
class Round:
    """The parameters from which a round is drawn. ``is_gated``: every broker has the gate.

    ``load_records_s``: the rate at which it is written to afterwards, with ``load_keys`` keys in each partition.
    """

    target: str
    seed: int
    partitions: int
    is_gated: bool = False
    load_records_s: int = 0
    load_keys: int = 20
    topics: int = 4


@dataclass(frozen=True)
class Played:
    """A cluster on which nothing changes any more: what happened to it, and what each of its replicas serves.

    ``bootstrap`` and ``controllers``: addresses of brokers and of controllers, as options take them.
    """

    version: str
    steps: tuple[str, ...]
    bootstrap: str
    controllers: str
    served: Mapping[Replica, Served]


@dataclass
class _Rig:
    """The cluster and its clients during a round; ``steps`` describes the events so far."""

    cluster: Cluster
    chance: random.Random
    places: dict[TopicPartition, tuple[int, ...]]
    traffic: Traffic
    steps: list[str]
    is_gated: bool

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.places})

    def wait_in_sync(self) -> None:
        """Wait until every replica is in its ISR, on the word of every broker."""
        self.cluster.wait(
            lambda: (
                all(
                    len(states := self.cluster.admin.partitions(self.topics, at=address)) == len(self.places)
                    and all(set(state.isr) == set(BROKERS) and state.leader > 0 for state in states.values())
                    for address in live_addresses(self.cluster.runtime)
                )
                and len(live_brokers(self.cluster.runtime)) == len(BROKERS)
            ),
            "every replica to be in its ISR",
        )

    def wait_gone(self, broker: int) -> None:
        """Wait until a broker that was taken away leads nothing and is in no ISR."""
        self.cluster.wait(
            lambda: all(
                broker not in state.isr and state.leader not in {broker, -1}
                for state in self.cluster.admin.partitions([*self.topics, "__transaction_state"]).values()
            ),
            f"broker {broker} to leave every ISR",
        )

    def wait_filled(self, times: int) -> None:
        """Wait until each partition was given so many filler records more."""
        wanted = self.traffic.fills + times
        self.cluster.wait(lambda: self.traffic.fills >= wanted, "the filler")


@contextmanager
def played(round_: Round, folder: Path, under_load: Callable[[str], None] = lambda _: None) -> Iterator[Played]:
    """Play a round, and give the cluster while its brokers still run.

    ``under_load`` is called with the addresses of brokers while the round's load is written.

    Writes ``clients.json`` to the folder, which must not be there yet, and moves the brokers' log directories to
    ``brokers/<id>`` at the end. Raises `HarnessError` where a bounded wait ends in vain.
    """
    target, java = find_target(round_.target), find_java()
    equipment = equip(RuntimeRequest(target, java, lambda *_: None), LOCAL)
    folder.mkdir(parents=True)
    run_id = f"blame-{new_run_id()}"
    with Workspace(run_id, folder) as workspace, ExitStack() as owned:
        flags = (build_agent(java, lambda *_: None).flag(),) if round_.is_gated else ()
        spec = ClusterSpec(
            run_id, workspace.path, folder / "logs", BROKER_SETTINGS, BROKERS, controllers=BROKERS, jvm_flags=flags
        )
        cluster = owned.enter_context(booted_cluster(equipment, spec, settle_s=BOUND_S))
        # Also where no broker answers.
        cluster.tolerated = (OSError, HarnessError)
        places = {
            (f"blame-{number % round_.topics}", number // round_.topics): _rotated(number)
            for number in range(round_.partitions)
        }
        cluster.admin.create_topics(places, TOPIC_SETTINGS)
        cluster.wait_coordinator()
        clients = client_spec(equipment, spec, cluster.runtime, folder / "java-client.log")
        makers = {name: owned.enter_context(find_client(name)(clients)).producer for name in set(CLIENTS)}
        chance = random.Random(round_.seed)  # noqa: S311  (it decides what is written, and is to be repeated)
        traffic = Traffic(chance, clients.bootstrap, list(places), [makers[name] for name in CLIENTS])
        rig = _Rig(cluster, chance, places, traffic, [], round_.is_gated)
        filler = cluster.clock.every(FILLER_PERIOD_S, traffic.fill, "filler")
        try:
            _play(rig)
            if round_.load_records_s:
                with load(clients, list(places), round_.load_keys, round_.load_records_s) as written:
                    under_load(clients.bootstrap)
                traffic.log.writes.update(written.log.writes)
                traffic.log.transactions.update(written.log.transactions)
                rig.steps.append(f"load of {written.records_s:.0f} records/s of {round_.load_records_s}")
        finally:
            filler.stop()
            filler.raise_if_failed()
        _hold_still(rig)
        save_client_log(traffic.log, folder / "clients.json")
        runtime = cluster.runtime
        assert isinstance(runtime, LocalRuntime)  # noqa: S101
        yield Played(
            target.version,
            tuple(rig.steps),
            clients.bootstrap,
            ",".join(map(str, runtime.controllers.values())),
            {
                (broker, tp): one
                for broker in BROKERS
                for tp, one in read_served(cluster.runtime.address(broker), places).items()
            },
        )
        for broker in BROKERS:
            cluster.runtime.kill(broker)
            (folder / "brokers").mkdir(exist_ok=True)
            (workspace.path / f"broker-{broker}" / "data").rename(folder / "brokers" / str(broker))


def _rotated(number: int) -> tuple[int, ...]:
    first = number % len(BROKERS)
    return BROKERS[first:] + BROKERS[:first]


def _play(rig: _Rig) -> None:
    """Write, and take brokers down once or twice; the operations in between are drawn."""
    rig.wait_in_sync()
    rig.traffic.write(4 * len(rig.places), deletes=0.1)
    rig.traffic.begin(0.6)
    rig.traffic.end(0.8)
    rig.wait_filled(3)
    for _ in range(rig.chance.choice((1, 2, 2, 2))):
        _outage(rig, rig.chance.choice(BROKERS), rig.chance.choice(("kill", "pause")))
    rig.traffic.end(1)
    rig.traffic.begin(0.7)
    rig.traffic.write(len(rig.places) // 4, deletes=0.3)
    rig.traffic.end(1)
    if rig.chance.random() < 0.5:  # noqa: PLR2004
        rig.steps.append("preferred leaders elected")
        rig.cluster.admin.elect_preferred(list(rig.places))
        rig.traffic.write(len(rig.places) // 4, deletes=0.3)
        rig.traffic.begin(0.3)
        rig.traffic.end(1)
    rig.wait_filled(rig.chance.randint(1, 10))


def _outage(rig: _Rig, broker: int, how: str) -> None:
    traffic = rig.traffic
    rig.wait_in_sync()
    traffic.begin(0.8)
    rig.wait_in_sync()
    led = sum(state.leader == broker for state in rig.cluster.admin.partitions(rig.topics).values())
    rig.steps.append(f"{how} broker {broker}, the leader of {led} partitions")
    {"kill": rig.cluster.runtime.kill, "pause": rig.cluster.runtime.pause}[how](broker)
    rig.wait_gone(broker)
    traffic.end(0.85)
    traffic.write(len(rig.places), deletes=0.6)
    traffic.begin(0.4)
    traffic.end(0.8)
    _wait_removed(rig)
    traffic.begin(0.7)
    traffic.end(0.6)
    {"kill": rig.cluster.runtime.start, "pause": rig.cluster.runtime.resume}[how](broker)
    rig.steps.append(f"broker {broker} is back")
    rig.wait_in_sync()
    traffic.end(0.7)


def _wait_removed(rig: _Rig) -> None:
    """Wait until cleaners have removed most of what the broker misses; with the gate, as long as they would take."""
    written = _removers(rig)
    if rig.is_gated:
        rig.wait_filled(GATED_FILLS)
        rig.steps.append(f"{_removers(rig)} of {written} deletes and ABORT markers are left on the brokers that stayed")
        return
    try:
        rig.cluster.wait(lambda: 3 * _removers(rig) <= written, "deletes and ABORT markers to go", REMOVAL_BOUND_S)
        rig.steps.append(f"two thirds of {written} deletes and ABORT markers are gone from the brokers that stayed")
    except WaitTimeoutError as error:
        rig.steps.append(str(error))


def _removers(rig: _Rig) -> int:
    """Return how many deletes and ABORT markers remain on the brokers that are up."""
    return sum(
        result.type == "abort" if (result := marker(batch, source=SOURCE)) else _deletes(batch)
        for broker in live_brokers(rig.cluster.runtime)
        for state in _read(rig, broker).values()
        for batch in iter_batches(state.records, source=SOURCE)
    )


def _deletes(batch: Batch) -> int:
    return 0 if batch.is_control else sum(record.value is None for record in iter_records(batch, source=SOURCE))


def _read(rig: _Rig, broker: int) -> dict[TopicPartition, ReplicaState]:
    with closing(WireReader(Connection(rig.cluster.runtime.address(broker)))) as reader:
        answers = reader.read(rig.places)
    missing = [f"{tp}: {answer}" for tp, answer in answers.items() if isinstance(answer, str)]
    if missing:
        raise HarnessError("; ".join(missing))
    return {tp: answer for tp, answer in answers.items() if isinstance(answer, ReplicaState)}


def _hold_still(rig: _Rig) -> None:
    """Stop compaction, and wait until every replica is level."""
    rig.wait_in_sync()
    with suppress(WaitTimeoutError):
        rig.cluster.wait(lambda: not rig.cluster.admin.ending_transactions(), "the last transaction markers")
    rig.cluster.admin.alter_topics(rig.topics, FREEZE)
    rig.cluster.wait(
        lambda: all(
            FREEZE.items() <= settings.items()
            for address in live_addresses(rig.cluster.runtime)
            for settings in rig.cluster.admin.topic_settings(address, rig.topics).values()
        ),
        "every broker to stop compaction",
    )

    def is_level() -> bool:
        ends: dict[TopicPartition, set[int]] = {tp: set() for tp in rig.places}
        for broker in BROKERS:
            for tp, state in _read(rig, broker).items():
                ends[tp] |= {state.log_end, state.high_watermark}
        return all(len(seen) == 1 for seen in ends.values())

    rig.cluster.wait(is_level, "the replicas to be level")
