"""What decides about a run: its scenarios, fault, timers, settings and placement, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from harness.schedules.groups import CLASSIC
from harness.systems import find_system
from harness.targets import KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.kafka_api.messages import TopicPartition
    from harness.schedules.placement import Placement
    from harness.schedules.scenario import Scenario
    from harness.schedules.timers import Timers
    from harness.systems import System
    from nemesis.script import Script


@dataclass(frozen=True)
class Test:
    """Everything that decides what a run does; with the run folder, all that the runner needs.

    ``topic_settings`` and ``broker_settings`` are the timers' and the nemesis's with the user's on top.
    """

    __test__ = False  # pytest collects classes of this name

    scenarios: tuple[Scenario, ...]
    nemesis: Script
    timers: Timers
    topic_settings: Mapping[str, str]
    broker_settings: Mapping[str, str]
    placement: Placement
    seed: int
    client: str = "librdkafka"
    system_name: str = KAFKA
    group_protocols: tuple[str, ...] = (CLASSIC,)

    @property
    def system(self) -> System:
        """What kind of brokers are under test."""
        return find_system(self.system_name)

    @property
    def partitions(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each scenario, by its name: no other scenario has them."""
        numbers: dict[str, Iterator[int]] = {scenario.topic: count() for scenario in self.scenarios}
        return {
            s.name: [(s.topic, n) for n in islice(numbers[s.topic], self.placement.partitions)] for s in self.scenarios
        }

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Every partition of every scenario with the brokers that hold it."""
        partitions = self.partitions
        return {
            tp: self.placement.replicas(tp[1], control=s.anomaly is None)
            for s in self.scenarios
            for tp in partitions[s.name]
        }

    @property
    def has_groups(self) -> bool:
        """Whether any scenario is about consumer groups."""
        return any(scenario.kind.is_of_groups for scenario in self.scenarios)
