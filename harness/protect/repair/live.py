"""A running cluster, as every one of its brokers sees it.

Each observation asks all registered brokers at once: for metadata, settings and folders. Brokers have metadata of their
own age. Where they differ, nothing is concluded: old metadata could show a replica that was removed meanwhile. A frozen
broker delays an observation by `ANSWER_S` seconds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest, ListPartitionReassignmentsRequest
from kafka.protocol.metadata import MetadataRequest

from harness.audit.explain.knowledge import brokers_text
from harness.errors import HarnessError, UsageError
from harness.kafka_api.admin import TOPIC_RESOURCE, Admin
from harness.kafka_api.wire import Address, Connection, error_name
from harness.protect.guard.settings import PAUSE, is_same
from harness.protect.repair.state import Partition, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.protect.repair.state import Entry

ANSWER_S: Final = 3.0
MIN_INSYNC: Final = "min.insync.replicas"
NO_TOPIC_ID: Final = "00000000-0000-0000-0000-000000000000"
LIST_MS: Final = 3_000


@dataclass(frozen=True)
class State:
    """One partition in one broker's metadata."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


@dataclass(frozen=True)
class BrokerAnswer:
    """What one broker reports. ``folders_bytes``: None where it could not list its folders, with the reason."""

    topic_ids: Mapping[str, str]
    states: Mapping[Partition, State]
    settings: Mapping[str, Mapping[str, str]]
    folders_bytes: Mapping[Partition, int] | None
    why_no_folders: str | None = None


@dataclass(frozen=True)
class Answers:
    """One observation: ``brokers`` by id, those that answered; ``online``: the registered ones."""

    online: frozenset[int]
    brokers: Mapping[int, BrokerAnswer]
    adding: Mapping[Partition, frozenset[int]] = field(default_factory=dict)
    removing: Mapping[Partition, frozenset[int]] = field(default_factory=dict)

    def seen(self, entry: Entry) -> Seen | str:
        """Return what all brokers say of a partition; a sentence where they differ or one does not answer."""
        partition, topic = entry.partition, entry.partition[0]
        states = {one.states.get(partition) for one in self.brokers.values()}
        ids = {one.topic_ids.get(topic) for one in self.brokers.values()}
        state = next(iter(states), None)
        if len(states) != 1 or len(ids) != 1:
            return "the brokers' metadata to be the same"
        if state is None:
            return f"{entry.name} to be in the metadata"
        if silent := sorted((frozenset(state.replicas) & self.online) - self.brokers.keys()):
            return f"an answer of {brokers_text(silent)}"
        folders = {b: one.folders_bytes for b, one in self.brokers.items() if one.folders_bytes is not None}
        if entry.current is not None and entry.current in self.brokers and entry.current not in folders:
            return f"the folders of broker {entry.current}: {self.brokers[entry.current].why_no_folders}"
        settings = [one.settings.get(topic, {}) for one in self.brokers.values()]
        if any(MIN_INSYNC not in one for one in settings):
            return f"the settings of topic {topic}"
        return Seen(
            next(iter(ids)) or "",
            state.leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            max(int(one[MIN_INSYNC]) for one in settings),
            self.online,
            all(is_same(one.get(name), value) for one in settings for name, value in PAUSE.items()),
            adding=self.adding.get(partition, frozenset()),
            removing=self.removing.get(partition, frozenset()),
            folders_bytes={b: sizes[partition] for b, sizes in folders.items() if partition in sizes},
            answered=frozenset(folders),
        )


