"""The traffic around the payload: it rolls segments, gives the cleaner work, and must never show an anomaly.

A plain producer writes to every partition in turn (values, now and then a tombstone); the transactions of others span
partitions, and some abort. Every choice comes from a seed, process by process. Keys carry their phase, and a phase ends
only when its last transaction has ended: no filler key or transaction straddles the outage.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from harness.clients import MakeProducer
from harness.clients.recorded import RecordingProducer
from harness.errors import HarnessError
from harness.host.clock import Clock, Routine
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import commit_offsets
from harness.kafka_api.connection import ask
from harness.run_folder.history import History
from harness.schedules.scenario import Phase, group_in
from harness.schedules.timers import Timers

PART = "filler"
TRANSACTIONAL_PROCESSES = 2
KEYS_PER_PROCESS = 6
VALUE_BYTES = 100
DELETE_SHARE = 0.15
ABORT_SHARE = 0.25
PARTITIONS_PER_TRANSACTION = 3
RECORDS_PER_PARTITION = 2
TRANSACTION_PERIODS = 4
"""A transaction every so many periods of the plain filler."""

MOST_RENEWALS = 5

BALLAST = "ballast"
RECORD_BYTES = 16_384

FILLER_GROUPS: Final = 4
"""Of each partition and phase."""
BALLAST_BYTES: Final = 4_000
"""Of metadata; the brokers' bound is 4,096 (``offset.metadata.max.bytes``)."""
MOST_OFFSET: Final = 1_000


