"""The anomalies, each by its mechanism: the writes before a replica goes down, while it is down, and after.

A plot is a generator that writes to the partition. It yields once when the replicas that it is about may go; then
a condition that must hold on the leader, by cleaning, before it goes on; and ends before they come back. Plots
that are run side by side share one outage.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from expected import ABORTED_TO_COMMITTED, COMMITTED_TO_ABORTED, STUCK_LSO, TOMBSTONE_DIVERGENCE
from partition import Client, Partition
from traffic import Traffic

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.models.log.batch import ModelBatch

Gone = Callable[[], bool]
Plot = Iterator[Gone]

ABORTED_DELETE: Final = "aborted-delete"
COMMITTED_DELETE: Final = "committed-delete"
SAME_OUTCOME: Final = "same-outcome"
_MOST_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Stage:
    """The place of a plot: ``name`` sets its keys apart from the keys of other plots."""

    partition: Partition
    random: Random
    name: str

    def key(self, name: str) -> bytes:
        return f"{self.name}-{name}".encode()

    def maybe(self) -> bool:
        return self.random.random() < 0.5

    def spread(self, client: Client, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records in one batch or several, with others between, in one segment or several."""
        write = self.partition.write
        if self.maybe():
            write(records, client)
            return
        for record in records:
            write([record], client, roll=self.random.random() < 0.3)
            if self.maybe():
                write([(self.key("between"), b"other")], roll=self.random.random() < 0.3)

    def is_gone(self, batch: ModelBatch) -> bool:
        """Tell whether the leader has cleaned away what a batch held."""
        return not any(
            held.base_offset == batch.base_offset and held.records
            for held in self.partition.leader.from_offset(batch.base_offset)
        )


def tombstone_divergence(stage: Stage) -> Plot:
    """K=v, then its tombstone, which goes: plain, idempotent or in a transaction."""
    partition = stage.partition
    client = partition.client(transactional=stage.maybe()) if stage.maybe() else None
    key = stage.key("deleted")
    writer = partition.client(transactional=True) if stage.maybe() else None
    partition.write([(key, b"first")])
    partition.write([(key, b"alive")], writer)
    if writer:
        partition.end(writer, COMMIT)
    yield lambda: True
    tombstone = partition.write([(key, None), (stage.key("kept"), b"v")][: stage.random.randint(1, 2)], client)
    if client and client.txn:
        partition.end(client, COMMIT)
    at = tombstone.base_offset
    yield lambda: all(record.offset != at for batch in partition.leader.from_offset(at) for record in batch.records)


def aborted_to_committed(stage: Stage) -> Plot:
    """Poison, its ABORT, which goes, then a committed transaction of the same producer."""
    client = stage.partition.client(transactional=True)
    if stage.maybe():
        stage.partition.write([(stage.key("poison"), b"right")])
    _maybe_precede(stage, client)
    poison = [(stage.key("poison"), b"poison"), (stage.key("too"), b"poison")]
    yield from _aborted_then_gone(stage, client, poison[: stage.random.randint(1, 2)])
    _transaction(stage, client, "good", b"good", COMMIT)


def aborted_delete(stage: Stage) -> Plot:
    """Aborted-to-committed with a delete: the wrong replica is the one without the value."""
    client = stage.partition.client(transactional=True)
    stage.partition.write([(stage.key("kept"), b"right")])
    yield from _aborted_then_gone(stage, client, [(stage.key("kept"), None)])
    _transaction(stage, client, "good", b"good", COMMIT)


def committed_to_aborted(stage: Stage, *, delete: bool = False) -> Plot:
    """A committed delete or value, its COMMIT, which goes, then an aborted transaction of the same producer."""
    client = stage.partition.client(transactional=True)
    yield from _committed_then_gone(stage, client, delete=delete or stage.random.random() < 0.7)
    _transaction(stage, client, "garbage", b"garbage", ABORT)


def stuck_lso(stage: Stage) -> Plot:
    """A transaction, its marker, which goes, and no other of that producer; at times it has begun the next one."""
    client = stage.partition.client(transactional=True)
    if stage.maybe():
        yield from _committed_then_gone(stage, client, delete=stage.maybe())
    else:
        yield from _aborted_then_gone(stage, client, [(stage.key("open"), b"a"), (stage.key("open too"), b"b")])
    if stage.random.random() < 0.3:
        stage.partition.write([(stage.key("next"), b"c")], client)


