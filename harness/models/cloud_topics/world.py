"""Every interleaving of a small case: a few writes, competing compactors, crashes, a slow reader, passing time.

The steps are the engine's own functions (``begin_pass``, ``refusal``, ``applied``). A compactor's pass, up to its
commit, is one step: it reads only immutable objects, so other steps do not change its result. Its commit is one step,
or several if it is not atomic. Time passes in units; delete.retention.ms is a few units.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, TypeAlias

from harness.broker_files.segments.records import Record
from harness.models.cloud_topics.compaction import ENTRY_BYTES, Settings, begin_pass, dirty, removable
from harness.models.cloud_topics.judge import Reader, deduplicated, wrong_for_reader, wrong_in_log
from harness.models.cloud_topics.metastore import L1Object, Log, Update, appended, applied, refusal, stages
from harness.models.log.batch import ModelBatch
from harness.models.walk.exhaustive import Explored, explore
from harness.schedules.operations.clients import BeginReading, ReadOn, WriteBatch
from harness.schedules.operations.environment import CompactorCommit, CompactorCrash, CompactorPass, TimePasses
from harness.schedules.operations.operation import Operation

UNCONVERGED: Final = "unconverged"
"""No step is possible, but the log differs from the result of full deduplication."""
CaseWrite: TypeAlias = tuple[tuple[str, str | None], ...]
"""Keys and values of one batch; None deletes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The possible steps: these writes in this order, each a separate object, and this many compactors at once.

    ``without``: names of `harness.models.cloud_topics.rules.RULES` that are left out.
    """

    title: str = ""
    writes: tuple[CaseWrite, ...]
    entries: int = 1
    compactors: int = 2
    object_records: int = 1
    retention: int = 2
    has_reader: bool = True
    without: frozenset[str] = frozenset()

    @cached_property
    def settings(self) -> Settings:
        """The engine's settings; a millisecond is a unit of time here."""
        return Settings(
            delete_retention_ms=self.retention,
            map_bytes=self.entries * ENTRY_BYTES,
            object_records=self.object_records,
            without=self.without,
        )

    def walk(self, *, most_states: int, first_only: bool) -> Explored:
        """Explore it."""
        return explore(
            CompactionWorld.of(self),
            CompactionWorld.following,
            CompactionWorld.wrong,
            key=CompactionWorld.key,
            most_states=most_states,
            first_only=first_only,
        )


class Pass(NamedTuple):
    """A compactor's pass: the uncommitted updates, empty without a pass, and when it began."""

    updates: tuple[Update, ...] = ()
    began_at: int = 0


