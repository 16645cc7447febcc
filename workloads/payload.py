"""Runs a scenario's steps, each process a producer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.client import Producer, ProducerSpec
from harness.scenario import Action, Phase, Scenario, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.history import History

PART = "payload"


def transactional_id(scenario: Scenario, process: str) -> str:
    """The transactional id of a scenario's process: unique in the cluster."""
    return f"{scenario.name}.{process}"


class Payload:
    """The producers of one scenario. Not thread-safe; the runner's thread owns it."""

    def __init__(self, scenario: Scenario, topic: str, bootstrap: str, history: History) -> None:
        """Create the producers; transactional ones obtain their ids in `init`."""
        self._topic = topic
        self._scenario = scenario
        transactional = scenario.transactional_processes
        self._producers = {
            process: Producer(
                bootstrap,
                ProducerSpec(
                    process=f"{scenario.name}.{process}",
                    part=PART,
                    transactional_id=transactional_id(scenario, process) if process in transactional else None,
                ),
                history,
            )
            for process in sorted({step.process for step in scenario.steps})
        }

    def init(self) -> None:
        """Obtain producer ids."""
        for process in sorted(self._scenario.transactional_processes):
            self._producers[process].init()

    def run(self, phase: Phase) -> None:
        """Run the steps of one phase, each acknowledged before the next."""
        steps: dict[Phase, Sequence[Step]] = {
            Phase.BEFORE: self._scenario.before,
            Phase.OUTAGE: self._scenario.outage,
            Phase.LATE: self._scenario.late,
        }
        for step in steps[phase]:
            producer = self._producers[step.process]
            producer.phase = phase
            self._run_step(producer, step)

    def _run_step(self, producer: Producer, step: Step) -> None:
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
                producer.send(self._topic, step.key, step.value)
                producer.flush()
