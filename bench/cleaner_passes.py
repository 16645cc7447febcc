"""Kafka's cleaner without a broker: random logs, thousands of passes a minute, judged by the model and by the truth.

    python bench/cleaner_passes.py --target kafka-4.4 --cases 300
    python bench/cleaner_passes.py --target kafka-4.4 --patch DIR --seed 7
    python bench/cleaner_passes.py --planted

``cleaner_java`` opens folders with ``UnifiedLog``, appends batches as a follower does and runs ``Cleaner`` in one JVM,
on command. Cases reach what a cluster does not reach in minutes: offsets 2^31 apart, segments that span more (of
Kafka before 0.10.2, which are split when they are cleaned), old timestamps, batches larger than the cleaner's buffers,
maps that hold a few keys, several leader epochs, tails that are truncated, records that are deleted, small segments and
indexes, passes that are aborted, restarts in order and after a crash, also in the middle of a swap or of a deletion, or
with checkpoints that are lost.

After each step, the folder is read back and judged twice. **By the truth**: a consumer that reads committed records
gets nothing that was aborted, and the last committed record of every key; both with the stored ``.txnindex`` files and
with those that recovery would write. No tombstone or marker is removed before it has waited for
``delete.retention.ms``. ``leader-epoch-checkpoint`` has the first offset of each epoch, leaders answer with its end,
time indexes end with the latest timestamp, segments that become one are small enough, a start removes temporary
files, flushed data ends at the recovery point or after it, and a pass with a small map ends where the map is full.
**By the model** (`harness.models.log.cleaner`): batches, delete horizons, ``.txnindex``, segments, snapshots and last
stable offset are equal. The model has no small maps, aborted passes or segments that are split: from there on, a case
is judged by the truth alone.

A case with a difference is reduced to few steps. ``--planted`` patches the cleaner with an error of the kind of
KAFKA-20036: once a segment of a log was split, every marker counts as not needed.
Prints each difference, then passes and passes per minute. Exits 1 if there was a difference.

Three errors of Kafka 3.9, 4.2 and 4.4 are known (drafts in ``results/upstream``); cases with them end there, and are
counted. A split loses the ``.txnindex`` of the segment, so that aborted records are served as committed
(``split-segment-without-txnindex.md``). A truncation after all producers have expired loads a snapshot with an open
transaction, and does not read the marker after it (``reopened-transaction.md``). A pass removes the marker of records
before the log start, so that a recovery opens their transaction again (``marker-before-log-start.md``). A case also
ends where a pass relied on a marker that is truncated later: in a cluster, the coordinator writes it again.

Indexes have room for what a pass or a recovery writes. Where they have not, these versions fail, which needs less than
12 bytes of ``segment.index.bytes`` for each 4096 bytes of a segment; the default is three times as much.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count, zip_longest
from pathlib import Path
from typing import Final

import click
from cleaner_files import (
    StoredSegment,
    begin_swap,
    empty_indexes,
    index_bytes_to_recover,
    merge,
    read_epochs,
    read_segment,
    temporary_files,
)
from cleaner_steps import (
    FAR,
    LARGE_INDEX_BYTES,
    LARGE_MAP_BYTES,
    LARGE_SEGMENT_BYTES,
    PLAIN,
    RETENTION_MS,
    Delete,
    DeleteRecords,
    Elect,
    End,
    Jump,
    Merge,
    Pass,
    Restart,
    Roll,
    Step,
    Truncate,
    Write,
    random_steps,
)

from harness.broker_files.segments.records import COMMIT, Record, marker_record
from harness.broker_files.side_files.producer_state import ProducerEntry
from harness.model_checking.conform.picture import log_fields, parsed
from harness.models.log.batch import ModelBatch, encoded
from harness.models.log.cleaner import Cleaning, clean
from harness.models.log.delivery import delivered
from harness.models.log.replica import ModelSegment, Replica
from harness.models.log.version_rules import rules_of
from harness.protect.gate.build import parts
from harness.schedules.shrink import ddmin
from harness.targets import find_target
from harness.targets.jars import jars_for

HERE = Path(__file__).resolve().parent
START_MS: Final = 1_700_000_000_000
EXPIRATION_MS: Final = 2500
ANSWER_S: Final = 60
MAP_ENTRY_BYTES: Final = 24
MAP_LOAD: Final = 0.9
"""``SkimpyOffsetMap`` and ``log.cleaner.io.buffer.load.factor``."""


class DifferenceError(Exception):
    """Kafka differs from the model, or from the truth."""


REMOVED_MARKER: Final = "a pass removed a marker of records before the log start"


class KnownError(Exception):
    """A known error of Kafka, or steps that no cluster takes; the message is what happened."""


@dataclass
class Jvm:
    """A JVM with a version's log and cleaner. Raises `DifferenceError` where it fails or does not answer in time.

    ``probes``: lines of the probes of `bench/kafka_mutants.py`, which say that a changed place was executed.
    """

    process: subprocess.Popen[bytes]
    passes: int = 0
    probes: set[str] = field(default_factory=set)
    _output: bytes = b""

    def ask(self, command: str) -> list[str]:
        """Return the words of an answer; "ok" or "aborted" comes first."""
        assert self.process.stdin is not None  # noqa: S101
        try:
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise DifferenceError("the JVM has ended") from None
        while (line := self._line()).startswith("MUTATION POINT"):
            self.probes.add(line)
        answer = line.split()
        if answer[0] == "failed":
            raise DifferenceError(line[:400])
        return answer

    def _line(self) -> str:
        assert self.process.stdout is not None  # noqa: S101
        while b"\n" not in self._output:
            if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
                self.process.kill()
                raise DifferenceError(f"no answer within {ANSWER_S} s")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise DifferenceError("the JVM has ended")
            self._output += data
        line, _, self._output = self._output.partition(b"\n")
        return line.decode()


def opener_of(target: str) -> str:
    """Return the name of the class of ``cleaner_java`` that opens a version's logs."""
    return "Kafka3" if find_target(target).version.startswith("3.") else "Kafka4"