@dataclass(frozen=True, slots=True)
class CompactionWorld:
    """One state of a case. ``passes``: of each compactor."""

    case: Case
    passes: tuple[Pass, ...]
    log: Log = field(default_factory=Log)
    written: tuple[Record, ...] = ()
    writes: int = 0
    reader: Reader | None = None
    now: int = 0

    @classmethod
    def of(cls, case: Case) -> CompactionWorld:
        """Return the initial state."""
        return cls(case, (Pass(),) * case.compactors)

    def steps(self) -> Iterator[Operation]:
        """Return the possible steps; time passes only where this can change the result of a later step."""
        if self.writes < len(self.case.writes):
            yield written(self.case.writes[self.writes])
        if self._ages():
            yield TimePasses()
        if self.reader is None:
            if self.case.has_reader and self.log.end_offset:
                yield BeginReading()
        elif self.reader.position < self.log.end_offset:
            yield ReadOn()
        has_work = dirty(self.log) or removable(self.log, self.case.settings, now_ms=self.now)
        for number, (updates, _) in enumerate(self.passes, 1):
            if updates:
                yield _commit(number, updates[0])
                yield CompactorCrash(number)
            elif has_work:
                yield CompactorPass(number)

    def following(self) -> Iterator[tuple[Operation, CompactionWorld]]:
        """Yield each possible step, and the state after it."""
        return ((step, self.after(step)) for step in self.steps())

    def after(self, step: Operation) -> CompactionWorld:
        """Return the state after a step."""
        match step:
            case CompactorPass() | CompactorCommit() | CompactorCrash():
                return self._compacted(step.compactor - 1, step)
            case WriteBatch():
                return self._appended()
            case TimePasses():
                return self._later()
        return replace(self, reader=Reader(self.now) if self.reader is None else self.reader.next(self.log))

    def key(self) -> Hashable:
        """Return what later steps depend on: ages instead of times, at most the retention; compactors without names."""
        dated_passes, dated_records = "commit-time" in self.case.without, "clean-tombstones" in self.case.without
        passes = sorted(
            (tuple(map(self._update_key, updates)), self._age(began_at) if dated_passes and updates else 0)
            for updates, began_at in self.passes
        )
        reader = self.reader and (
            self._age(self.reader.began_at_ms),
            self.reader.position,
            tuple(record.offset for record in self.reader.latest),
        )
        return (
            self.writes,
            tuple(map(_object_key, self.log.objects)),
            self.log.cleaned,
            tuple((entry.first, entry.end, self._age(entry.cleaned_at_ms)) for entry in self.log.tombstones),
            tuple(passes),
            reader,
            tuple(self._age(record.timestamp_ms) for record in self.written) if dated_records else None,
        )

    def wrong(self) -> set[str]:
        """Return the names of the violations in this state (``judge``), and UNCONVERGED for a wrong final state."""
        violations = wrong_in_log(self.log, self.written)
        if self.reader is not None:
            violations |= wrong_for_reader(
                self.reader, self.log, self.written, now_ms=self.now, delete_retention_ms=self.case.retention
            )
        is_done = self.writes == len(self.case.writes) and not dirty(self.log) and not self.log.tombstones
        if (
            is_done
            and not any(updates for updates, _ in self.passes)
            and list(self.log.records()) != deduplicated(self.written)
        ):
            violations.add(UNCONVERGED)
        return violations

    def _compacted(self, index: int, step: Operation) -> CompactionWorld:
        """Return the state after a compactor's step; a compactor whose update is refused gives up its pass."""
        log, without = self.log, self.case.without
        updates, began_at = self.passes[index]
        if isinstance(step, CompactorPass):
            update = begin_pass(log, self.case.settings, now_ms=self.now)
            updates, began_at = stages(update, without) if update else (), self.now
        elif isinstance(step, CompactorCrash) or refusal(log, updates[0], without) is not None:
            updates = ()
        else:
            log, updates = applied(log, updates[0], now_ms=self.now, without=without), updates[1:]
        passes = (*self.passes[:index], Pass(updates, began_at), *self.passes[index + 1 :])
        return replace(self, log=log, passes=passes)

    def _appended(self) -> CompactionWorld:
        base = self.log.end_offset
        records = tuple(
            Record(offset, self.now, key.encode(), None if value is None else value.encode())
            for offset, (key, value) in enumerate(self.case.writes[self.writes], base)
        )
        log = appended(self.log, [ModelBatch(base, base + len(records) - 1, records, self.now)])
        return replace(self, log=log, written=(*self.written, *records), writes=self.writes + 1)

    def _later(self) -> CompactionWorld:
        """End a late reader, to which no guarantee applies any more; another reader may begin."""
        now = self.now + 1
        is_late = self.reader is not None and self.reader.began_at_ms + self.case.retention <= now
        return replace(self, now=now, reader=None if is_late else self.reader)

    def _ages(self) -> bool:
        ages = [self._age(entry.cleaned_at_ms) for entry in self.log.tombstones]
        if self.reader is not None:
            ages.append(self._age(self.reader.began_at_ms))
        if "commit-time" in self.case.without:
            ages += [self._age(began_at) for updates, began_at in self.passes if updates]
        if "clean-tombstones" in self.case.without:
            ages += [self._age(record.timestamp_ms) for record in self.written]
        return any(age < self.case.retention for age in ages)

    def _age(self, at: int) -> int:
        return min(self.now - at, self.case.retention)

    def _update_key(self, update: Update) -> tuple[Hashable, ...]:
        is_expected = update.expected_epoch in {None, self.log.compaction_epoch}
        undated = update.bookkeeping._replace(began_at_ms=0) if update.bookkeeping else ()
        return is_expected, tuple(map(_object_key, update.objects)), undated


@lru_cache(maxsize=1 << 16)
def _object_key(piece: L1Object) -> tuple[int, int, tuple[int, ...]]:
    return piece.base_offset, piece.end_offset, tuple(record.offset for record in piece.records())


def written(write: CaseWrite) -> WriteBatch:
    """Return the operation that writes a batch."""
    tombstones = tuple(at for at, (_, value) in enumerate(write) if value is None)
    return WriteBatch("p", tuple(key for key, _ in write), tombstones)


def _commit(compactor: int, update: Update) -> CompactorCommit:
    if update.bookkeeping is not None:
        return CompactorCommit(compactor, records_clean=not update.objects)
    piece = update.objects[0]
    return CompactorCommit(compactor, piece.base_offset, piece.end_offset)
