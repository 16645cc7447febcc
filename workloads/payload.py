"""The clients of a scenario: a producer for each process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.clients import MakeProducer
from harness.clients.recorded import RecordingProducer
from harness.kafka_api import TopicPartition
from harness.run_folder.history import History
from harness.schedules.catalog import SUPERSEDED_KEY
from harness.schedules.operations import COMMIT, Begin, End, Operation, Write
from harness.schedules.scenario import Critical, Phase, Scenario, client_name, scenario_and_process

if TYPE_CHECKING:
    from harness.cluster.observe import ReplicaObserver

PART = "payload"


class Payload:
    """The producers of one scenario: writes and transactions go to all of its partitions. Not thread-safe."""

    def __init__(
        self,
        scenario: Scenario,
        partitions: Sequence[TopicPartition],
        make: MakeProducer,
        history: History,
        key_in: Callable[[TopicPartition, str], str | bytes] = lambda _, key: key,
    ) -> None:
        """Create the producers. ``key_in`` returns the key of the record that a write leaves in a partition."""
        self.scenario = scenario
        self.partitions = list(partitions)
        self._key_in = key_in
        self._written: list[tuple[Phase, Write, TopicPartition, int]] = []
        self._open = set[str]()
        transactional = scenario.transactional_processes
        self._producers = {
            process: RecordingProducer(make, history, name, PART, name if process in transactional else None)
            for process in sorted({operation.process for operation in scenario.operations})
            for name in [client_name(scenario.name, process)]
        }
        # Records that were acknowledged before the run was resumed are written.
        for event in history.past:
            name, process = scenario_and_process(event["process"])
            if (event["part"], event["type"], event["f"], name) == (PART, "ok", "produce", scenario.name):
                write = Write(process, event.get("key", ""), event["tombstone"], value=event.get("value") or "")
                partition = (event["topic"], event["partition"])
                self._written.append((Phase(event["phase"]), write, partition, event["offset"]))

    def init(self) -> None:
        """Obtain producer ids."""
        for process in sorted(self.scenario.transactional_processes):
            self._producers[process].init()

    def play(self, phase: Phase, operation: Operation) -> None:
        """Execute an operation; it is acknowledged when this returns."""
        producer = self._producers[operation.process]
        producer.phase = phase
        match operation:
            case Begin(process):
                self._begin(process)
            case End(process, outcome):
                (producer.commit if outcome == COMMIT else producer.abort)()
                self._open.discard(process)
            case Write(process, key, deletes, value=value):
                if process in self.scenario.transactional_processes:
                    self._begin(process)
                content = None if deletes else value or f"{process} puts {key}"
                for tp in self.partitions:
                    offset = producer.put(*tp, self._key_in(tp, key), content)
                    self._written.append((phase, operation, tp, offset))

    def _begin(self, process: str) -> None:
        if process not in self._open:
            self._producers[process].begin()
            self._open.add(process)

    def end(self, partition: TopicPartition) -> int:
        """Return the offset after the last record that was written before the outage; 0 where there is none."""
        return max((o + 1 for at, _, tp, o in self._written if at is Phase.BEFORE and tp == partition), default=0)

    def superseded_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first of two records with the key of `catalog.SUPERSEDED_KEY`."""
        return next((o for _, write, tp, o in self._written if tp == partition and write.key == SUPERSEDED_KEY), None)

    def critical_offset(self, kind: Critical, partition: TopicPartition, observer: ReplicaObserver) -> int | None:
        """Return the offset of the tombstone or marker that must be removed; None as long as it was never seen."""
        is_tombstone, transactional = kind is Critical.TOMBSTONE, self.scenario.transactional_processes
        phase = Phase.OUTAGE if is_tombstone else Phase.BEFORE
        written = ((write, offset) for at, write, tp, offset in self._written if at is phase and tp == partition)
        critical = (o for write, o in written if (write.deletes if is_tombstone else write.process in transactional))
        first = next(critical, None)
        return first if is_tombstone or first is None else observer.marker_after(partition, first)
