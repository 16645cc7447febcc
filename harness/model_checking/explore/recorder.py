"""Records the rows of the checkers' tables while a simulated cluster runs, as the folder of a real run would have them.

Both snapshots, the client history, a reader of every in-sync replica at the end, and an observer that reads
a broker before and after its cleaner passes. Batches are encoded as brokers store them and read by the parser of real
logs. A simulated broker serves its state: live brokers are judged by the state, as by Fetch, and down brokers by their
files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from checkers.evidence.parse import DISK, FETCH, batch_rows
from harness.broker_files.segments.batches import batch_digest, iter_batches
from harness.cluster.observe import content_of
from harness.models.log.batch import ModelBatch, encoded
from harness.models.log.delivery import delivered
from harness.models.log.replica import Replica
from harness.models.world.steps import begin, take
from harness.models.world.world import ABSENT, CLEANING, PLAIN, STEP_MS, Open, Rules, World
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.schedules.operations.administrators import AddReplica
from harness.schedules.operations.environment import CleanerPass, CopyBatch, JoinIsr
from harness.schedules.operations.faults import Heal, Inject
from harness.schedules.operations.operation import Operation
from harness.schedules.scenario import Phase

Row: TypeAlias = tuple[Any, ...]

TOPIC, PARTITION = "sim", 0
BEGINNINGS, ENDINGS = (Inject, AddReplica), (Heal, JoinIsr)
"""Operations by which a broker falls behind, and by which it catches up."""
COPY: Final = CopyBatch(ABSENT)
_PLACE: Final = (TOPIC, PARTITION)
_NO_TXN: Final = (None, None)
_NO_POLL: Final = (None,) * 3
_NO_RESULT: Final = (*(None,) * 5, *_NO_POLL)


class ParsedBatch(NamedTuple):
    """A batch as a log stores it, and as an observer reads it.

    ``rows``: with the columns of `checkers.evidence.schemas.ENTRIES` that come from a batch. ``share``: of its log's
    digest. ``content``: offsets with kind and producer id.
    """

    rows: tuple[Row, ...]
    share: int
    content: dict[int, tuple[str, int]]


class _Visit(NamedTuple):
    log: list[ModelBatch]
    offsets: Row
    content: dict[int, tuple[str, int]]


@dataclass(slots=True)
class RunRecorder:
    """Records one run.

    Its lists are tables of `checkers.evidence.schemas`, without the columns ``run`` and ``problem``.
    """

    world: World
    entries: list[Row] = field(default_factory=list)
    aborts: list[Row] = field(default_factory=list)
    states: list[Row] = field(default_factory=list)
    history: list[Row] = field(default_factory=list)
    observations: list[Row] = field(default_factory=list)
    _parsed: dict[ModelBatch, ParsedBatch] = field(default_factory=dict)
    _visits: dict[int, _Visit] = field(default_factory=dict)
    _begun: dict[str, int] = field(default_factory=dict)
    _key_at: dict[str, int] = field(default_factory=dict)
    _open_then: dict[str, int] = field(default_factory=dict)
    _left_at: int | None = None
    _is_back: bool = False
    _has_before: bool = False

    @property
    def settings(self) -> list[Row]:
        """The ``settings`` table."""
        return [(CLEANING.delete_retention_ms, CLEANING.min_compaction_lag_ms)]

    def take(self, step: Operation) -> None:
        """Take a step in the world, and record its evidence."""
        world, at_ms = self.world, self.world.now_ms
        begins, ends = isinstance(step, BEGINNINGS), isinstance(step, ENDINGS)
        cleaning = step.brokers if isinstance(step, CleanerPass) else ()
        if (ends or step == COPY) and not self._has_before and self._left_at is not None and not self._is_back:
            self._has_before = True
            self._observe(world.up)
            self._snapshot(BEFORE_RETURN)
        self._observe(world.up if begins else cleaning)
        opened = {client.name: client.open.nth for client in world.clients.values() if client.open}
        done = take(world, step)
        if done is None:
            return
        if done.batch is not None:
            self._record_client_op(step, done.batch, done.txn, at_ms)
        elif begins:
            self._left_at, self._open_then = world.replication.leader.log_end, opened
        elif ends:
            self._is_back = True
        self._observe(world.up if ends else cleaning)

    def end(self) -> None:
        """Observe for the last time, and read every in-sync replica."""
        self._observe(self.world.up)
        if not self._has_before:
            self._snapshot(BEFORE_RETURN)
        self._snapshot(AFTER_REJOIN)
        for broker in self.world.replication.in_sync:
            replica = self.world.replicas[broker]
            records = [{"offset": it.offset, "key": (it.key or b"").decode()} for it in delivered(replica)]
            result = (*_PLACE, None, None, None, broker, replica.last_stable_offset, records)
            self._event(self.world.now_ms, "poll", "reader", "reader", Phase.AFTER, _NO_TXN, result)

    def _record_client_op(self, step: Operation, batch: ModelBatch, open_txn: Open | None, at_ms: int) -> None:
        client = step.process
        nth = open_txn.nth if open_txn else None
        txn = _NO_TXN if nth is None else (client, nth)
        process = "plain" if client == PLAIN else client
        if nth is not None and self._begun.get(client, 0) < nth:
            self._begun[client] = nth
            self._event(at_ms, "begin", process, "payload", self._phase(missed=False), txn, _NO_RESULT)
        if batch.control:
            phase = self._phase(missed=self._open_then.get(client) == nth)
            self._event(at_ms, batch.marker or "", process, "payload", phase, txn, _NO_RESULT)
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
        """Record an invocation and its completion; only the completion has an offset and the records of a poll."""
        index = len(self.history)
        invocation = (*result[:2], None, *result[3:6], None, None)
        common = (process, part, phase.value, *txn)
        number = index // 2 + 1
        self.history.append((index, "invoke", f, number, at_ms, *common, *invocation))
        self.history.append((index + 1, "ok", f, number, at_ms + STEP_MS // 2, *common, *result))

    def _snapshot(self, name: str) -> None:
        leads = (self.world.replication.leader_id, self.world.replication.leader_epoch)
        for broker, replica in self.world.replicas.items():
            is_up = broker not in self.world.down
            head = (name, FETCH if is_up else DISK, broker, *_PLACE, True)
            self.entries.extend((*head, *row) for batch in replica.batches() for row in self._parse(batch).rows)
            index = [(it.producer_id, it.first_offset, it.last_offset) for it in replica.aborted]
            self.aborts.extend((name, DISK, broker, *_PLACE, *aborted) for aborted in index)
            aborted, open_transactions = [[*it[:2]] for it in index], [*map(list, replica.open_transactions)]
            served = (replica.last_stable_offset, aborted, open_transactions) if is_up else (None, None, None)
            columns = (is_up, replica.log_start, replica.high_watermark, *served, replica.cleaned_to or 0)
            self.states.append((name, broker, *_PLACE, *columns, f"sim-{broker}", *[None] * 5, *leads, None))

    def _observe(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            replica = self.world.replicas.get(broker)
            if replica is not None and broker not in self.world.down:
                self._observe_replica(broker, replica)

    def _observe_replica(self, broker: int, replica: Replica) -> None:
        before = self._visits.get(broker, _Visit([], (), {}))
        log = list(replica.batches())
        offsets = (replica.log_start, replica.high_watermark, replica.last_stable_offset, replica.log_end)
        if log == before.log and offsets == before.offsets:
            return
        digest, content = 0, dict[int, tuple[str, int]]()
        for batch in map(self._parse, log):
            digest ^= batch.share
            content |= batch.content
        appeared = [_item(at, *content[at]) for at in content if at not in before.content]
        removed = [_item(at, kind) for at, (kind, _) in before.content.items() if at not in content]
        row = (self.world.now_ms, broker, *_PLACE, *offsets, len(log), digest, appeared, removed)
        self.observations.append(row)
        self._visits[broker] = _Visit(log, offsets, content)

    def _parse(self, batch: ModelBatch) -> ParsedBatch:
        parsed = self._parsed.get(batch)
        if parsed is None:
            (read,) = iter_batches(encoded(batch), source="a simulated log")
            content = {offset: (kind, read.producer_id) for offset, kind in content_of(read)}
            share = batch_digest(read.base_offset, read.crc)
            parsed = self._parsed[batch] = ParsedBatch(tuple(batch_rows(read, "a simulated log")), share, content)
        return parsed


def record_run(rules: Rules, steps: Iterable[Operation]) -> RunRecorder:
    """Return the evidence of a run after its end."""
    recorder = RunRecorder(begin(rules))
    for step in steps:
        recorder.take(step)
    recorder.end()
    return recorder


def _item(offset: int, kind: str, producer_id: int | None = None) -> dict[str, Any]:
    return {"offset": offset, "kind": kind, "producer_id": producer_id}
