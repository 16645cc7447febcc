"""After the finding: how long a stuck last stable offset lasts, and what ends it.

The evidence of the verdict is complete and does not change any more: this stage writes separate files.
The published post says that the replica heals when the producer expires; brokers never expire a producer
with an open transaction (`ProducerStateManager.isProducerExpired`). So both are watched: traffic for ten times
``producer.id.expiration.ms``, then a restart of the broker. Then what ends it, each remedy on a partition of
its own.

Aftermath schema (``aftermath.jsonl``), one line a replica and step:

    time_ms, step, summary      step: found | expiries | restart | next-transaction | admin-abort | re-replication
    topic, partition, broker
    log_end, high_watermark, last_stable_offset    int
    open       list   [[producer id, epoch, first offset], ...] as DescribeProducers answers
    aborted    list   [[producer id, first offset], ...] as a read_committed Fetch lists them
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from harness.clients import MakeProducer
from harness.clients.recorded import RecordingProducer
from harness.cluster.cluster import Cluster
from harness.cluster.observe import as_lists
from harness.cluster.snapshot import states_of
from harness.errors import UsageError
from harness.kafka_api import TopicPartition
from harness.kafka_api.fetch import CONSUMER_REPLICA_ID
from harness.kafka_api.transactions import OpenTransaction
from harness.run_folder.history import History
from harness.run_folder.store import AFTERMATH, AFTERMATH_HISTORY, RunFolder
from harness.schedules.catalog import Anomaly
from harness.schedules.scenario import Kind, Phase, Scenario, client_name
from harness.targets import KAFKA
from workloads.filler import Filler
from workloads.payload import PART

if TYPE_CHECKING:
    from harness.play.run_plan import RunPlan

EXPIRIES = 10
EXPIRATION = "producer.id.expiration.ms"
KAFKA_DEFAULT_EXPIRATION_MS = 86_400_000


@dataclass(frozen=True)
class Stuck:
    """A partition of the stuck topic, and the transaction that an absent broker holds open in it."""

    partition: TopicPartition
    broker: int
    transaction: OpenTransaction


@dataclass
class Aftermath:
    """Goes through the steps on a cluster whose outage is over. ``file`` receives the lines of the schema."""

    plan: RunPlan
    cluster: Cluster
    make_producer: MakeProducer
    history: History
    file: IO[str]
    progress: Callable[[str], None]

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the scenario that shows a stuck last stable offset."""
        stuck = {tp for scenario in _stuck(self.plan) for tp in self.plan.partitions[scenario.name]}
        return [tp for tp in self.cluster.exposed if tp in stuck]

    @property
    def expiration_ms(self) -> int:
        """The time for which the brokers remember a producer."""
        return int(self.plan.broker_settings.get(EXPIRATION, KAFKA_DEFAULT_EXPIRATION_MS))

    def run(self) -> None:
        """Watch, then try each remedy. Raises `HarnessError` where a step cannot be completed."""
        stuck_in_outage = self.look("found", "as the outage left it")
        if not stuck_in_outage:
            return
        self.cluster.thaw(self.plan.topic_settings)
        self._traffic(self.expiration_ms * EXPIRIES / 1000)
        self.look("expiries", f"after traffic for {EXPIRIES} times {EXPIRATION} ({self.expiration_ms} ms each)")
        self._restart()
        self.look("restart", "after SIGKILL and restart of the broker")
        for (name, summary, remedy), partition in zip(REMEDIES, self.partitions, strict=False):
            self.progress(f"aftermath: {summary}")
            for stuck in stuck_in_outage:
                if stuck.partition == partition:
                    remedy(self, stuck)
            self._settle(partition)
            self.look(name, f"after {summary}, on partition {partition[1]}")

    def look(self, step: str, summary: str) -> list[Stuck]:
        """Ask every replica for its state, write the states to the file, and return the open transactions."""
        now_ms = self.cluster.clock.time_ms()
        stuck = []
        for broker in self.cluster.runtime.brokers:
            partitions = [tp for tp in self.partitions if broker in self.cluster.replicas[tp]]
            with closing(self.cluster.control.reader(broker)) as reader:
                states = states_of(reader.read(partitions), broker)
                served = states_of(reader.read(partitions, replica_id=CONSUMER_REPLICA_ID), broker)
                opened = reader.open_transactions(partitions)
            for tp, state in states.items():
                stuck += [Stuck(tp, broker, transaction) for transaction in opened[tp] or ()]
                line = {
                    "time_ms": now_ms,
                    "step": step,
                    "summary": summary,
                    "topic": tp[0],
                    "partition": tp[1],
                    "broker": broker,
                    "log_end": state.log_end,
                    "high_watermark": state.high_watermark,
                    "last_stable_offset": state.last_stable_offset,
                    "open": as_lists(opened[tp]),
                    "aborted": [list(pair) for pair in served[tp].aborted],
                }
                self.file.write(json.dumps(line) + "\n")
        return stuck

    def _traffic(self, duration_s: float) -> None:
        self.progress(f"aftermath: traffic for {duration_s:g} s")
        plan, clock, partitions = self.plan, self.cluster.clock, list(self.cluster.replicas)
        filler = Filler(partitions, plan.seed, plan.timers.filler_period_s, self.make_producer, self.history, clock)
        filler.init()
        self.cluster.checks.append(filler.raise_if_failed)
        until_s = clock.now_s() + duration_s
        with filler.running(Phase.AFTERMATH):
            self.cluster.wait(lambda: clock.now_s() >= until_s, "the expiries to pass", duration_s + 1)

    def _restart(self) -> None:
        absent = self.plan.placement.absent
        self.progress(f"aftermath: restart broker {', '.join(map(str, absent))}")
        for broker in absent:
            self.cluster.runtime.kill(broker)
        self.cluster.wait_absent_left()
        for broker in absent:
            self.cluster.runtime.start(broker)
        self.cluster.wait_absent_back()

    def _settle(self, partition: TopicPartition) -> None:
        """Wait until every replica of the partition has the same high watermark, at the end of its log."""
        replicas = {partition: self.cluster.replicas[partition]}
        self.cluster.wait(
            lambda: not self.cluster.differing_ends(replicas),
            f"the replicas of {partition[0]}-{partition[1]} to agree on their end",
        )


