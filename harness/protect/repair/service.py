"""Repairs several partitions at once: observe all, take the next step for each, again and again.

Everything that a repair needs after a crash is in the journal before the cluster is changed: a repair that was killed
is resumed by starting it again. Compaction of a topic is released when its last partition is done; it stays paused
where the repair of a partition failed.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from harness.errors import HarnessError, raised_as
from harness.host.clock import Clock
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import retried
from harness.protect.repair import steps
from harness.protect.repair.channel import SIGN_S, ChannelHolds, ChannelThrottle, RepairJournal, TakenOverError
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.steps import ObservedPartition, PartitionRepair

ROUND_S: Final = 0.5
"""Between two observations."""
PATIENCE_S: Final = 300.0
"""For a partition that does not change and whose copy does not grow."""


@dataclass(frozen=True)
class RepairOutcome:
    """``why``: the reason of a failure. ``copied_bytes``: since the last start. ``replica_bytes``: of whole copies."""

    partition: TopicPartition
    why: str | None
    took_s: float
    copies: int
    copied_bytes: int
    replica_bytes: int


@dataclass
class _ActiveRepair:
    """One partition under repair. ``sizes_bytes``: the largest size seen of each copy, by its number."""

    entry: PartitionRepair
    began_s: float
    changed_s: float
    mark: object = None
    waits_for: str = "its turn"
    complete_bytes: int = 0
    sizes_bytes: dict[int, int] = field(default_factory=dict)

    def outcome(self, why: str | None, now_s: float) -> RepairOutcome:
        copied, took_s = sum(self.sizes_bytes.values()), now_s - self.began_s
        return RepairOutcome(self.entry.partition, why, took_s, self.entry.copies, copied, self.complete_bytes)

    def measure(self, observed: ObservedPartition, now_s: float) -> None:
        """Note the size of the copy under way, and whether anything has changed."""
        copy, size = self.entry.copy, None
        if copy is not None and copy.broker in observed.replicas:
            size = observed.folders_bytes.get(copy.broker, 0)
            self.sizes_bytes[self.entry.copies] = max(self.sizes_bytes.get(self.entry.copies, 0), size)
        leader = observed.leader, observed.leader_epoch
        mark = (self.entry, observed.replicas, observed.isr, leader, observed.online, size)
        if mark != self.mark:
            self.mark, self.changed_s = mark, now_s


@dataclass
class Repairs:
    """Repairs a cluster's partitions. ``on_step``: for a sentence on each change. ``check_owner``: of the journal."""

    cluster: LiveRepairCluster
    journal: RepairJournal
    holds: ChannelHolds
    throttle: ChannelThrottle
    clock: Clock
    at_once: int = 4
    patience_s: float = PATIENCE_S
    on_step: Callable[[str], None] = lambda _text: None
    check_owner: Callable[[], None] = lambda: None
    rules: steps.Rules = field(default_factory=lambda: steps.RULES)

    def run(self, entries: Sequence[PartitionRepair]) -> list[RepairOutcome]:
        """Repair these partitions, and those of a killed repair; return the outcome of each.

        A partition that the same audit repaired is left out, and so is a killed repair that contradicts an entry. After
        an error of the cluster, a step is taken again until ``patience_s`` have passed without a change. Raises
        `HarnessError` and OSError for the journal and settings.
        """
        self.check_owner()
        stored, audits = self.journal.entries(), {entry.audit for entry in entries}
        for partition, entry in stored.items():
            is_needed = entry.audit in audits or any(map(entry.is_newer_than, audits))
            if entries and entry.is_done and not is_needed:
                self.journal.remove(partition)
        planned = {entry.partition: entry.wrong for entry in entries}
        unfinished = [entry for entry in stored.values() if not entry.is_done]
        waiting = [replace(e, copies=0) for e in unfinished if not e.contradicts(planned.get(e.partition, ()))]
        repaired = {entry.partition for entry in stored.values() if entry.is_done and entry.audit in audits}
        left_out = repaired | {entry.partition for entry in waiting}
        waiting += [entry for entry in entries if entry.partition not in left_out]
        if waiting:
            self.throttle.limit(waiting)
        active: list[_ActiveRepair] = []
        outcomes: list[RepairOutcome] = []
        while waiting or active:
            while waiting and len(active) < self.at_once:
                entry, now_s = waiting.pop(0), self.clock.now_s()
                self.journal.store(entry)
                active.append(_ActiveRepair(entry, now_s, now_s))
            ended = self._round(active)
            outcomes += ended
            for outcome in ended:
                self.on_step(f"{name_of(outcome.partition)}: {outcome.why or 'done'}")
            if any(outcome.why is None for outcome in ended):
                with suppress(HarnessError, OSError):  # it is tried again at the end
                    self._release(waiting)
            partitions = {outcome.partition for outcome in ended}
            active = [repair for repair in active if repair.entry.partition not in partitions]
            if active and not ended:
                self._wait_for_round()
        self._settle()
        return sorted(outcomes, key=lambda outcome: outcome.partition)

    def _wait_for_round(self) -> None:
        due_s = self.clock.now_s() + ROUND_S
        self.clock.wait_until(lambda: self.clock.now_s() >= due_s, 2 * ROUND_S + 1, "the next observation")

    def _round(self, active: list[_ActiveRepair]) -> list[RepairOutcome]:
        try:
            self.check_owner()
            paused = self.holds.held()
            observed = dict(self.cluster.observe([repair.entry for repair in active]))
        except TakenOverError:
            raise
        except (HarnessError, OSError) as error:
            paused, observed = frozenset(), {repair.entry.partition: str(error) for repair in active}
        outcomes, observed_s = [], self.clock.now_s()
        for repair in active:
            if self.clock.now_s() - observed_s > SIGN_S:
                break  # The next round observes the others again: another repair may have taken over meanwhile.
            partition = observed[repair.entry.partition]
            # A pause that somebody else made may end at any time: the repair needs a hold, too.
            if not isinstance(partition, str) and repair.entry.partition[0] not in paused:
                partition = replace(partition, is_held=False)
            outcomes.append(self._step(repair, partition))
        return [outcome for outcome in outcomes if outcome is not None]

    def _step(self, repair: _ActiveRepair, observed: ObservedPartition | str) -> RepairOutcome | None:
        now_s = self.clock.now_s()
        if isinstance(observed, str):
            step: steps.Step = steps.Wait(observed)
        else:
            step = steps.next_step(repair.entry, observed, self.rules)
            repair.measure(observed, now_s)
        if isinstance(step, steps.Stop):
            if step.is_final:
                self.journal.store(replace(repair.entry, is_done=True))
            return repair.outcome(step.why, now_s)
        try:
            if step is steps.Action.DONE:
                self.journal.store(replace(repair.entry, is_done=True))
                return repair.outcome(None, now_s)
            self._act(repair, step)
        except (HarnessError, OSError) as error:
            repair.waits_for = str(error)
        if now_s - repair.changed_s >= self.patience_s:
            return repair.outcome(f"timed out after {self.patience_s:g} s waiting for {repair.waits_for}", now_s)
        return None

    def _act(self, repair: _ActiveRepair, step: steps.Step) -> None:
        name, partition = name_of(repair.entry.partition), repair.entry.partition
        match step:
            case steps.Wait(condition):
                repair.waits_for = condition
            case steps.Action.HOLD:
                repair.waits_for = f"compaction of {partition[0]} to be paused"
                self.holds.hold([partition[0]])
            case steps.RecordProgress(entry):
                self.journal.store(entry)
                before, repair.entry = repair.entry, entry
                if entry.rebuilt != before.rebuilt:
                    repair.complete_bytes += repair.sizes_bytes.get(before.copies, 0)
                    self.on_step(f"{name}: the copy on broker {entry.rebuilt[-1]} is complete")
                elif before.copy is not None and entry.copy is None:
                    self.on_step(f"{name}: the leader changed during the copy, which begins again")
            case steps.Reassign(replicas):
                numbers = ", ".join(map(str, replicas))
                repair.waits_for = f"its replicas to be {numbers}"
                self.on_step(f"{name}: assign {numbers}")
                self.cluster.reassign(partition, replicas)
            case steps.Action.ELECT:
                repair.waits_for = "the preferred leader to lead"
                self.cluster.elect_preferred(partition)

    def _release(self, waiting: Sequence[PartitionRepair] = ()) -> None:
        """Release the topics of which no partition is waiting, and every partition in the journal is done."""
        stored = (entry for entry in self.journal.entries().values() if not entry.is_done)
        unfinished = {entry.partition[0] for entry in (*stored, *waiting)}
        if free := self.holds.held() - unfinished:
            self.holds.release(sorted(free))

    def _settle(self) -> None:
        """Restore all settings that no unfinished partition needs. Raises `HarnessError` where that fails in time."""

        def restore() -> None:
            self._release()
            if all(entry.is_done for entry in self.journal.entries().values()):
                self.throttle.lift()

        with raised_as(HarnessError, "settings could not be restored", HarnessError, OSError):
            retried(restore, self.clock, self.patience_s, (HarnessError, OSError))
