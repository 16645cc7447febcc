"""Administrators of a round on a fake cluster: failed requests are retried until topics exist."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest
from fakes.admin import DelayedAdmin
from fakes.clock import TickingClock
from fakes.runtime import FakeRuntime

from harness.cluster.cluster import Cluster
from harness.errors import HarnessError, WaitTimeoutError
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.metadata import PartitionState
from harness.run_folder.history import History
from harness.schedules.operations import Inject, RecreateTopic
from harness.schedules.schedule import RoundPlan, RoundTopic
from harness.soak.play import administrators
from harness.soak.play.administrators import Administrators
from harness.systems.kafka import KafkaControl
from nemesis import FAULTS
from nemesis.fault import FaultContext

PLACED = {("a", 0): (1, 2, 3), ("b", 0): (2, 3, 1)}
PLAN = RoundPlan(1, (RoundTopic("a", 1, {}), RoundTopic("b", 1, {})), ())


@dataclass
class TopicAdmin(DelayedAdmin):
    """Topics exist from their creation to their deletion. ``lost``: the number of creations whose answers are lost."""

    lost: int = 0
    deletions: list[tuple[str, UUID | None]] = field(default_factory=list)
    ids: dict[str, UUID] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def create_topics(self, replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]) -> None:
        del settings
        (topic,) = {topic for topic, _ in replicas}
        self.calls.append(f"create {topic}")
        if topic in {topic for topic, _ in self.states}:
            raise HarnessError(f"topic {topic} cannot be created: Topic '{topic}' already exists.")
        self.ids[topic] = UUID(int=len(self.calls))
        self.place(replicas)
        if self.lost:
            self.lost -= 1
            raise HarnessError("no broker answers CreateTopicsRequest: timed out")

    def reassign(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.calls.append(f"reassign {dict(replicas)}")
        self.place(replicas)

    def place(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.states |= {tp: PartitionState(of[0], tuple(of), tuple(of)) for tp, of in replicas.items()}

    def topic_id(self, topic: str) -> UUID:
        return self.ids[topic]

    def delete_topic(self, topic: str, topic_id: UUID | None = None) -> None:
        self.deletions.append((topic, topic_id))
        if topic_id in {None, self.ids[topic]}:
            self.states = {tp: state for tp, state in self.states.items() if tp[0] != topic}

    def alter_topics(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        del settings
        if unknown := set(topics) - {topic for topic, _ in self.states}:
            raise HarnessError(f"settings of {unknown} cannot be changed: the topic does not exist")

    def alter_brokers(self, settings: Mapping[str, str | None]) -> None:
        """Every broker takes them."""

    def partitions(self, topics: Sequence[str], at: Address | None = None) -> dict[TopicPartition, PartitionState]:
        del at
        return {tp: state for tp, state in self.states.items() if tp[0] in topics}


@pytest.fixture
def admin() -> TopicAdmin:
    return TopicAdmin()


@pytest.fixture
def admins(tmp_path: Path, admin: TopicAdmin) -> Iterator[Administrators]:
    runtime = FakeRuntime()
    control = KafkaControl(runtime, admin)
    cluster = Cluster(runtime, admin, control, admin.clock, settle_s=30, replicas=PLACED)
    with closing(History(tmp_path / "history.jsonl", TickingClock())) as history:
        made = Administrators(PLAN, cluster, history, copy_bytes_per_s=1)
        made.create_topics()
        admin.calls.clear()
        yield made


Heal = Callable[[FaultContext], None]


def use_faults(monkeypatch: pytest.MonkeyPatch, heals: dict[str, Heal]) -> None:
    """Have no other faults than these, which do nothing until they are healed."""
    faults = {name: replace(FAULTS[name], inject=lambda _: None, heal=heal) for name, heal in heals.items()}
    monkeypatch.setattr(administrators, "FAULTS", faults)


def test_a_fault_that_cuts_off_ends_before_one_that_waits_for_an_answer(
    admins: Administrators, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def lift(_: FaultContext) -> None:
        if "one-way" not in ended:
            raise HarnessError("no broker answers IncrementalAlterConfigsRequest: timed out")
        ended.append("throttle")

    heals: dict[str, Heal] = {"one-way": lambda _: ended.append("one-way"), "throttle": lift}
    use_faults(monkeypatch, heals)
    for fault in heals:
        admins.play(Inject(fault, 2))
    admins.heal()
    assert ended == ["one-way", "throttle"]
    assert not admins.active


def test_a_fault_that_changes_every_topic_finds_them_all(admins: Administrators, admin: TopicAdmin) -> None:
    admins.play(Inject("throttle", 2))
    admin.delete_topic("b")
    admins.heal()
    assert admin.calls == ["create b"]


def test_what_does_not_end_is_named(admins: Administrators, monkeypatch: pytest.MonkeyPatch) -> None:
    use_faults(monkeypatch, {"pause": Mock(side_effect=HarnessError("it stays"))})
    admins.play(Inject("pause", 3))
    with pytest.raises(WaitTimeoutError, match="every fault to end: pause on broker 3"):
        admins.heal()


def test_a_topic_is_created_again_although_the_answer_is_lost(admins: Administrators, admin: TopicAdmin) -> None:
    admin.lost = 1
    admins.play(RecreateTopic("b"))
    assert admin.calls == ["create b", "create b"]
    assert admin.states.keys() == PLACED.keys()


def test_a_repeated_deletion_spares_the_topic_that_came_next(admins: Administrators, admin: TopicAdmin) -> None:
    """Found by a soak (seed 622): a topic was deleted once more, by a request that a broker had kept."""
    admins.play(RecreateTopic("b"))
    (deletion,) = admin.deletions
    admin.delete_topic(*deletion)
    assert admin.states.keys() == PLACED.keys()


def test_a_topic_that_was_deleted_is_created_in_the_end(admins: Administrators, admin: TopicAdmin) -> None:
    assert admins.is_placed()
    admin.delete_topic("b")
    assert admins.is_placed()
    assert admin.calls == ["create b"]


@pytest.mark.parametrize("state", [PartitionState(1, (1, 2), (1, 2)), PartitionState(1, (1, 2, 3), (1, 2))], ids=str)
def test_a_replica_that_was_removed_or_is_being_removed_is_assigned_again(
    admins: Administrators, admin: TopicAdmin, state: PartitionState
) -> None:
    admin.states["a", 0] = state
    assert not admins.is_placed()
    assert admin.calls == ["reassign {('a', 0): [1, 2, 3]}"]
    assert admins.is_placed()
