"""What a real run's folder would hold of a simulated cluster, as rows of the checkers' tables.

Both snapshots, the client history, a reader of every replica in sync at the end, and what an observer saw that looks at
a broker before and after it cleans. Batches are encoded as brokers store them and read by the parser of real ones. What
a simulated broker serves is what it has: who is up is judged by that, as by Fetch, and who is down by its files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from checkers.evidence.parse import DISK, FETCH, batch_rows
from harness.brokers.segments.batches import iter_batches
from harness.brokers.segments.digest import batch_digest
from harness.brokers.segments.tombstones import BY_NULL
from harness.plan.scenario import Phase
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from models.batch import ABORT, encode
from models.steps import begin, take
from models.world import ABSENT, ADDED, CLEANING, OUTCOMES, PLAIN, STEP_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from models.batch import Batch
    from models.replica import Replica
    from models.world import Open, Rules, World

TOPIC: Final = "sim"
PARTITION: Final = 0
AWAY_STEPS: Final = {f"{ABSENT} leaves", f"{ABSENT} lags", f"{ADDED} is added"}
BACK_STEPS: Final = {f"{ABSENT} returns", f"{ADDED} joins"}
COPY_STEP: Final = f"{ABSENT} copies a batch"
_PLACE: Final = (TOPIC, PARTITION)
_OF_NO_TXN: Final = (None, None)
_NOWHERE: Final = (None,) * 5
_NO_POLL: Final = (None,) * 3

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch as a log holds it, and what an observer sees of it.

    ``rows``: with those columns of `checkers.evidence.schemas.ENTRIES` that a batch gives. ``share``: of its log's
    digest. ``seen``: offset, kind and producer id of what is in it.
    """

    rows: tuple[Row, ...]
    share: int
    seen: tuple[tuple[int, str, int], ...]


