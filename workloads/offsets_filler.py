"""Traffic in partitions of ``__consumer_offsets``: other groups commit offsets, so that segments roll."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from harness.host.clock import Clock, Routine
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import commit_offsets
from harness.kafka_api.connection import ask
from harness.schedules.scenario import Phase, group_in
from harness.schedules.timers import Timers

FILLER_GROUPS: Final = 4
"""Of each partition and phase."""
BALLAST_BYTES: Final = 4_000
"""Of metadata; the brokers' bound is 4,096 (``offset.metadata.max.bytes``)."""
MOST_OFFSET: Final = 1_000


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