def same_outcome(stage: Stage) -> Plot:
    """A lost marker that does no harm: the next one of that producer says the same."""
    client = stage.partition.client(transactional=True)
    outcome = stage.random.choice((COMMIT, ABORT))
    if outcome == COMMIT:
        yield from _committed_then_gone(stage, client, delete=stage.maybe())
    else:
        yield from _aborted_then_gone(stage, client, [(stage.key("aborted"), b"a")])
    _transaction(stage, client, "last", b"z", outcome)


def _transaction(stage: Stage, client: Client, key: str, value: bytes, outcome: str) -> None:
    stage.partition.write([(stage.key(key), value)], client)
    stage.partition.end(client, outcome)


def _committed_then_gone(stage: Stage, client: Client, *, delete: bool) -> Plot:
    """Write a committed transaction of which nothing stays: a delete, or a value that is overwritten."""
    partition = stage.partition
    key, other = stage.key("decided"), stage.key("passing")
    if delete or stage.maybe():
        partition.write([(key, b"before")])
    _maybe_precede(stage, client)
    stage.spread(client, [(key, None if delete else b"hidden"), (other, b"hidden")][: stage.random.randint(1, 2)])
    yield lambda: True
    marker = partition.end(client, COMMIT)
    partition.write([(other, b"after")])
    if not delete:
        partition.write([(key, b"after")])
    yield lambda: stage.is_gone(marker)


def _maybe_precede(stage: Stage, client: Client) -> None:
    """Let the producer have an earlier transaction, which every replica sees whole."""
    if stage.random.random() < 0.3:
        _transaction(stage, client, "earlier", b"e", COMMIT)


def _aborted_then_gone(stage: Stage, client: Client, records: Sequence[tuple[bytes, bytes | None]]) -> Plot:
    """Abort a transaction, at times one more of the producer, and wait until the markers are gone."""
    stage.spread(client, records)
    yield lambda: True
    markers = [stage.partition.end(client, ABORT)]
    if stage.random.random() < 0.2:
        stage.partition.write([(stage.key("again"), b"x")], client)
        markers.append(stage.partition.end(client, ABORT))
    yield lambda: all(stage.is_gone(marker) for marker in markers)


PLOTS: Final[dict[str, Callable[[Stage], Plot]]] = {
    TOMBSTONE_DIVERGENCE: tombstone_divergence, ABORTED_TO_COMMITTED: aborted_to_committed,
    COMMITTED_TO_ABORTED: committed_to_aborted, STUCK_LSO: stuck_lso, ABORTED_DELETE: aborted_delete,
    COMMITTED_DELETE: partial(committed_to_aborted, delete=True), SAME_OUTCOME: same_outcome,
}  # fmt: skip


def plant(traffic: Traffic, names: list[str], wrong: set[int], *, joins: bool, others_clean: float) -> None:
    """Run plots of these names over one outage of the brokers that are to be wrong.

    ``joins``: they have no copy yet, and theirs takes too long. ``others_clean``: the chance that a right replica
    that does not lead is cleaned as often as the leader, so that it shows no more than that.
    """
    partition, random = traffic.partition, traffic.random
    plots = [PLOTS[name](Stage(partition, random, f"{name} {number}")) for number, name in enumerate(names)]
    traffic.end_all()
    traffic.come_all_back()
    partition.fetch_all()
    if partition.leader_id in wrong:
        partition.elect(min(set(partition.replicas) - wrong - partition.away))
    for plot in plots:
        next(plot)
    traffic.held |= wrong
    for broker in wrong:
        if joins:
            partition.fetch(broker)
        else:
            partition.come_back(broker)
            partition.leave(broker)
    conditions = [next(plot) for plot in plots]
    clean_until(traffic, wrong, conditions, others_clean)
    for plot in plots:
        for condition in plot:
            clean_until(traffic, wrong, [condition], others_clean)
    for broker in wrong:
        partition.come_back(broker)
    traffic.held -= wrong


def clean_until(traffic: Traffic, wrong: set[int], conditions: list[Gone], others_clean: float) -> None:
    """Let the cleaners of the leader, and of some others, continue until every condition holds there."""
    partition, random = traffic.partition, traffic.random
    right = [broker for broker in partition.replicas if broker not in wrong | partition.away]
    cleaned = {broker for broker in right if random.random() < others_clean} | {partition.leader_id}
    for _ in range(_MOST_ROUNDS):
        if all(condition() for condition in conditions):
            return
        partition.write([(b"filler", traffic.value())], roll=True)
        partition.fetch_all()
        traffic.pass_time(partition.settings.cleaning.delete_retention_ms * 3 // 5)
        for broker in cleaned:
            partition.clean(broker)
    raise RuntimeError(f"nothing goes from the leader after {_MOST_ROUNDS} rounds")
