"""Rows of the checkers' tables for a simulated cluster, as a real run's folder would have them.

Both snapshots, the client history, a reader of every in-sync replica at the end, and an observer that reads
a broker before and after its cleaner passes. Batches are encoded as brokers store them and read by the parser of real
logs. A simulated broker serves its state: live brokers are judged by the state, as by Fetch, and down brokers by their
files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from checkers.evidence.parse import DISK, FETCH, batch_rows
from harness.broker_files.segments.batches import batch_digest, iter_batches
from harness.cluster.observe import content_of
from harness.models.log.batch import encode
from harness.models.log.delivery import delivered
from harness.models.world.steps import begin, take
from harness.models.world.world import ABSENT, CLEANING, PLAIN, STEP_MS
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.schedules.operations.administrators import AddReplica
from harness.schedules.operations.environment import CleanerPass, CopyBatch, JoinIsr
from harness.schedules.operations.faults import Heal, Inject
from harness.schedules.scenario import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.models.log.batch import Batch
    from harness.models.log.replica import Replica
    from harness.models.world.world import Open, Rules, World
    from harness.schedules.operations.operation import Operation

TOPIC: Final = "sim"
PARTITION: Final = 0
AWAY: Final = (Inject, AddReplica)
BACK: Final = (Heal, JoinIsr)
COPY: Final = CopyBatch(ABSENT)
"""Operations by which a broker is behind, and by which it is not any more."""
_PLACE: Final = (TOPIC, PARTITION)
_OF_NO_TXN: Final = (None, None)
_NOWHERE: Final = (None,) * 5
_NO_POLL: Final = (None,) * 3

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch as a log stores it, and as an observer sees it.

    ``rows``: with the columns of `checkers.evidence.schemas.ENTRIES` that come from a batch. ``share``: of its log's
    digest. ``seen``: offset, kind and producer id of its content.
    """

    rows: tuple[Row, ...]
    share: int
    seen: tuple[tuple[int, str, int], ...]


