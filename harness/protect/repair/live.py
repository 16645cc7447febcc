"""A running cluster, as every one of its brokers reports it: metadata, settings and folders, asked at once.

The metadata of a broker may be old. Where brokers differ, there is no observation: old metadata could show a replica
that was removed meanwhile. A frozen broker delays an observation by `ONE_ANSWER`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from harness.broker_files.internal_topics.message_format import uuid_text
from harness.errors import HarnessError, UsageError, raised_as
from harness.judge.finding import brokers_text, name_of
from harness.kafka_api import NO_SUCH_TOPIC, TopicPartition
from harness.kafka_api import topics as topic_requests
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient, Connection, Dial, RetryPolicy, SocketStream
from harness.kafka_api.messages import Request
from harness.kafka_api.metadata import FIRST_WITH_TOPIC_IDS, ClusterState, describe_cluster
from harness.kafka_api.topics import BROKER_RESOURCE, TOPIC_RESOURCE, values_of
from harness.protect.guard.cluster import PAUSE, is_same
from harness.protect.repair.channel import BROKER, TOPIC
from harness.protect.repair.steps import ObservedPartition, PartitionRepair

T = TypeVar("T")
ONE_ANSWER: Final = RetryPolicy(answer_s=3.0)
MIN_INSYNC: Final = "min.insync.replicas"
KINDS: Final = {TOPIC: TOPIC_RESOURCE, BROKER: BROKER_RESOURCE}


@dataclass(frozen=True)
class BrokerAnswer:
    """A broker's report. ``folders``: sizes, or an error's name. ``usable_bytes``: on its fullest disk, or None."""

    state: ClusterState
    settings: Mapping[str, Mapping[str, str]]
    folders: Mapping[TopicPartition, int] | str
    usable_bytes: int | None


@dataclass(frozen=True)
class ClusterAnswers:
    """One observation: ``brokers``: the reports by id; ``online``: the registered brokers."""

    online: frozenset[int]
    brokers: Mapping[int, BrokerAnswer]
    ongoing: Mapping[TopicPartition, topic_requests.Reassignment] = field(default_factory=dict)

    def partition(self, entry: PartitionRepair) -> ObservedPartition | str:
        """Return a partition as all brokers report it; a sentence where they differ or a broker does not answer."""
        topic, number = entry.partition
        topics = [answer.state.topics.get(topic) for answer in self.brokers.values()]
        states = {None if described is None else described.partitions.get(number) for described in topics}
        ids = {None if described is None or described.error else uuid_text(described.topic_id) for described in topics}
        state = next(iter(states), None)
        errors = {None if described is None else described.error for described in topics}
        # A deleted topic has no id.
        if errors == {NO_SUCH_TOPIC} and self.brokers.keys() >= self.online:
            return ObservedPartition("", -1, -1, (), frozenset(), 0, self.online, is_held=False)
        if state is None or len(states) != 1 or len(ids) != 1:
            answered = "".join(f" ({error})" for error in sorted(filter(None, errors)))
            return f"the brokers' metadata to be the same, and to have {name_of(entry.partition)}{answered}"
        if silent := sorted((frozenset(state.replicas) & self.online) - self.brokers.keys()):
            return f"an answer of {brokers_text(silent)}"
        folders = {b: answer.folders for b, answer in self.brokers.items() if not isinstance(answer.folders, str)}
        if entry.current is not None and entry.current in self.brokers and entry.current not in folders:
            return f"the folders of broker {entry.current}: {self.brokers[entry.current].folders}"
        settings = [answer.settings.get(topic, {}) for answer in self.brokers.values()]
        if any(MIN_INSYNC not in values for values in settings):
            return f"the settings of topic {topic}, for which this user needs DescribeConfigs"
        reassignment = self.ongoing.get(entry.partition, topic_requests.Reassignment())
        return ObservedPartition(
            next(iter(ids)) or "",
            state.leader,
            -1 if state.leader_epoch is None else state.leader_epoch,
            state.replicas,
            frozenset(state.isr),
            max(int(values[MIN_INSYNC]) for values in settings),
            self.online,
            all(is_same(values.get(name), value) for values in settings for name, value in PAUSE.items()),
            reassignment.adding,
            reassignment.removing,
            folders_bytes={b: sizes[entry.partition] for b, sizes in folders.items() if entry.partition in sizes},
            answered=frozenset(folders),
        )


class LiveRepairCluster:
    """Observes partitions, and changes assignments and settings. One owner."""

    def __init__(self, bootstrap: Sequence[Address], dial: Dial = SocketStream) -> None:
        self._client = ClusterClient(lambda: bootstrap, ONE_ANSWER, dial=dial)

    def connect(self) -> str:
        """Ask for the cluster's brokers and return its id. Raises `UsageError` where no broker answers."""
        with raised_as(UsageError, "--bootstrap-server", OSError):
            return self._client.describe([]).cluster_id

    @raised_as(HarnessError, "the cluster cannot be observed", OSError)
    def answers(self, partitions: Collection[TopicPartition]) -> ClusterAnswers:
        """Ask every registered broker. Raises `HarnessError`."""
        topics = sorted({topic for topic, _ in partitions})

        def ask(_broker: int, caller: Connection) -> BrokerAnswer:
            state = caller.ask(describe_cluster(topics, version=FIRST_WITH_TOPIC_IDS))
            answers = caller.ask(topic_requests.describe_configs(TOPIC_RESOURCE, topics, (MIN_INSYNC, *PAUSE)))
            folders = caller.ask(topic_requests.describe_log_dirs(sorted(partitions), version=4))  # with free space
            settings = {t: values_of(entries) for t, entries in answers.items() if not isinstance(entries, str)}
            return BrokerAnswer(state, settings, folders.error or folders.sizes_bytes, folders.usable_bytes)

        online = self._client.describe([]).brokers
        answers, _ = self._client.ask_all(online, ask)
        return ClusterAnswers(
            frozenset(online), answers, self._client.ask_any(topic_requests.list_reassignments(sorted(partitions)))
        )

    def observe(self, entries: Collection[PartitionRepair]) -> dict[TopicPartition, ObservedPartition | str]:
        """Return each partition as all brokers report it. Raises as `answers`."""
        answers = self.answers([entry.partition for entry in entries])
        return {entry.partition: answers.partition(entry) for entry in entries}

    def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Assign these replicas (KIP-455), in place of a reassignment under way. Raises `HarnessError`."""
        self._client.ask_any(topic_requests.reassign({partition: replicas}))

    def elect_preferred(self, partition: TopicPartition) -> None:
        """Have the first replica lead (KIP-460). A replica that cannot lead yet is not an error."""
        self._client.ask_any(topic_requests.elect_preferred([partition]))

    def explicit(self, kind: str, name: str, names: Collection[str]) -> dict[str, str | None]:
        """Return explicit values; None for an inherited value; nothing for a deleted topic. Raises as `alter`."""
        answer = self._ask(kind, name, topic_requests.describe_configs(KINDS[kind], [name], names))[name]
        if answer == NO_SUCH_TOPIC:
            return {}
        if isinstance(answer, str):
            raise HarnessError(f"settings of {kind} {name}: {answer}")
        return {setting: answer[setting].explicit if setting in answer else None for setting in names}

    def alter(self, kind: str, name: str, values: Mapping[str, str | None]) -> None:
        """Set values. Raises `HarnessError` where the broker refuses, OSError where it does not answer."""
        if why := self._ask(kind, name, topic_requests.alter_configs(KINDS[kind], {name: values})).get(name):
            raise HarnessError(f"settings of {kind} {name}: {why}")

    def _ask(self, kind: str, name: str, request: Request[T]) -> T:
        """Ask the broker itself about its settings, and any broker about a topic's settings."""
        return self._client.ask(int(name), request) if kind == BROKER else self._client.ask_any(request)
