"""Repairs several partitions at once: observe all, take the next step for each, again and again.

Everything that a repair has to know after a crash is in the journal before the cluster is changed. So a repair that was
killed at any moment is resumed by starting it again. Compaction of a topic is released when the last partition of the
topic is done; it stays paused where a partition could not be finished.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError, WaitTimeoutError
from harness.protect.repair.cluster import TakenOverError
from harness.protect.repair.steps import RULES, Done, Elect, Hold, Reassign, RecordProgress, Stop, Wait, next_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.host.clock import Clock
    from harness.protect.repair.cluster import Holds, Journal, RepairCluster, Throttle
    from harness.protect.repair.state import ObservedPartition, Partition, PartitionRepair
    from harness.protect.repair.steps import Rule, Step

ROUND_S: Final = 0.5
"""Between two observations."""
PATIENCE_S: Final = 300.0
"""For a partition that does not change and whose copy does not grow."""


@dataclass(frozen=True)
class RepairOutcome:
    """How the repair of a partition ended: ``why`` it could not be finished; None where it was.

    ``copies``: how many were begun. ``copied_bytes``: by all copies, also those that were begun anew.
    ``replica_bytes``: by those that were complete. Bytes are those since the repair was started or resumed.
    """

    partition: Partition
    why: str | None
    took_s: float
    copies: int
    copied_bytes: int
    replica_bytes: int


@dataclass
class _Run:
    """One partition under repair. ``sizes_bytes``: the largest size seen of each copy, by its number."""

    entry: PartitionRepair
    began_s: float
    changed_s: float
    mark: object = None
    waits_for: str = "its turn"
    complete_bytes: int = 0
    sizes_bytes: dict[int, int] = field(default_factory=dict)

    def outcome(self, why: str | None, now_s: float) -> RepairOutcome:
        copied = sum(self.sizes_bytes.values())
        return RepairOutcome(
            self.entry.partition, why, now_s - self.began_s, self.entry.copies, copied, self.complete_bytes
        )


@dataclass
class Repairs:
    """Repairs partitions of one cluster. ``on_step`` is called with each step that changes something, in words.

    ``check_owner`` raises `TakenOverError` where another repair works on the cluster by now.
    """

    cluster: RepairCluster
    journal: Journal
    holds: Holds
    throttle: Throttle
    clock: Clock
    at_once: int = 4
    patience_s: float = PATIENCE_S
    on_step: Callable[[str], None] = lambda _text: None
    check_owner: Callable[[], None] = lambda: None
    rules: Mapping[Rule, Callable[[PartitionRepair, ObservedPartition], bool]] = field(default_factory=lambda: RULES)

    def run(self, entries: Sequence[PartitionRepair]) -> list[RepairOutcome]:
        """Repair these partitions, and those of a repair that was killed; return how each ended.

        A partition that is repaired by the same audit already is left out: only a new audit says what is wrong now.

        An error of the cluster is not raised: the step is taken again until ``patience_s`` seconds have passed without
        a change. Raises `HarnessError` and OSError where the journal cannot be read or the settings not be put back.
        """
        stored = self.journal.entries()
        begun = [entry for entry in stored.values() if not entry.is_done]
        for partition, entry in stored.items():
            if entry.is_done and all(entry.audit != one.audit for one in entries):
                self.journal.remove(partition)
        known = {entry.partition for entry in begun} | {
            entry.partition for entry in entries if _is_same_repair(entry, stored.get(entry.partition))
        }
        waiting = [*begun, *(entry for entry in entries if entry.partition not in known)]
        if waiting:
            self.throttle.limit(waiting)
        active: list[_Run] = []
        outcomes: list[RepairOutcome] = []
        while waiting or active:
            while waiting and len(active) < self.at_once:
                active.append(self._begin(waiting.pop(0)))
            ended = self._round(active)
            outcomes += ended
            if any(one.why is None for one in ended):
                with suppress(HarnessError, OSError):  # it is tried again at the end
                    self._release()
            over = {one.partition for one in ended}
            active = [run for run in active if run.entry.partition not in over]
            if active and not ended:
                self._pause()
        self._settle()
        return sorted(outcomes, key=lambda one: one.partition)

    def _begin(self, entry: PartitionRepair) -> _Run:
        self.journal.store(entry)
        now_s = self.clock.now_s()
        return _Run(entry, now_s, now_s)

    def _pause(self) -> None:
        due_s = self.clock.now_s() + ROUND_S
        self.clock.wait_until(lambda: self.clock.now_s() >= due_s, 2 * ROUND_S + 1, "the next observation")

    def _round(self, active: list[_Run]) -> list[RepairOutcome]:
        try:
            self.check_owner()
            held = self.holds.held()
            observed = self.cluster.observe([run.entry for run in active])
            # A pause that somebody else made ends when somebody else thinks so: it takes a hold, too.
            seen = {tp: one if isinstance(one, str) else _with_hold(one, tp[0] in held) for tp, one in observed.items()}
        except TakenOverError:
            raise
        except (HarnessError, OSError) as error:
            seen = {run.entry.partition: str(error) for run in active}
        ended = []
        for run in active:
            outcome = self._step(run, seen.get(run.entry.partition, "the partition is unknown"))
            if outcome is not None:
                ended.append(outcome)
        return ended

    def _step(self, run: _Run, seen: ObservedPartition | str) -> RepairOutcome | None:
        now_s = self.clock.now_s()
        step: Step = Wait(seen) if isinstance(seen, str) else next_step(run.entry, seen, self.rules)
        if not isinstance(seen, str):
            self._measure(run, seen, now_s)
        if isinstance(step, Stop):
            return run.outcome(step.why, now_s)
        try:
            if isinstance(step, Done):
                self.journal.store(replace(run.entry, is_done=True))
                self.on_step(f"{run.entry.name}: done")
                return run.outcome(None, now_s)
            self._act(run, step)
        except (HarnessError, OSError) as error:
            run.waits_for = str(error)
        if now_s - run.changed_s >= self.patience_s:
            return run.outcome(f"timed out after {self.patience_s:g} s waiting for {run.waits_for}", now_s)
        return None

    def _act(self, run: _Run, step: Step) -> None:
        """Take a step. Raises `HarnessError` or OSError; then it is taken again."""
        name, partition = run.entry.name, run.entry.partition
        if isinstance(step, Wait):
            run.waits_for = step.what
        elif isinstance(step, Hold):
            run.waits_for = f"compaction of {partition[0]} to be paused"
            self.holds.hold([partition[0]])
        elif isinstance(step, RecordProgress):
            self.journal.store(step.entry)
            self._tell(run.entry, step.entry)
            if step.entry.rebuilt != run.entry.rebuilt:
                run.complete_bytes += run.sizes_bytes.get(run.entry.copies, 0)
            run.entry = step.entry
        elif isinstance(step, Reassign):
            run.waits_for = f"its replicas to be {', '.join(map(str, step.replicas))}"
            self.on_step(f"{name}: assign {', '.join(map(str, step.replicas))}")
            self.cluster.reassign(partition, step.replicas)
        elif isinstance(step, Elect):
            run.waits_for = "the preferred leader to lead"
            self.cluster.elect_preferred(partition)

    def _tell(self, before: PartitionRepair, after: PartitionRepair) -> None:
        for broker in after.rebuilt[len(before.rebuilt) :]:
            self.on_step(f"{after.name}: the copy on broker {broker} is complete")
        if before.copy is not None and after.copy is None and before.rebuilt == after.rebuilt:
            self.on_step(f"{after.name}: the leader changed during the copy: it begins anew")

    def _measure(self, run: _Run, seen: ObservedPartition, now_s: float) -> None:
        """Note whether anything changed, and how far the copy is."""
        entry = run.entry
        size = None
        if entry.copy is not None and entry.copy.broker in seen.replicas:
            size = seen.folders_bytes.get(entry.copy.broker, 0)
            run.sizes_bytes[entry.copies] = max(run.sizes_bytes.get(entry.copies, 0), size)
        mark = (entry, seen.replicas, seen.isr, seen.leader, seen.leader_epoch, seen.online, size)
        if mark != run.mark:
            run.mark, run.changed_s = mark, now_s

    def _release(self) -> None:
        """Release the topics of which every partition in the journal is done."""
        left = {entry.partition[0] for entry in self.journal.entries().values() if not entry.is_done}
        if free := self.holds.held() - left:
            self.holds.release(sorted(free))

    def _settle(self) -> None:
        """Put everything back that no unfinished partition needs. Raises `HarnessError` where it cannot in time."""
        errors: list[str] = []

        def put_back() -> bool:
            try:
                self._release()
                if all(entry.is_done for entry in self.journal.entries().values()):
                    self.throttle.lift()
            except (HarnessError, OSError) as error:
                errors.append(str(error))
                return False
            return True

        try:
            self.clock.wait_until(put_back, self.patience_s, "the settings to be put back")
        except WaitTimeoutError as error:
            raise HarnessError(f"settings could not be put back: {errors[-1]}; run the command again") from error


def _with_hold(seen: ObservedPartition, has_hold: bool) -> ObservedPartition:  # noqa: FBT001
    return seen if has_hold else replace(seen, is_held=False)


def _is_same_repair(entry: PartitionRepair, stored: PartitionRepair | None) -> bool:
    """Whether the journal has the repair of this partition by the same audit."""
    return stored is not None and stored.audit == entry.audit
