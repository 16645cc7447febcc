"""Consumer groups in a run: their input topics, the writers of their offsets, and the views of their consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.broker_files.internal_topics.decode import encode_group_key
from harness.broker_files.segments.batches import Batch
from harness.clients import Library, LibraryGroups
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ask
from harness.kafka_api.fetch import ReplicaState
from harness.kafka_api.groups import commit_offsets
from harness.run_folder.history import History
from harness.schedules.placement import led_by
from harness.schedules.scenario import INPUT_PARTITIONS, INPUT_RECORDS, Kind, Phase, Scenario, group_in, input_topic
from workloads.group_consumers import Group, GroupReader
from workloads.group_records import Coordinators, memberships_producer, offset_key, offsets_producer
from workloads.offsets_filler import OffsetsFiller
from workloads.payload import Payload

if TYPE_CHECKING:
    from harness.play.run_plan import RunPlan

FILLER_TOPIC = input_topic("filler")
INPUT_SETTINGS = {"cleanup.policy": "delete"}


def groups_of(plan: RunPlan) -> dict[TopicPartition, Group]:
    """Return the group of each partition of ``__consumer_offsets`` that a scenario has."""
    by_scenario = [(s, tp) for s in plan.scenarios if s.kind.is_of_groups for tp in plan.partitions[s.name]]
    return {
        tp: Group(group_in(scenario.name, tp[1], len(by_scenario)), tp, input_topic(scenario.name))
        for scenario, tp in by_scenario
    }


@dataclass(frozen=True)
class GroupWorkload:
    """The groups of a run on its cluster. ``library``: the client library that the run uses."""

    plan: RunPlan
    cluster: Cluster
    library: Library
    history: History

    @property
    def groups(self) -> dict[TopicPartition, Group]:
        """The group of each partition of ``__consumer_offsets``."""
        return groups_of(self.plan)

    @property
    def _client(self) -> LibraryGroups:
        assert self.library.groups is not None  # noqa: S101  (the target has groups)
        return self.library.groups

    def write_ballast(self, partitions: Sequence[TopicPartition]) -> None:
        """Give replicas of these partitions, if they keep groups, something to copy."""
        self.filler().write_ballast([tp for tp in partitions if tp in self.groups], self.plan.timers)

    def filler(self) -> OffsetsFiller:
        """Return what has segments of ``__consumer_offsets`` roll."""
        return OffsetsFiller(
            partitions=list(self.groups),
            count=len(self.groups),
            topic=FILLER_TOPIC,
            leader=self._address,
            seed=self.plan.seed,
            period_s=self.plan.timers.filler_period_s,
            clock=self.cluster.clock,
        )

    def payload(self, scenario: Scenario) -> Payload:
        """Return what carries out a scenario's steps."""
        groups = self.groups
        admin, clock = self.cluster.admin, self.cluster.clock
        coordinators = Coordinators(self._log, admin.delete_topic, self._create_again, self.expire, clock)
        partitions = self.plan.partitions[scenario.name]
        if scenario.kind is Kind.MEMBERS:
            return Payload(
                scenario,
                partitions,
                lambda _: memberships_producer(self._client, coordinators, groups),
                self.history,
                lambda tp, _: encode_group_key(groups[tp].name),
            )
        return Payload(
            scenario,
            partitions,
            partial(offsets_producer, self._client, coordinators, deletes=scenario.deletes),
            self.history,
            lambda tp, key: offset_key(scenario.name, groups[tp].name, key),
        )

    def create_inputs(self) -> None:
        """Create the topics that groups consume, with records."""
        for topic in sorted({FILLER_TOPIC, *(group.topic for group in self.groups.values())}):
            self._create(topic)

    def observe(self) -> None:
        """Record the views of groups: first with a coordinator that never left, then with each broker that was absent.

        Offsets are fetched from all of them first: members that join, and leave, have coordinators write and delete.
        """
        cluster, absent, groups = self.cluster, self.cluster.absent, self.groups
        reader = GroupReader(
            self._client, self.history, cluster.clock, Phase.AFTER, cluster.runtime.address, cluster.settle_s
        )
        stayed = {tp: min(set(cluster.replicas[tp]) - set(absent)) for tp in groups}
        consume = partial(reader.consume, protocols=self.plan.target.group_protocols)
        for observe in (reader.ask, consume):
            needed_s: dict[str, float] = {}
            for leaders in (stayed, *(dict.fromkeys(groups, broker) for broker in absent)):
                cluster.lead({tp: led_by(leader, cluster.replicas[tp]) for tp, leader in leaders.items()})
                took_s = observe({groups[tp]: broker for tp, broker in leaders.items()}, needed_s=needed_s)
                needed_s = needed_s or took_s

    def _create(self, topic: str) -> None:
        admin, placement = self.cluster.admin, self.plan.placement
        brokers = placement.staying[: placement.replication_factor]
        partitions = [(topic, number) for number in range(INPUT_PARTITIONS)]

        def is_led() -> bool:
            states = admin.partitions([topic])
            return set(states) == set(partitions) and all(state.leader >= 0 for state in states.values())

        admin.create_topics(dict.fromkeys(partitions, brokers), INPUT_SETTINGS)
        self.cluster.wait(is_led, f"topic {topic} to have leaders")
        errors: list[str] = []

        def answered(error: str | None, _offset: int) -> None:
            if error is not None:
                errors.append(error)

        producer = self.library.producer(None)
        for number in range(INPUT_RECORDS):
            for partition in partitions:
                producer.send(partition, f"record {number}", "input", [], answered)
        if producer.flush() or errors:
            raise HarnessError(f"records of {topic} are not acknowledged: {'; '.join(errors) or 'no answer'}")

    def _create_again(self, topic: str) -> None:
        self.cluster.wait(lambda: not self.cluster.admin.partitions([topic]), f"topic {topic} to be gone")
        self._create(topic)

    def expire(self, group: str, partition: TopicPartition) -> None:
        """Commit an offset of a group whose retention is over at once: the coordinator's next check deletes it."""
        (of_group,) = [candidate for candidate in self.groups.values() if candidate.name == group]

        def is_committed() -> bool:
            ask(self._address(of_group.partition), commit_offsets(group, {partition: 0}, retention_ms=1))
            return True

        self.cluster.wait(is_committed, f"the coordinator of {group} to take an offset that expires")

    def _leader(self, partition: TopicPartition) -> int:
        state = self.cluster.states().get(partition)
        if state is None or state.leader < 0:
            raise ConnectionError(f"{partition[0]}-{partition[1]} has no leader")
        return state.leader

    def _address(self, partition: TopicPartition) -> Address:
        return self.cluster.runtime.address(self._leader(partition))

    def _log(self, partition: TopicPartition) -> Sequence[Batch]:
        answer = self.cluster.read(self._leader(partition), [partition])[partition]
        if not isinstance(answer, ReplicaState):
            raise ConnectionError(f"{partition[0]}-{partition[1]} cannot be read: {answer}")
        return answer.batches