class LiveRepairCluster:
    """Implements `cluster.RepairCluster`. One owner. ``cluster_id``: None before the first answer."""

    def __init__(self, bootstrap: Sequence[Address], dial: Callable[..., Connection] = Connection) -> None:
        """Store where brokers are; they are asked when they are needed."""
        self._bootstrap, self._dial = tuple(bootstrap), dial
        self._brokers: dict[int, Address] = {}
        self.cluster_id: str | None = None
        self.admin = Admin(lambda: self.addresses)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The brokers of the last metadata, then those of ``--bootstrap-server``."""
        return tuple(dict.fromkeys((*self._brokers.values(), *self._bootstrap)))

    def connect(self) -> None:
        """Ask for the cluster's id and brokers. Raises `UsageError` where no broker answers."""
        try:
            self._metadata([])
        except OSError as error:
            raise UsageError(f"--bootstrap-server: {error}") from error

    def _metadata(self, topics: Sequence[str]) -> None:
        metadata = self._first(lambda: _metadata_request(topics))
        security = self._bootstrap[0].security
        self._brokers = {b.node_id: Address(b.host, b.port, security) for b in metadata.brokers}
        self.cluster_id = metadata.cluster_id

    def answers(self, partitions: Collection[Partition]) -> Answers:
        """Ask every registered broker. Raises ConnectionError where none answers, `HarnessError`."""
        topics = sorted({topic for topic, _ in partitions})
        self._metadata(topics)

        def ask(broker: int) -> BrokerAnswer | None:
            try:
                return self._ask(self._brokers[broker], topics, partitions)
            except OSError:
                return None

        with ThreadPoolExecutor(max(len(self._brokers), 1)) as pool:
            asked = dict(zip(self._brokers, pool.map(ask, self._brokers), strict=True))
        ongoing = self._first(lambda: _reassignments_request(partitions))
        if ongoing.error_code:
            raise HarnessError(f"reassignments are unknown: {ongoing.error_message or error_name(ongoing.error_code)}")
        listed = [((topic.name, p.partition_index), p) for topic in ongoing.topics for p in topic.partitions]
        return Answers(
            frozenset(self._brokers),
            {broker: answer for broker, answer in asked.items() if answer is not None},
            {tp: frozenset(p.adding_replicas) for tp, p in listed},
            {tp: frozenset(p.removing_replicas) for tp, p in listed},
        )

    def observe(self, entries: Collection[Entry]) -> dict[Partition, Seen | str]:
        """Return what all brokers say of each partition. Raises as `answers`."""
        answers = self.answers([entry.partition for entry in entries])
        return {entry.partition: answers.seen(entry) for entry in entries}

    def reassign(self, partition: Partition, replicas: Sequence[int]) -> None:
        """Assign these replicas. Raises `HarnessError` where the controller refuses."""
        self.admin.reassign({partition: replicas})

    def elect_preferred(self, partition: Partition) -> None:
        """Have the first replica lead."""
        self.admin.elect_preferred([partition])

    def usable_bytes(self, broker: int) -> int | None:
        """Return the free bytes of a broker's fullest log directory (KIP-827); None where it does not say so."""
        with closing(self._dial(self._brokers[broker], timeout_s=ANSWER_S)) as connection:
            answer = connection.call(DescribeLogDirsRequest[4](topics=[]))
        free = [one.usable_bytes for one in answer.results if not one.error_code]
        return min(free) if free and min(free) >= 0 else None

    def address(self, broker: int) -> Address:
        """Return a registered broker's address. Raises `HarnessError` for another."""
        if broker not in self._brokers:
            raise HarnessError(f"broker {broker} is not registered with the cluster")
        return self._brokers[broker]

    def _ask(self, address: Address, topics: Sequence[str], partitions: Collection[Partition]) -> BrokerAnswer:
        with closing(self._dial(address, timeout_s=ANSWER_S)) as connection:
            metadata = connection.call(_metadata_request(topics))
            settings = connection.call(_settings_request(topics))
            folders, why = _folders(connection.call(_folders_request(partitions)))
        return BrokerAnswer(
            {topic.name: str(topic.topic_id) for topic in metadata.topics if not topic.error_code},
            {
                (topic.name, p.partition_index): State(
                    p.leader_id, p.leader_epoch, tuple(p.replica_nodes), frozenset(p.isr_nodes)
                )
                for topic in metadata.topics
                if not topic.error_code
                for p in topic.partitions
            },
            {one.resource_name: {c.name: c.value for c in one.configs} for one in settings.results},
            folders,
            why,
        )

    def _first(self, make: Callable[[], Any]) -> Any:
        """Return the answer of the first broker that gives one. Raises ConnectionError."""
        last: OSError | None = None
        for address in self.addresses:
            try:
                with closing(self._dial(address, timeout_s=ANSWER_S)) as connection:
                    return connection.call(make())
            except OSError as error:
                last = error
        raise ConnectionError(f"no broker answers: {last}")


def _metadata_request(topics: Sequence[str]) -> Any:
    Topic = MetadataRequest.MetadataRequestTopic  # noqa: N806
    return MetadataRequest[10](
        topics=[Topic(topic_id=NO_TOPIC_ID, name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _settings_request(topics: Sequence[str]) -> Any:
    Resource = DescribeConfigsRequest.DescribeConfigsResource  # noqa: N806
    names = [MIN_INSYNC, *PAUSE]
    return DescribeConfigsRequest[4](
        resources=[Resource(resource_type=TOPIC_RESOURCE, resource_name=t, configuration_keys=names) for t in topics]
    )


def by_topic(partitions: Collection[Partition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return numbers


def _folders_request(partitions: Collection[Partition]) -> Any:
    Topic = DescribeLogDirsRequest.DescribableLogDirTopic  # noqa: N806
    wanted = [Topic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]
    return DescribeLogDirsRequest[4](topics=wanted)


def _reassignments_request(partitions: Collection[Partition]) -> Any:
    Topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics  # noqa: N806
    wanted = [Topic(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(partitions).items()]
    return ListPartitionReassignmentsRequest[0](timeout_ms=LIST_MS, topics=wanted)


def _folders(answer: Any) -> tuple[dict[Partition, int] | None, str | None]:
    """Return the sizes of folders; None, and why, where some may be missing.

    A broker that refuses lists no folder, as one without folders does: only version 3 on has an error for the former.
    """
    errors = [error_name(code) for code in (answer.error_code, *(one.error_code for one in answer.results)) if code]
    if errors or not answer.results:
        return None, errors[0] if errors else "it lists no log directory"
    return {
        (topic.name, p.partition_index): p.partition_size
        for directory in answer.results
        for topic in directory.topics
        for p in topic.partitions
        if not p.is_future_key
    }, None
