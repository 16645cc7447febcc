"""Consumer groups in a run: their input topics, the writers of their offsets, and the views of their consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.broker_files.internal_topics.decode import encode_group_key
from harness.broker_files.segments.batches import Batch
from harness.clients import TIMED_OUT, ClientError, Library, LibraryGroups, LibraryProducer
from harness.clients.recorded import OperationFailedError
from harness.cluster.cluster import Cluster
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import commit_offsets
from harness.kafka_api.connection import ask
from harness.kafka_api.fetch import ReplicaState
from harness.run_folder.history import History
from harness.schedules import scenario as scenarios
from harness.schedules.placement import led_by
from workloads.filler import OffsetsFiller
from workloads.group_consumers import Group, GroupReader
from workloads.group_records import Coordinators, memberships_producer, offset_key, offsets_producer
from workloads.payload import Payload

if TYPE_CHECKING:
    from harness.play.run_plan import RunPlan

FILLER_TOPIC = scenarios.input_topic("filler")
INPUT_SETTINGS = {"cleanup.policy": "delete"}


def groups_of(plan: RunPlan) -> dict[TopicPartition, Group]:
    """Return the group of each partition of ``__consumer_offsets`` that a scenario has."""
    by_scenario = [(s, tp) for s in plan.scenarios if s.kind.is_of_groups for tp in plan.partitions[s.name]]
    return {
        tp: Group(scenarios.group_in(scenario.name, tp[1], len(by_scenario)), tp, scenarios.input_topic(scenario.name))
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
        partitions, plan, clock = list(self.groups), self.plan, self.cluster.clock
        period_s = plan.timers.filler_period_s
        return OffsetsFiller(partitions, len(partitions), FILLER_TOPIC, self._address, plan.seed, period_s, clock)

    def payload(self, scenario: scenarios.Scenario) -> Payload:
        """Return what carries out a scenario's steps."""
        groups, admin, client = self.groups, self.cluster.admin, self._client
        coordinators = Coordinators(
            self._leader, self._log, admin.delete_topic, self._create_again, self.expire, self.cluster.clock
        )
        of_members = scenario.kind is scenarios.Kind.MEMBERS

        def producer(transactional_id: str | None) -> LibraryProducer:
            if of_members:
                return memberships_producer(client, coordinators, groups)
            return offsets_producer(client, coordinators, transactional_id, deletes=scenario.deletes)

        def key_in(tp: TopicPartition, key: str) -> bytes:
            name = groups[tp].name
            return encode_group_key(name) if of_members else offset_key(scenario.name, name, key)

        return Payload(scenario, self.plan.partitions[scenario.name], producer, self.history, key_in)

    def create_inputs(self) -> None:
        """Create the topics that groups consume, with records."""
        self._create(sorted({FILLER_TOPIC, *(group.topic for group in self.groups.values())}))

    def observe(self) -> None:
        """Record the views of groups: offsets first, as joins write; from stayed coordinators, then absent ones.

        A stayed coordinator does not lead yet, if possible, so that it must load its replica.
        """
        cluster, absent, groups = self.cluster, self.cluster.absent, self.groups
        reader = GroupReader(
            self._client, self.history, cluster.clock, scenarios.Phase.AFTER, cluster.runtime.address, cluster.settle_s
        )
        leaders_now = {tp: state.leader for tp, state in cluster.states().items()}
        stayed = {tp: self._stayed(tp, leaders_now.get(tp)) for tp in groups}
        consume = partial(reader.consume, protocols=self.plan.target.group_protocols)
        for observe in (reader.ask, consume):
            needed_s: dict[str, float] = {}
            for leaders in (stayed, *(dict.fromkeys(groups, broker) for broker in absent)):
                cluster.lead({tp: led_by(leader, cluster.replicas[tp]) for tp, leader in leaders.items()})
                took_s = observe({groups[tp]: broker for tp, broker in leaders.items()}, needed_s=needed_s)
                needed_s = needed_s or took_s

    def _stayed(self, tp: TopicPartition, leader: int | None) -> int:
        brokers = set(self.cluster.replicas[tp]) - set(self.cluster.absent)
        return min(brokers - {leader} or brokers)

    def _create(self, topics: Sequence[str]) -> None:
        admin, placement = self.cluster.admin, self.plan.placement
        brokers = placement.staying[: placement.replication_factor]
        partitions = [(topic, number) for topic in topics for number in range(scenarios.INPUT_PARTITIONS)]

        def are_led() -> bool:
            states = admin.partitions(topics)
            return set(states) == set(partitions) and all(state.leader >= 0 for state in states.values())

        admin.create_topics(dict.fromkeys(partitions, brokers), INPUT_SETTINGS)
        self.cluster.wait(are_led, f"topics {', '.join(topics)} to have leaders")
        errors: list[ClientError] = []

        def answered(error: ClientError | None, _offset: int) -> None:
            if error is not None:
                errors.append(error)

        producer = self.library.producer(None)
        for number in range(scenarios.INPUT_RECORDS):
            for partition in partitions:
                producer.send(partition, f"record {number}", "input", [], answered)
        if producer.flush() or errors:
            process = scenarios.client_name(topics[-1].removesuffix(scenarios.input_topic("")), "inputs")
            why = "; ".join(dict.fromkeys(map(str, errors))) or "no answer"
            refusal = errors[0].refusal if errors else TIMED_OUT
            raise OperationFailedError(process, f"records of {topics[-1]} are not acknowledged: {why}", refusal)

    def _create_again(self, topic: str) -> None:
        self.cluster.wait(lambda: not self.cluster.admin.partitions([topic]), f"topic {topic} to be gone")
        self._create([topic])

    def expire(self, group: str, partition: TopicPartition) -> None:
        """Commit an offset of a group whose retention is over at once: the coordinator's next check deletes it."""
        (kept_in,) = [candidate.partition for candidate in self.groups.values() if candidate.name == group]

        def is_committed() -> bool:
            ask(self._address(kept_in), commit_offsets(group, {partition: 0}, retention_ms=1))
            return True

        self.cluster.wait(is_committed, f"the coordinator of {group} to take an offset that expires")

    def _leader(self, partition: TopicPartition) -> int:
        state = self.cluster.states().get(partition)
        if state is None or state.leader < 0:
            raise ConnectionError(f"{name_of(partition)} has no leader")
        return state.leader

    def _address(self, partition: TopicPartition) -> Address:
        return self.cluster.runtime.address(self._leader(partition))

    def _log(self, partition: TopicPartition) -> Sequence[Batch]:
        answer = self.cluster.read(self._leader(partition), [partition])[partition]
        if not isinstance(answer, ReplicaState):
            raise ConnectionError(f"{name_of(partition)} cannot be read: {answer}")
        return answer.batches