def _next_transaction(aftermath: Aftermath, stuck: Stuck) -> None:
    """Commit another transaction of the same transactional id: its marker closes everything open."""
    name = client_name(stuck.partition[0], "tx")
    make, history = aftermath.make_producer, aftermath.history
    producer = RecordingProducer(make, history, f"{name}.again", PART, name, Phase.AFTERMATH)
    producer.init()
    producer.begin()
    producer.put(*stuck.partition, "another", "value")
    producer.commit()


def _admin_abort(aftermath: Aftermath, stuck: Stuck) -> None:
    cluster = aftermath.cluster
    leader = cluster.states()[stuck.partition].leader
    cluster.admin.abort_transaction(cluster.runtime.address(leader), stuck.partition, stuck.transaction)


def _re_replicate(aftermath: Aftermath, stuck: Stuck) -> None:
    """Remove the replica from the broker, and have it copied again from the replicas that stayed."""
    cluster, partition = aftermath.cluster, stuck.partition
    replicas = cluster.replicas[partition]
    staying = tuple(broker for broker in replicas if broker not in cluster.absent)
    cluster.lead({partition: staying})
    cluster.wait(lambda: set(cluster.states()[partition].replicas) == set(staying), "the replica to be gone")
    cluster.admin.reassign({partition: replicas})
    cluster.wait_absent_back()


REMEDIES: tuple[tuple[str, str, Callable[[Aftermath, Stuck], None]], ...] = (
    ("next-transaction", "the next transaction of the same transactional id", _next_transaction),
    ("admin-abort", "an abort by an administrator (WriteTxnMarkers)", _admin_abort),
    ("re-replication", "the replica was removed and added again", _re_replicate),
)


def _stuck(plan: RunPlan) -> list[Scenario]:
    return [s for s in plan.scenarios if s.anomaly == Anomaly.STUCK_LSO and s.kind is Kind.RECORDS]


def raise_if_pointless(plan: RunPlan) -> None:
    """Raise `UsageError` where nothing can be stuck, or a remedy has no partition."""
    if plan.target.system != KAFKA:
        raise UsageError("--aftermath: how long a stuck LSO lasts, and what ends it, is known of Kafka alone")
    if not _stuck(plan) or not plan.nemesis.is_outage:
        raise UsageError(
            "--aftermath shows how long a stuck LSO lasts: give --anomaly stuck-lso or all, and a nemesis that"
            " takes a broker away"
        )
    if plan.placement.partitions < len(REMEDIES):
        raise UsageError(
            f"--aftermath tries {len(REMEDIES)} remedies, each on a separate partition:"
            f" give --partitions {len(REMEDIES)} or more"
        )


def follow(
    plan: RunPlan, cluster: Cluster, make_producer: MakeProducer, folder: RunFolder, progress: Callable[[str], None]
) -> None:
    """Go through the steps and write ``aftermath.jsonl`` and ``aftermath-history.jsonl``.

    Raises `HarnessError` or OSError where a step cannot be completed; the files keep what was observed before.
    """
    with ExitStack() as owned:
        file = owned.enter_context((folder.path / AFTERMATH).open("x", buffering=1))
        history = owned.enter_context(closing(History(folder.path / AFTERMATH_HISTORY, cluster.clock)))
        Aftermath(plan, cluster, make_producer, history, file, progress).run()