@dataclass
class Filler:
    """Owns the filler's producers, and their routines while a phase runs. ``seed`` fixes every choice.

    ``period_s`` is the pause between two rounds of the plain process, ``rounds`` their number so far.
    """

    partitions: Sequence[TopicPartition]
    seed: int
    period_s: float
    make: MakeProducer
    history: History
    clock: Clock
    transactional_processes: int = TRANSACTIONAL_PROCESSES

    def __post_init__(self) -> None:
        self.rounds = 0
        self._routines: list[Routine] = []
        self._renewals = MOST_RENEWALS
        self._plain = RecordingProducer(self.make, self.history, "filler.plain", PART)
        self._transactional = [
            RecordingProducer(self.make, self.history, f"filler.tx{n}", PART, f"filler.tx{n}")
            for n in range(self.transactional_processes)
        ]
        self._choices = [random.Random(f"{self.seed}/{n}") for n in range(1 + self.transactional_processes)]  # noqa: S311

    def init(self) -> None:
        """Obtain producer ids."""
        for producer in self._transactional:
            producer.init()

    @contextmanager
    def running(self, phase: Phase) -> Iterator[None]:
        """Write throughout the block; on leaving it every transaction has ended and every record is answered."""
        for producer in (self._plain, *self._transactional):
            producer.phase = phase
        actions = [(1, partial(self._write_plain, phase))]
        actions += [(TRANSACTION_PERIODS, partial(self._transact, n, phase)) for n in range(len(self._transactional))]
        routines = [self.clock.every(self.period_s * periods, act, "the filler") for periods, act in actions]
        self._routines += routines
        try:
            yield
        finally:
            for routine in routines:
                routine.stop()
        self.raise_if_failed()

    def raise_if_failed(self) -> None:
        """Raise what ended a filler routine."""
        for routine in self._routines:
            routine.raise_if_failed()

    def _write_plain(self, phase: Phase) -> None:
        for partition in self.partitions:
            self._send(self._plain, self._choices[0], partition, f"filler.{phase}.plain")
        self._plain.flush()
        self.rounds += 1

    def _transact(self, n: int, phase: Phase) -> None:
        producer, choice = self._transactional[n], self._choices[1 + n]
        try:
            producer.begin()
            for partition in choice.sample(self.partitions, min(PARTITIONS_PER_TRANSACTION, len(self.partitions))):
                for _ in range(RECORDS_PER_PARTITION):
                    self._send(producer, choice, partition, f"filler.{phase}.tx{n}")
            (producer.abort if choice.random() < ABORT_SHARE else producer.commit)()
        except HarnessError:
            # A broker that stalls for longer than producers are remembered refuses the transaction
            # (INVALID_TXN_STATE). The history has the refusal; it is not what a run tests.
            if not self._renewals:
                raise
            self._renewals -= 1
            producer.renew()

    def _send(self, producer: RecordingProducer, choice: random.Random, partition: TopicPartition, prefix: str) -> None:
        key = f"{prefix}.{choice.randrange(KEYS_PER_PROCESS)}"
        value = choice.randbytes(VALUE_BYTES // 2).hex()
        producer.send(*partition, key, None if choice.random() < DELETE_SHARE else value)


def write_ballast(
    partitions: Sequence[TopicPartition], timers: Timers, seed: int, make: MakeProducer, history: History
) -> None:
    """Write bulk between the payload and its end: a throttled replica copies it for longer than the window lasts.

    Each record has a key that is written once, so that no cleaner removes any; batches have one record, so that a small
    fetch returns one. All records are acknowledged when this returns.
    """
    records = math.ceil(timers.copy_bytes_per_s * (timers.window_s + timers.settle_s) / RECORD_BYTES)
    choice = random.Random(f"{seed}/{BALLAST}")  # noqa: S311
    producer = RecordingProducer(make, history, BALLAST, BALLAST, phase=Phase.OUTAGE)
    for n in range(records):
        value = choice.randbytes(RECORD_BYTES // 2).hex()
        for topic, partition in partitions:
            producer.send(topic, partition, f"ballast.{n}", value)
        producer.flush()


@dataclass
class OffsetsFiller:
    """Owns the routine that commits offsets of groups that no scenario has.

    ``count``: how many partitions ``__consumer_offsets`` has. ``leader``: returns the address of a partition's leader.
    ``topic``: whose offsets are committed. ``period_s``: the pause between two rounds.
    """

    partitions: Sequence[TopicPartition]
    count: int
    topic: str
    leader: Callable[[TopicPartition], Address]
    seed: int
    period_s: float
    clock: Clock
    _routines: list[Routine] = field(default_factory=list, init=False)

    def init(self) -> None:
        """Need nothing: it has no transactions."""

    @contextmanager
    def running(self, phase: Phase) -> Iterator[None]:
        """Commit throughout the block."""
        choice = random.Random(f"{self.seed}/offsets/{phase}")  # noqa: S311

        def commit() -> None:
            for tp in self.partitions:
                group = group_in(f"filler.{phase}.{choice.randrange(FILLER_GROUPS)}", tp[1], self.count)
                # A leader that is just moving answers the next round.
                self._try(tp, group, choice.randrange(MOST_OFFSET))

        routine = self.clock.every(self.period_s, commit, "the filler of offsets")
        self._routines.append(routine)
        try:
            yield
        finally:
            routine.stop()
        self.raise_if_failed()

    def raise_if_failed(self) -> None:
        """Raise what ended the routine."""
        for routine in self._routines:
            routine.raise_if_failed()

    def write_ballast(self, partitions: Sequence[TopicPartition], timers: Timers) -> None:
        """Write as much to each partition as `workloads.filler` does: an offset for each of as many groups."""
        records = -(-int(timers.copy_bytes_per_s * (timers.window_s + timers.settle_s)) // BALLAST_BYTES)
        for tp in partitions:
            for n in range(records):
                group = group_in(f"ballast.{n}", tp[1], self.count)
                commit = partial(self._try, tp, group, n, "x" * BALLAST_BYTES)
                self.clock.wait_until(commit, timers.settle_s, f"{tp[0]}-{tp[1]} to take the ballast")

    def _try(self, partition: TopicPartition, group: str, offset: int, metadata: str = "") -> bool:
        """Commit once; return whether the coordinator has accepted the offset."""
        try:
            ask(self.leader(partition), commit_offsets(group, {(self.topic, 0): offset}, metadata))
        except OSError:
            return False
        return True
