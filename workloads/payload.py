"""Runs a scenario's steps, each process a producer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.clients.recorded import RecordingProducer
from harness.schedules.scenario import Action, Critical, Phase, Scenario, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.clients import MakeProducer
    from harness.cluster.observe import ReplicaObserver
    from harness.kafka_api.messages import TopicPartition
    from harness.run_folder.history import History

PART = "payload"


def transactional_id(topic: str, process: str) -> str:
    """The transactional id of a scenario's process: unique in the cluster."""
    return f"{topic}.{process}"


class Payload:
    """The producers of one scenario. Not thread-safe; the runner's thread owns it.

    Every step is done in each of the scenario's partitions, and a transaction spans all of them.
    """

    def __init__(
        self,
        scenario: Scenario,
        partitions: Sequence[TopicPartition],
        make: MakeProducer,
        history: History,
        key_in: Callable[[TopicPartition, str], str | bytes] = lambda _, key: key,
    ) -> None:
        """Create the producers; transactional ones obtain their ids in `init`.

        ``key_in``: returns the key of the record that a step with a key writes to a partition.
        """
        self.scenario = scenario
        self.partitions = list(partitions)
        self._key_in = key_in
        self._written: list[tuple[Phase, Step, TopicPartition, int]] = []
        transactional = scenario.transactional_processes
        self._producers = {
            process: RecordingProducer(
                make,
                history,
                f"{scenario.name}.{process}",
                PART,
                transactional_id(scenario.name, process) if process in transactional else None,
            )
            for process in sorted({step.process for step in scenario.steps})
        }
        for event in history.past:
            self._recall(event)

    def _recall(self, event: dict[str, Any]) -> None:
        """Take a record that was acknowledged before the run was resumed as written."""
        scenario, _, process = event["process"].rpartition(".")
        if (event["part"], event["type"], event["f"], scenario) != (PART, "ok", "produce", self.scenario.name):
            return
        action = Action.DELETE if event["tombstone"] else Action.PUT
        step = Step(process, action, event.get("key"), event.get("value"))
        partition = (event["topic"], event["partition"])
        self._written.append((Phase(event["phase"]), step, partition, event["offset"]))

    def init(self) -> None:
        """Obtain producer ids."""
        for process in sorted(self.scenario.transactional_processes):
            self._producers[process].init()

    def run(self, phase: Phase) -> None:
        """Run the steps of one phase, each acknowledged before the next."""
        steps: dict[Phase, Sequence[Step]] = {
            Phase.BEFORE: self.scenario.before,
            Phase.OUTAGE: self.scenario.outage,
            Phase.LATE: self.scenario.late,
        }
        for step in steps[phase]:
            producer = self._producers[step.process]
            producer.phase = phase
            self._run_step(producer, phase, step)

    def end(self, partition: TopicPartition) -> int:
        """Return the offset after the last record that was written before the outage; 0 where there is none."""
        return max((o + 1 for at, _, tp, o in self._written if at is Phase.BEFORE and tp == partition), default=0)

    def critical_offset(self, kind: Critical, partition: TopicPartition, observer: ReplicaObserver) -> int | None:
        """Return where the tombstone or marker lies that must vanish; None as long as it was never seen."""
        if kind is Critical.TOMBSTONE:
            return self._first_written(partition, Phase.OUTAGE, lambda step: step.action is Action.DELETE)
        transactional = self.scenario.transactional_processes
        first = self._first_written(partition, Phase.BEFORE, lambda step: step.process in transactional)
        return None if first is None else observer.marker_after(partition, first)

    def _first_written(self, partition: TopicPartition, phase: Phase, wanted: Callable[[Step], bool]) -> int | None:
        written = ((step, offset) for at, step, tp, offset in self._written if at is phase and tp == partition)
        return next((offset for step, offset in written if wanted(step)), None)

    def _run_step(self, producer: RecordingProducer, phase: Phase, step: Step) -> None:
        match step.action:
            case Action.BEGIN:
                producer.begin()
            case Action.COMMIT:
                producer.commit()
            case Action.ABORT:
                producer.abort()
            case Action.PUT | Action.DELETE:
                if step.key is None:
                    raise ValueError(f"a step without a key: {step}")
                for tp in self.partitions:
                    offset = producer.put(*tp, self._key_in(tp, step.key), step.value)
                    self._written.append((phase, step, tp, offset))