def classpath(target: str, build: Path, patches: Sequence[Path]) -> str:
    """Compile the classes of ``cleaner_java`` for a version, and return the class path with them and its jars."""
    jars = jars_for(find_target(target)).classpath
    sources = [HERE / "cleaner_java" / f"{name}.java" for name in ("Passes", opener_of(target))]
    subprocess.run(["javac", "-d", build, "-cp", jars, *sources], check=True)
    return os.pathsep.join([*map(str, patches), str(build), jars])


def plant(target: str, folder: Path) -> Path:
    """Write the classes of ``--planted`` to a folder, and return it."""
    compiler = [*parts(lambda *_: None).paths, *jars_for(find_target(target)).paths]
    libraries = os.pathsep.join(map(str, compiler))
    subprocess.run(["java", "-cp", libraries, HERE / "cleaner_java" / "Plant.java", folder], check=True)
    subprocess.run(["javac", "-d", folder, HERE / "cleaner_java" / "Planted.java"], check=True)
    return folder


@contextmanager
def jvm(target: str, path: str) -> Iterator[Jvm]:
    """Start a JVM, and end it."""
    driver, opener = (f"org.apache.kafka.storage.internals.log.{name}" for name in ("Passes", opener_of(target)))
    with tempfile.TemporaryDirectory() as temporary:  # for libraries that Kafka unpacks
        flags = (f"-Djava.io.tmpdir={temporary}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
        command = ["java", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx512m", "-Xshare:auto", "-cp", path,
                   *flags, driver, opener]  # fmt: skip
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield Jvm(process)
        finally:
            process.kill()
            process.communicate()


@dataclass
class Producer:
    """A transactional producer; ``first``: the first offset of its open transaction."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    first: int | None = None


@dataclass
class Written:
    """The producers and transactions of the batches up to an offset.

    ``outcomes``: COMMIT, ABORT or None (open) by the number of the transaction. ``txn_of``: the number of the open
    transaction by producer.
    """

    producers: dict[int, Producer] = field(default_factory=dict)
    outcomes: dict[int, str | None] = field(default_factory=dict)
    txn_of: dict[int, int] = field(default_factory=dict)


@dataclass
class Case:
    """One log: the steps, the model of the log, and the truth about each record. ``modelled``: see the module.

    ``replicated``: the truth at the high watermark.
    """

    jvm: Jvm
    folder: Path
    cleaning: Cleaning
    modelled: bool = True
    now_ms: int = START_MS
    model: Replica = field(default_factory=lambda: Replica(0))
    truth: Written = field(default_factory=Written)
    replicated: Written = field(default_factory=Written)
    written: list[ModelBatch] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    leader_epoch: int = 0
    next_offset: int = 0
    high_watermark: int = 0
    log_start: int = 0
    deleted_to: int = 0
    """The highest log start; a crash may lose it."""
    epoch_starts: dict[int, int] = field(default_factory=dict)
    """First offset by leader epoch."""
    segments: Sequence[StoredSegment] = ()
    """After the last step."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    """First offset and marker of each transaction that has ended since the log was opened."""
    rolls: bool = False
    cleaned_early: bool = False
    """A pass read a transaction whose marker was not replicated."""
    is_empty: bool = True
    """The last segment has no batch, so that brokers do not begin a segment."""
    dirty_from: int = 0
    index_entries: int = 0
    """The number of entries of all ``.txnindex`` files after the last step."""
    emptied: set[int] = field(default_factory=set)
    """Inodes of time indexes that lack entries because a step emptied them."""
    clean_since_ms: dict[int, int] = field(default_factory=dict)
    """When each tombstone and marker was first left by a pass, by offset."""

    def run(self, steps: Sequence[Step]) -> None:
        """Play the steps. Raises `DifferenceError`."""
        self.folder.mkdir()
        self._open(in_order=True)
        for step in steps:
            self._play(step)
        self.jvm.ask("close")

    def _open(self, *, in_order: bool, checkpoint: int | None = None, index_bytes: int = LARGE_INDEX_BYTES) -> None:
        """Open the log, and compare it. ``checkpoint``: the stored log start, if it is older than the log start."""
        self.ended.clear()
        temporary = temporary_files(self.folder)
        log_start = self.log_start if checkpoint is None else checkpoint
        answer = self._ask_to_open(self.folder, log_start, in_order=in_order, index_bytes=index_bytes)
        if remaining := temporary & temporary_files(self.folder):
            raise DifferenceError(f"temporary files are left after a start: {', '.join(name for name, _ in remaining)}")
        if int(answer[4]) != (expected := int(answer[2]) if in_order else self.log_start):
            raise DifferenceError(f"the recovery point after a start is {answer[4]} instead of {expected}")
        self._compare(answer)

    def _ask_to_open(
        self, folder: Path, log_start: int, *, in_order: bool, index_bytes: int = LARGE_INDEX_BYTES
    ) -> list[str]:
        times = f"{RETENTION_MS} {EXPIRATION_MS} {self.dirty_from} {self.high_watermark} {self.now_ms}"
        return self.jvm.ask(f"open {folder} {int(in_order)} {times} {log_start} {index_bytes}")

    @property
    def next_end(self) -> int:
        """The log's end."""
        return self.written[-1].last_offset + 1 if self.written else 0

    def _play(self, step: Step) -> None:
        match step:
            case Write():
                self._write(step)
            case End():
                self._end(step)
            case Roll():
                self.rolls = True
            case Jump(offsets) if not self.is_empty:
                self.next_offset += offsets
                # Kafka begins a segment where an offset does not fit in its index.
                self.rolls |= offsets >= FAR
            case Pass():
                self._pass(step)
            case Elect():
                self.leader_epoch += 1
            case DeleteRecords(share) if self.written:
                self._delete_records(share)
            case Truncate() if self.high_watermark < self.next_end:
                self._truncate()
            case Restart() | Merge() | Delete():
                self.jvm.ask("close")
                self._open_again(step)

    def _open_again(self, step: Restart | Merge | Delete) -> None:
        match step:
            case Restart(True):
                self.emptied.add(empty_indexes(max(self.folder.glob("*.log"))))
                self.model.reopen()
                self.model.expire(self.now_ms, EXPIRATION_MS)
                self._open(in_order=True)
            case Restart(False, renamed, loses, fills):
                fills &= self.modelled and renamed is None
                if renamed is not None:
                    self._begin_swap(renamed)
                if loses:
                    self._lose_checkpoints()
                checkpoint = 0 if loses else self.log_start
                self.model.recover(checkpoint)
                index_bytes = index_bytes_to_recover(self.segments) if fills else LARGE_INDEX_BYTES
                self._open(in_order=False, checkpoint=checkpoint, index_bytes=index_bytes)
                if fills:
                    self.jvm.ask("close")
                    self._open_again(Restart(in_order=True))
            case Merge():
                self.modelled = False
                self.emptied |= merge(self.folder)
                self._open(in_order=True)
            case Delete(files):
                deleted = self.folder.with_name(f"{self.folder.name}.{'0' * 32}-delete")
                shutil.copytree(self.folder, deleted)
                for path in sorted(deleted.iterdir())[:files]:
                    path.unlink()
                self._ask_to_open(deleted, self.log_start, in_order=False)
                shutil.rmtree(deleted)

    def _lose_checkpoints(self) -> None:
        """Lose the log start, which is the first segment's then, and leader epochs, which recovery reads again."""
        (self.folder / "leader-epoch-checkpoint").unlink(missing_ok=True)
        self.log_start = self.model.log_start = self.segments[0].base_offset
        self.epoch_starts.clear()
        for batch in (batch for segment in self.segments for batch in segment.stored):
            self.epoch_starts.setdefault(batch.leader_epoch, batch.base_offset)

    def _begin_swap(self, renamed: int) -> None:
        """Let one cleaned segment replace the first two, or one where two cannot become one, and crash meanwhile."""
        *inactive, active = sorted(self.folder.glob("*.log"))
        bases = [int(path.stem) for path in (*inactive, active)]
        paths = inactive[: 2 if len(inactive) > 1 and bases[2] - bases[0] < 2**31 else 1]
        if not paths:
            return
        begin_swap(paths, renamed)
        if self.modelled:
            first, *others = self.model.segments[: len(paths)]
            if renamed <= 0:
                # ``LogLoader.load`` deletes all files in the range of a ``.log.swap`` file.
                self.model.snapshots.pop(first.base_offset, None)
            for segment in others:
                first.batches += segment.batches
                self.model.segments.remove(segment)

    def _write(self, step: Write) -> None:
        base, stamp_ms = self.next_offset, self.now_ms - step.age_ms
        records = tuple(
            Record(base + n, stamp_ms, b"k%d" % key, None if deletes else b"%d" % (base + n) * step.value_bytes)
            for n, (key, deletes) in enumerate(step.keys)
        )
        batch = ModelBatch(base, records[-1].offset, records, stamp_ms, self.leader_epoch, codec=step.codec)
        if step.producer != PLAIN:
            producer = self.truth.producers.setdefault(step.producer, Producer(1000 + step.producer))
            if producer.first is None:
                producer.first, self.truth.txn_of[step.producer] = base, next(self.numbers)
                self.truth.outcomes[self.truth.txn_of[step.producer]] = None
            batch = ModelBatch(base, records[-1].offset, records, stamp_ms, self.leader_epoch, codec=step.codec,
                               transactional=True,
                               producer_id=producer.producer_id, producer_epoch=producer.epoch,
                               base_sequence=producer.sequence, txn=self.truth.txn_of[step.producer])  # fmt: skip
            producer.sequence += len(records)
        self._append(batch, replicates=step.replicates)

    def _end(self, step: End) -> None:
        producer = self.truth.producers.get(step.producer)
        if producer is None or producer.first is None:
            return
        if step.bumps:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        at = self.next_offset
        self.ended.append((producer.first, at))
        producer.first = None
        self.truth.outcomes[self.truth.txn_of[step.producer]] = step.kind
        marker = ModelBatch(at, at, (marker_record(at, self.now_ms, step.kind),), self.now_ms, self.leader_epoch,
                            transactional=True, producer_id=producer.producer_id, producer_epoch=producer.epoch,
                            control=True, txn=self.truth.txn_of[step.producer])  # fmt: skip
        self._append(marker, replicates=step.replicates)

    def _append(self, batch: ModelBatch, *, replicates: bool) -> None:
        rolls = self.rolls and not self.is_empty
        self.rolls = False
        self.next_offset = batch.last_offset + 1
        self.written.append(batch)
        self.epoch_starts.setdefault(batch.leader_epoch, batch.base_offset)
        self.model.append(batch, roll=rolls)
        if replicates:
            self.high_watermark = self.next_offset
            self.replicated = deepcopy(self.truth)
        self.model.advance_high_watermark(self.high_watermark)
        answer = self.jvm.ask(f"append {int(rolls)} {self.high_watermark} {encoded(batch).hex()}")
        self._compare(answer)

    def _truncate(self) -> None:
        if self.cleaned_early:
            raise KnownError("a pass cleaned by a marker that was truncated later")
        at = self.high_watermark
        self.written = [batch for batch in self.written if batch.base_offset < at]
        self.epoch_starts = {epoch: start for epoch, start in self.epoch_starts.items() if start < at}
        self.ended = [(first, marker) for first, marker in self.ended if marker < at]
        self.truth, self.next_offset, self.rolls = deepcopy(self.replicated), at, False
        self.clean_since_ms = {offset: ms for offset, ms in self.clean_since_ms.items() if offset < at}
        self.model.truncate(at)
        answer = self.jvm.ask(f"truncate {at}")
        if self.model.last_stable_offset <= int(answer[1]) < self._first_unstable():
            raise KnownError("a truncation left out a marker")
        self._compare(answer)

    def _delete_records(self, share: float) -> None:
        bases = [batch.base_offset for batch in self.written if batch.base_offset < self._first_unstable()]
        bases.append(self._first_unstable())
        self.log_start = max(self.log_start, bases[int(share * (len(bases) - 1))])
        self.deleted_to = max(self.deleted_to, self.log_start)
        self.model.delete_before(self.log_start)
        self._compare(self.jvm.ask(f"delete {self.log_start}"))

    def _pass(self, step: Pass) -> None:
        self.jvm.passes += 1
        self.now_ms += step.after_ms
        self.model.expire(self.now_ms, EXPIRATION_MS)
        limits = {".log": step.segment_bytes, ".index": step.index_bytes, ".timeindex": step.index_bytes}
        before = {suffix: sizes(self.folder, suffix) for suffix in limits}
        limited = f"{step.map_bytes} {step.checks} {step.segment_bytes} {step.index_bytes}"
        answer = self.jvm.ask(f"pass {self.now_ms} {limited}")
        is_limited = (step.segment_bytes, step.index_bytes) != (LARGE_SEGMENT_BYTES, LARGE_INDEX_BYTES)
        if answer[0] != "ok" or step.map_bytes != LARGE_MAP_BYTES or is_limited:
            self.modelled = False
        if answer[0] == "ok":
            for suffix, limit_bytes in limits.items():
                judge_sizes(suffix, before[suffix], list(map(int, answer[6:])), limit_bytes)
            if step.map_bytes != LARGE_MAP_BYTES:
                self._judge_end(int(answer[3]), step.map_bytes)
        if self.modelled:
            clean(self.model, self.cleaning, self.now_ms)
            if int(answer[3]) != (end := self.model.cleaned_to or 0):
                raise DifferenceError(f"the pass ended at {answer[3]}, in the model at {end}")
        self.dirty_from = int(answer[3])
        is_whole = answer[0] == "ok" and step.map_bytes == LARGE_MAP_BYTES
        is_split = answer[0] == "aborted" and step.checks < 0
        self._compare(answer, cleaned_to=self.dirty_from if is_whole else self.next_end, is_split=is_split)
        ended = {txn for txn, outcome in self.truth.outcomes.items() if outcome != self.replicated.outcomes.get(txn)}
        self.cleaned_early |= any(it.txn in ended and it.base_offset < int(answer[1]) for it in self.written)

    def _compare(self, answer: Sequence[str], cleaned_to: int | None = None, *, is_split: bool = False) -> None:
        """Judge the folder. ``cleaned_to``: after a pass, the offset below which it may have left tombstones.

        ``is_split``: the pass split a segment. Raises `KnownError` where that lost entries of ``.txnindex`` files.
        """
        stable, end, bases = int(answer[1]), int(answer[2]), list(map(int, answer[6:]))
        self.is_empty = bases[-1] == end
        self.segments = segments = [read_segment(self.folder, base) for base in bases]
        entries_before, self.index_entries = self.index_entries, sum(len(it.aborted) for it in segments)
        if is_split and self.index_entries < entries_before:
            raise KnownError("a split lost a .txnindex")
        if end != self.next_end:
            raise DifferenceError(f"the log ends at {end} instead of {self.next_end}")
        if int(answer[5]) != self.log_start:
            raise DifferenceError(f"the log starts at {answer[5]} instead of {self.log_start}")
        self._judge_epochs()
        for it in segments[:-1]:
            latest_ms = max((batch.max_timestamp_ms for batch in it.stored), default=it.last_indexed_ms)
            if it.time_index not in self.emptied and it.last_indexed_ms != latest_ms:
                indexed = f"the time index of segment {it.base_offset} ends at {it.last_indexed_ms} ms"
                raise DifferenceError(f"{indexed} instead of {latest_ms} ms")
        self._judge(segments, stable, cleaned_to)
        if self.modelled:
            aborted = [(it.base_offset, txn) for it in self.model.segments for txn in it.aborted]
            expected = log_fields([parsed(batch) for batch in self.model.batches()], aborted, {})
            actual = log_fields([batch for it in segments for batch in it.stored],
                                [(it.base_offset, txn) for it in segments for txn in it.aborted], {})  # fmt: skip
            expected |= {"segments": [it.base_offset for it in self.model.segments],
                         "last stable offset": self.model.last_stable_offset,
                         "snapshots": sorted(self.model.snapshots.keys() & bases)}  # fmt: skip
            snapshots = sorted(sizes(self.folder, ".snapshot").keys() & bases)
            actual |= {"segments": bases, "last stable offset": stable, "snapshots": snapshots}
            for name, value in expected.items():
                if actual[name] != value:
                    raise DifferenceError(f"{name}: {actual[name]}, in the model {value}")

    def _judge_epochs(self) -> None:
        """Compare leader epochs, and the end offsets that a leader answers for them, with the truth (KIP-279)."""
        started, log_start = self.epoch_starts.items(), self.log_start
        deleted = [epoch for epoch, start in started if start <= log_start]
        epochs = {epoch: max(start, log_start) for epoch, start in started if epoch not in deleted[:-1]}
        if (stored := read_epochs(self.folder)) != epochs:
            raise DifferenceError(f"leader-epoch-checkpoint has {stored} instead of {epochs}")
        latest, ends = max(epochs, default=-1), []
        for asked in range(latest + 2):
            known = max((epoch for epoch in epochs if epoch <= asked), default=asked)
            end = min((start for epoch, start in epochs.items() if epoch > asked), default=self.next_end)
            ends.append(f"{known}:{end}" if asked <= latest else "none")
        if (actual := self.jvm.ask(f"epochs {latest + 1}")[1:]) != ends:
            raise DifferenceError(f"the ends of leader epochs are {actual} instead of {ends}")

    def _judge_end(self, end: int, map_bytes: int) -> None:
        """A pass ends before records that it may clean only where its map is full (``SkimpyOffsetMap``)."""
        until = max((it.base_offset for it in self.segments if it.base_offset <= self._first_unstable()), default=0)
        committed = self._committed()
        stored = [it for segment in self.segments for batch in segment.batches for it in batch.records
                  if it.offset in committed and self.dirty_from <= it.offset < until]  # fmt: skip
        keys = {record.key for record in stored if record.offset < end}
        if stored and stored[-1].offset >= end and len(keys) < (room := int(map_bytes // MAP_ENTRY_BYTES * MAP_LOAD)):
            raise DifferenceError(f"the pass ended at {end} with {len(keys)} keys, though its map has room for {room}")

    def _open_transactions(self) -> dict[int, int]:
        """First offset by producer."""
        return {it.producer_id: it.first for it in self.truth.producers.values() if it.first is not None}

    def _unreplicated(self) -> list[tuple[int, int]]:
        return [(first, marker) for first, marker in self.ended if marker >= self.high_watermark]

    def _first_unstable(self) -> int:
        firsts = [*self._open_transactions().values(), *(first for first, _ in self._unreplicated())]
        return min([*firsts, self.high_watermark])

    def _judge(self, segments: Sequence[StoredSegment], stable: int, cleaned_to: int | None) -> None:
        """Compare what consumers get with the truth."""
        opened = self._open_transactions()
        first_open = min([*opened.values(), self.high_watermark])
        if stable != (expected := self._first_unstable()):
            raise DifferenceError(f"the last stable offset is {stable} instead of {expected}")
        with_index = Replica(0, [ModelSegment(it.base_offset, it.batches, it.aborted) for it in segments],
                             {pid: ProducerEntry(pid, current_txn_first_offset=first) for pid, first in opened.items()},
                             log_start=self.log_start, log_end=self.next_end,
                             high_watermark=self.high_watermark, unreplicated=self._unreplicated())  # fmt: skip
        recovered = Replica(0)
        for segment in segments:
            for number, batch in enumerate(segment.batches):
                recovered.append(batch, roll=number == 0)
        recovered.log_start, recovered.log_end = self.log_start, self.next_end
        recovered.advance_high_watermark(self.high_watermark)
        recovered.unreplicated.clear()
        if (after := recovered.last_stable_offset) != first_open:
            reopened = [first for *_, first in recovered.open_transactions if first not in opened.values()]
            if reopened and max(reopened) < self.deleted_to:
                raise KnownError(REMOVED_MARKER)
            raise DifferenceError(f"after recovery, the last stable offset is {after} instead of {first_open}")
        committed = self._committed()
        received = list(delivered(with_index))
        if any(it.offset not in committed and it.offset < self.deleted_to for it in received):
            raise KnownError(REMOVED_MARKER)
        judge_delivered("a consumer", received, committed, stable)
        judge_delivered("after recovery, a consumer", delivered(recovered), committed, first_open)
        if cleaned_to is not None:
            present = {record.offset for segment in segments for batch in segment.batches for record in batch.records}
            self._judge_removed(present, committed, cleaned_to)

    def _committed(self) -> dict[int, Record]:
        outcomes = {None: COMMIT} | self.truth.outcomes
        return {record.offset: record for batch in self.written if not batch.control and outcomes[batch.txn] == COMMIT
                for record in batch.records if record.offset >= self.log_start}  # fmt: skip

    def _judge_removed(self, present: set[int], committed: Mapping[int, Record], cleaned_to: int) -> None:
        """No last tombstone of a key and no marker is removed before its retention has passed."""
        last = {record.key: record for record in committed.values()}
        markers = {batch.base_offset for batch in self.written if batch.control}
        for offset in {record.offset for record in last.values() if record.is_tombstone} | markers:
            since_ms = self.clean_since_ms.get(offset)
            is_due = since_ms is not None and self.now_ms >= since_ms + RETENTION_MS
            if offset not in present and offset >= self.deleted_to and not is_due:
                waited = "at once" if since_ms is None else f"after {self.now_ms - since_ms} ms"
                raise DifferenceError(f"the tombstone or marker at offset {offset} was removed {waited}")
        # Also of tombstones that are not the last ones: a truncation may take the later record back.
        tombstones = {it.offset for batch in self.written for it in batch.records if it.is_tombstone}
        for offset in tombstones | markers:
            if offset < cleaned_to:
                self.clean_since_ms.setdefault(offset, self.now_ms)


def sizes(folder: Path, suffix: str) -> dict[int, int]:
    """Return the bytes of each segment's file by base offset."""
    return {int(path.stem): path.stat().st_size for path in folder.glob(f"*{suffix}")}


def judge_sizes(suffix: str, before: Mapping[int, int], bases: Sequence[int], limit_bytes: int) -> None:
    """Files of segments that became one had at most the limit together. ``before``: bytes by base offset."""
    for base, next_base in zip_longest(bases, bases[1:]):
        became_one = [size for at, size in before.items() if base <= at and (next_base is None or at < next_base)]
        if len(became_one) > 1 and sum(became_one) > limit_bytes:
            raise DifferenceError(f"{suffix} files of {became_one} bytes became one; the limit is {limit_bytes}")


def judge_delivered(who: str, records: Iterable[Record], committed: Mapping[int, Record], stable: int) -> None:
    """Compare what a consumer gets with the committed records by offset, those below ``stable``."""
    last: dict[bytes | None, Record] = {}
    for record in committed.values():
        if record.offset < stable:
            last[record.key] = record
    received: dict[bytes | None, Record] = {}
    for record in records:
        if record.offset not in committed:
            raise DifferenceError(f"{who} gets offset {record.offset}, which was not committed")
        if committed[record.offset].value != record.value:
            raise DifferenceError(f"{who} gets another value at offset {record.offset}")
        received[record.key] = record
    for key, record in last.items():
        if (actual := received.get(key)) != record and not (record.is_tombstone and actual is None):
            instead = "nothing" if actual is None else f"offset {actual.offset}"
            raise DifferenceError(f"{who} gets {instead} as the last of {key!r} instead of offset {record.offset}")


@dataclass(frozen=True)
class Found:
    """A difference: the seed of its case, its description and the steps that are needed for it."""

    seed: int
    reason: str
    steps: tuple[Step, ...]


@dataclass
class Tries:
    """Plays cases in a JVM, and starts another one after a difference. ``path``: the class path; ``top``: for logs."""

    target: str
    path: str
    top: Path
    passes: int = 0
    known: Counter[str] = field(default_factory=Counter)
    probes: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=count)
    _running: ExitStack = field(default_factory=ExitStack)
    _jvm: Jvm | None = None

    def differences(self, seeds: Iterable[int]) -> Iterator[Found]:
        """Play the cases of seeds; yield each difference, reduced to few steps."""
        with self._running:
            for seed in seeds:
                steps = random_steps(seed)
                if (reason := self._difference(steps)) is not None:
                    fewer = ddmin(steps, lambda steps: self._difference(steps) is not None)
                    yield Found(seed, self._difference(fewer) or f"{reason} (not repeated)", tuple(fewer))

    def _difference(self, steps: Sequence[Step]) -> str | None:
        if self._jvm is None:
            self._jvm = self._running.enter_context(jvm(self.target, self.path))
        folder = self.top / f"{next(self._numbers)}-0"
        rules = rules_of(find_target(self.target).version)
        cleaning = Cleaning(
            delete_retention_ms=RETENTION_MS,
            producer_expiration_ms=EXPIRATION_MS,
            last_of_pass_stays=rules.last_of_pass_stays,
        )
        case = Case(self._jvm, folder, cleaning, model=Replica(0, stable_at_batch=rules.stable_at_batch))
        before = self._jvm.passes
        try:
            case.run(steps)
        except KnownError as error:
            self.known[str(error)] += 1
            self._jvm.ask("close")
        except DifferenceError as error:
            self._running.close()
            self._jvm = None
            return str(error)
        finally:
            self.passes += case.jvm.passes - before
            self.probes |= case.jvm.probes
            shutil.rmtree(folder)
        return None


@click.command()
@click.option("--target", default="kafka-4.4", show_default=True)
@click.option("--cases", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first case; others follow.")
@click.option("--patch", "patches", multiple=True, type=click.Path(path_type=Path, exists=True))
@click.option("--planted", is_flag=True, help="With an error of the kind of KAFKA-20036; must be found.")
@click.option("--most", type=click.IntRange(min=1), default=3, show_default=True, help="End after so many differences.")
def main(target: str, cases: int, seed: int, *, patches: tuple[Path, ...], planted: bool, most: int) -> None:
    """Play random cases."""
    shared_memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as top:
        build = Path(top, "classes")
        build.mkdir()
        path = classpath(target, build, [*patches, *([plant(target, Path(top, "planted"))] if planted else [])])
        tries, started_s, found = Tries(target, path, Path(top)), time.monotonic(), 0
        for difference in tries.differences(range(seed, seed + cases)):
            print(f"seed {difference.seed}: {difference.reason}")
            print(*(f"    {step}" for step in difference.steps), sep="\n", flush=True)
            found += 1
            if found == most:
                break
        minutes = (time.monotonic() - started_s) / 60
        known = "".join(f"; in {number} cases {event}" for event, number in sorted(tries.known.items()))
        print(f"{target}: {tries.passes} passes, {tries.passes / minutes:.0f} a minute; {found} differences{known}")
        if patches:
            print(*sorted(tries.probes), sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