@dataclass(slots=True)
class _Seen:
    """A replica at the observer's last visit."""

    log: list[Batch] = field(default_factory=list)
    offsets: Row = ()
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
        """The ``settings`` table."""
        return [(CLEANING.delete_retention_ms, CLEANING.min_compaction_lag_ms)]

    def take(self, step: Operation) -> None:
        """Take a step in the world, and record its evidence."""
        world, at_ms = self.world, self.world.now_ms
        cleans = step.brokers if isinstance(step, CleanerPass) else ()
        if isinstance(step, BACK) or step == COPY:
            self._before_return()
        self._observe(world.up if isinstance(step, AWAY) else cleans)
        opened = {one.name: one.open.nth for one in world.clients.values() if one.open}
        done = take(world, step)
        if done is None:
            return
        if done.batch is not None:
            self._record_client_op(step, done.batch, done.txn, at_ms)
        elif isinstance(step, AWAY):
            self._left_at, self._open_then = world.replication.leader.log_end, opened
        elif isinstance(step, BACK):
            self._is_back = True
        self._observe(world.up if isinstance(step, BACK) else cleans)

    def end(self) -> None:
        """Observe for the last time, and read every in-sync replica."""
        self._observe(self.world.up)
        if not self._has_before:
            self._snapshot(BEFORE_RETURN)
        self._snapshot(AFTER_REJOIN)
        for broker in self.world.replication.in_sync:
            replica = self.world.replicas[broker]
            records = [{"offset": one.offset, "key": (one.key or b"").decode()} for one in delivered(replica)]
            result = (*_PLACE, None, None, None, broker, replica.last_stable_offset, records)
            self._event(self.world.now_ms, "poll", "reader", "reader", Phase.AFTER, _OF_NO_TXN, result)

    # Evidence of clients.

    def _record_client_op(self, step: Operation, batch: Batch, open_txn: Open | None, at_ms: int) -> None:
        client = step.process
        nth = open_txn.nth if open_txn else None
        txn = _OF_NO_TXN if nth is None else (client, nth)
        process = "plain" if client == PLAIN else client
        if nth is not None and self._begun.get(client, 0) < nth:
            self._begun[client] = nth
            self._event(at_ms, "begin", process, "payload", self._phase(missed=False), txn, (*_NOWHERE, *_NO_POLL))
        if batch.control:
            phase = self._phase(missed=self._open_then.get(client) == nth)
            self._event(at_ms, batch.marker or "", process, "payload", phase, txn, (*_NOWHERE, *_NO_POLL))
            return
        (record,) = batch.records
        deletes, key = record.value is None, (record.key or b"").decode()
        before, left_at = self._key_at.get(key), self._left_at
        phase = self._phase(missed=deletes and before is not None and left_at is not None and before < left_at)
        self._key_at[key] = record.offset
        result = (*_PLACE, record.offset, record.key or b"", deletes or None, *_NO_POLL)
        self._event(at_ms, "produce", process, "payload", phase, txn, result)

    def _phase(self, *, missed: bool) -> Phase:
        """Return the phase of a write; a write that the absent replica misses without consequences is late."""
        if self._left_at is None:
            return Phase.BEFORE
        return Phase.AFTER if self._is_back else Phase.OUTAGE if missed else Phase.LATE

    def _event(self, at_ms: int, f: str, process: str, part: str, phase: Phase, txn: Row, result: Row) -> None:  # noqa: PLR0917
        """Record an invocation and its completion; only the latter has an offset and the records that were read."""
        self._op += 1
        invocation = (*result[:2], None, *result[3:6], None, None)
        for type_, time_ms, values in (("invoke", at_ms, invocation), ("ok", at_ms + STEP_MS // 2, result)):
            index = len(self.history)
            self.history.append((index, type_, f, self._op, time_ms, process, part, phase.value, *txn, *values))

    # Evidence of brokers.

    def _before_return(self) -> None:
        if not self._has_before and self._left_at is not None and not self._is_back:
            self._has_before = True
            self._observe(self.world.up)
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
            watermarks: Row = (None, None, None)
            if is_up:
                watermarks = (
                    replica.last_stable_offset,
                    [[one.producer_id, one.first_offset] for one in index],
                    list(map(list, replica.open_transactions)),
                )
            columns = (is_up, replica.log_start, replica.high_watermark, *watermarks, replica.cleaned_to or 0)
            leads = (self.world.replication.leader_id, self.world.replication.leader_epoch)
            self.states.append((name, broker, *_PLACE, *columns, f"sim-{broker}", None, None, None, *leads, None))

    def _observe(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            replica = self.world.replicas.get(broker)
            if replica is not None and broker not in self.world.down:
                self._observe_replica(broker, replica)

    def _observe_replica(self, broker: int, replica: Replica) -> None:
        before = self._seen.setdefault(broker, _Seen())
        log = list(replica.batches())
        offsets = (replica.log_start, replica.high_watermark, replica.last_stable_offset, replica.log_end)
        if log == before.log and offsets == before.offsets:
            return
        digest, present = 0, {}
        for batch in log:
            stored = self._read(batch)
            digest ^= stored.share
            for offset, kind, producer_id in stored.seen:
                present[offset] = (kind, producer_id)
        appeared = [_record_entry(offset, *what) for offset, what in present.items() if offset not in before.present]
        removed = [_record_entry(offset, kind) for offset, (kind, _) in before.present.items() if offset not in present]
        row = (self.world.now_ms, broker, *_PLACE, *offsets, len(log), digest, appeared, removed)
        self.observations.append(row)
        self._seen[broker] = _Seen(log, offsets, present)

    def _read(self, batch: Batch) -> Stored:
        stored = self._stored.get(batch)
        if stored is None:
            stored = self._stored[batch] = read_back(batch)
        return stored


def watch(rules: Rules, steps: Iterable[Operation]) -> Witness:
    """Return the evidence of a run after its end."""
    witness = Witness(begin(rules))
    for step in steps:
        witness.take(step)
    witness.end()
    return witness


def read_back(batch: Batch) -> Stored:
    """Return a batch as the parser of real files reads it."""
    (parsed,) = iter_batches(encode(batch), source="a simulated log")
    share = batch_digest(parsed.base_offset, parsed.crc)
    seen = tuple((offset, kind, parsed.producer_id) for offset, kind in content_of(parsed))
    return Stored(tuple(batch_rows(parsed, "a simulated log")), share, seen)


def _record_entry(offset: int, kind: str, producer_id: int | None = None) -> dict[str, Any]:
    return {"offset": offset, "kind": kind, "producer_id": producer_id}