@dataclass(slots=True)
class _Seen:
    """A replica as the observer last saw it."""

    log: list[Batch] = field(default_factory=list)
    said: Row = ()
    present: dict[int, tuple[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Witness:
    """Watches one run.

    Its lists are tables of `checkers.evidence.schemas`, without the columns ``run`` and ``problem``.
    """

    world: World
    entries: list[Row] = field(default_factory=list)
    aborts: list[Row] = field(default_factory=list)
    states: list[Row] = field(default_factory=list)
    history: list[Row] = field(default_factory=list)
    observations: list[Row] = field(default_factory=list)
    _stored: dict[Batch, Stored] = field(default_factory=dict)
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _begun: dict[str, int] = field(default_factory=dict)
    _key_at: dict[str, int] = field(default_factory=dict)
    _open_then: dict[str, int] = field(default_factory=dict)
    _left_at: int | None = None
    _is_back: bool = False
    _has_before: bool = False
    _op: int = 0

    @property
    def settings(self) -> list[Row]:
        """The table of that name."""
        return [(CLEANING.delete_retention_ms, CLEANING.min_compaction_lag_ms)]

    def take(self, step: str) -> None:
        """Have the world take a step, and write down what is to be known of it."""
        world, at_ms = self.world, self.world.now_ms
        cleans = [int(step.partition(" ")[0])] if step.endswith(" cleans") else []
        if step in BACK_STEPS or step == COPY_STEP:
            self._before_return()
        self._look(world.up if step in AWAY_STEPS else cleans)
        opened = {one.name: one.open.nth for one in world.clients.values() if one.open}
        done = take(world, step)
        if done is None:
            return
        if done.batch is not None:
            self._client_did(step, done.batch, done.txn, at_ms)
        elif step in AWAY_STEPS:
            self._left_at, self._open_then = world.replication.leader.log_end, opened
        elif step in BACK_STEPS:
            self._is_back = True
        self._look(world.up if step in BACK_STEPS else cleans)

    def end(self) -> None:
        """Look for the last time, and have every replica in sync read."""
        self._look(self.world.up)
        if not self._has_before:
            self._snapshot(BEFORE_RETURN)
        self._snapshot(AFTER_REJOIN)
        for broker in self.world.replication.in_sync:
            replica = self.world.replicas[broker]
            told = (*_PLACE, None, None, None, broker, replica.last_stable_offset, list(delivered(replica)))
            self._event(self.world.now_ms, "poll", "reader", "reader", Phase.AFTER, _OF_NO_TXN, told)

    # What clients know.

    def _client_did(self, step: str, batch: Batch, open_txn: Open | None, at_ms: int) -> None:
        who, _, rest = step.partition(" ")
        nth = open_txn.nth if open_txn else None
        txn = _OF_NO_TXN if nth is None else (who, nth)
        process = "plain" if who == PLAIN else who
        if nth is not None and self._begun.get(who, 0) < nth:
            self._begun[who] = nth
            self._event(at_ms, "begin", process, "payload", self._phase(missed=False), txn, (*_NOWHERE, *_NO_POLL))
        if batch.control:
            phase = self._phase(missed=self._open_then.get(who) == nth)
            self._event(at_ms, OUTCOMES[rest], process, "payload", phase, txn, (*_NOWHERE, *_NO_POLL))
            return
        (record,) = batch.records
        deletes, key = record.value is None, (record.key or b"").decode()
        before, left_at = self._key_at.get(key), self._left_at
        phase = self._phase(missed=deletes and before is not None and left_at is not None and before < left_at)
        self._key_at[key] = record.offset
        told = (*_PLACE, record.offset, key, deletes or None, *_NO_POLL)
        self._event(at_ms, "produce", process, "payload", phase, txn, told)

    def _phase(self, *, missed: bool) -> Phase:
        """Return when something is written; what the absent replica cannot miss for anything it has is late."""
        if self._left_at is None:
            return Phase.BEFORE
        return Phase.AFTER if self._is_back else Phase.OUTAGE if missed else Phase.LATE

    def _event(self, at_ms: int, f: str, process: str, part: str, phase: Phase, txn: Row, told: Row) -> None:  # noqa: PLR0917
        """Write an invocation and its answer; an offset and what was read are known by the latter."""
        self._op += 1
        asked = (*told[:2], None, *told[3:6], None, None)
        for type_, time_ms, what in (("invoke", at_ms, asked), ("ok", at_ms + STEP_MS // 2, told)):
            index = len(self.history)
            self.history.append((index, type_, f, self._op, time_ms, process, part, phase.value, *txn, *what))

    # What brokers hold.

    def _before_return(self) -> None:
        if not self._has_before and self._left_at is not None and not self._is_back:
            self._has_before = True
            self._look(self.world.up)
            self._snapshot(BEFORE_RETURN)

    def _snapshot(self, name: str) -> None:
        for broker, replica in self.world.replicas.items():
            is_up = broker not in self.world.down
            head = (name, FETCH if is_up else DISK, broker, *_PLACE, True)
            for batch in replica.batches():
                self.entries.extend([(*head, *row) for row in self._read(batch).rows])
            index = replica.aborted
            self.aborts.extend(
                (name, DISK, broker, *_PLACE, one.producer_id, one.first_offset, one.last_offset) for one in index
            )
            told: Row = (None, None, None)
            if is_up:
                opened = [
                    [producer_id, one.epoch, one.open_from]
                    for producer_id, one in replica.producers.items()
                    if one.open_from is not None
                ]
                told = (replica.last_stable_offset, [[one.producer_id, one.first_offset] for one in index], opened)
            said = (is_up, replica.log_start, replica.high_watermark, *told, replica.cleaned_to or 0)
            self.states.append((name, broker, *_PLACE, *said, f"sim-{broker}", None, None, None))

    def _look(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            replica = self.world.replicas.get(broker)
            if replica is not None and broker not in self.world.down:
                self._look_at(broker, replica)

    def _look_at(self, broker: int, replica: Replica) -> None:
        before = self._seen.setdefault(broker, _Seen())
        log = list(replica.batches())
        said = (replica.log_start, replica.high_watermark, replica.last_stable_offset, replica.log_end)
        if log == before.log and said == before.said:
            return
        digest, present = 0, {}
        for batch in log:
            stored = self._read(batch)
            digest ^= stored.share
            for offset, kind, producer_id in stored.seen:
                present[offset] = (kind, producer_id)
        appeared = [_noted(offset, *what) for offset, what in present.items() if offset not in before.present]
        removed = [_noted(offset, kind) for offset, (kind, _) in before.present.items() if offset not in present]
        row = (self.world.now_ms, broker, *_PLACE, *said, len(log), digest, appeared, removed)
        self.observations.append(row)
        self._seen[broker] = _Seen(log, said, present)

    def _read(self, batch: Batch) -> Stored:
        stored = self._stored.get(batch)
        if stored is None:
            stored = self._stored[batch] = read_back(batch)
        return stored


def watch(rules: Rules, steps: Iterable[str]) -> Witness:
    """Return what is known of a run once it has ended."""
    witness = Witness(begin(rules))
    for step in steps:
        witness.take(step)
    witness.end()
    return witness


def read_back(batch: Batch) -> Stored:
    """Return what the parser of real files makes of a batch."""
    (parsed,) = iter_batches(encode(batch), source="a simulated log")
    share = batch_digest(parsed.base_offset, parsed.crc)
    return Stored(tuple(batch_rows(parsed, "a simulated log", BY_NULL)), share, _content(batch))


def _content(batch: Batch) -> tuple[tuple[int, str, int], ...]:
    """Return what an observer sees of a batch, as `harness.cluster.observe` has it."""
    if not batch.records or batch.control:
        return ((batch.last_offset, batch.marker or "empty", batch.producer_id),)
    return tuple(
        (record.offset, "tombstone" if record.value is None else "value", batch.producer_id) for record in batch.records
    )


def _noted(offset: int, kind: str, producer_id: int | None = None) -> dict[str, Any]:
    return {"offset": offset, "kind": kind, "producer_id": producer_id}


def delivered(replica: Replica) -> Iterator[dict[str, Any]]:
    """Yield what a read_committed consumer is delivered of a replica: offset and key.

    As Kafka's consumer does it (``Fetcher.PartitionRecords``): by the aborted transactions that the broker names, and
    by the ABORT that ends each; up to the last stable offset.
    """
    ahead = sorted((entry.first_offset, entry.producer_id) for entry in replica.aborted)
    aborted: set[int] = set()
    for batch in replica.batches():
        if batch.base_offset >= replica.last_stable_offset:
            return
        while ahead and ahead[0][0] <= batch.last_offset:
            aborted.add(ahead.pop(0)[1])
        if batch.control:
            if batch.marker == ABORT:
                aborted.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in aborted):
            for record in batch.records:
                yield {"offset": record.offset, "key": (record.key or b"").decode()}
