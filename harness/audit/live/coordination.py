"""Who coordinates a group, or leads a partition, and whether that broker's replica is right about a finding.

A group is coordinated by the leader of one partition of ``__consumer_offsets``, which the hash of its id gives; in the
same way a transactional id by ``__transaction_state``, and a share group's partition by ``__share_group_state``.
Sources: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
``ShareCoordinatorService.partitionFor``, all of which hash alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from harness.escape import escape
from harness.judge.finding import Coordinator
from harness.schedules.groups import offsets_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.broker_files.metadata_log.history import ClusterMetadata
    from harness.judge.finding import Finding, Place
    from harness.kafka_api.metadata import ClusterState

_NO_LEADER: Final = -1

RIGHT, WRONG, UNDECIDED, UNAFFECTED = "right", "wrong", "undecided", "not accused"


@dataclass(frozen=True)
class Leaders:
    """The leader of each partition, -1 where there is none, and the number of partitions of each topic.

    ``is_now``: by a running cluster; else at the end of a metadata log.
    """

    brokers: Mapping[Place, int] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    is_now: bool = False


def leaders_of_cluster(cluster: ClusterState) -> Leaders:
    """Return who leads now."""
    counts = {topic.name: len(topic.partitions) for topic in cluster.topics.values()}
    return Leaders({place: one.leader for place, one in cluster.partitions.items()}, counts, is_now=True)


def leaders_of_metadata(metadata: ClusterMetadata | None) -> Leaders:
    """Return who led at the end of a metadata log."""
    histories = {} if metadata is None else metadata.histories
    counts: dict[str, int] = {}
    for topic, _ in histories:
        counts[topic] = counts.get(topic, 0) + 1
    return Leaders({place: history.states[-1].leader for place, history in histories.items()}, counts)


def with_coordinators(findings: Iterable[Finding], leaders: Leaders) -> list[Finding]:
    """Add to the ``record`` of findings its ``coordinator``, and what the finding says of that broker's replica."""
    return [_with_coordinator(finding, leaders) for finding in findings]


def _with_coordinator(finding: Finding, leaders: Leaders) -> Finding:
    record, topic, broker = finding.record, finding.topic, leaders.brokers.get(finding.place)
    if record is None or record.key is None or broker is None:
        return finding
    name, hashed, verb = _coordinated(topic, record.key)
    verb = verb if leaders.is_now else {"coordinates": "coordinated", "leads": "led"}[verb]
    question = f"who {verb} {name} {'now' if leaders.is_now else 'at the end of the metadata log'}"
    count = leaders.partitions[topic]
    if hashed is not None and offsets_partition(hashed, count) != finding.partition:
        here = f"partition {offsets_partition(hashed, count)} of {topic}, which has {count} partitions"
        text = f"{name} belongs to {here}: no coordinator reads this record"
        coordinator = Coordinator(broker=None, is_=UNAFFECTED, text=text)
    elif broker == _NO_LEADER:
        coordinator = Coordinator(broker=None, is_=UNAFFECTED, text=f"{question}: nobody, the partition has no leader")
    else:
        standing = _standing(finding, broker)
        coordinator = Coordinator(broker=broker, is_=standing, text=f"{question}: broker {broker}, {standing}")
    return replace(finding, record=replace(record, coordinator=coordinator))


def _standing(finding: Finding, broker: int) -> str:
    if not finding.decided:
        return UNDECIDED
    if broker == finding.broker:
        return WRONG
    return RIGHT if broker in (finding.right or ()) else UNAFFECTED


def _coordinated(topic: str, key: Mapping[str, Any]) -> tuple[str, str | None, str]:
    """Return who is coordinated, the name that is hashed (None: no coordinator), and the verb for a sentence."""
    coordinated = _COORDINATED.get(topic)
    if coordinated is None:
        return "the partition", None, "leads"
    name, hashed = coordinated(key)
    return name, hashed, "coordinates"


def _group(key: Mapping[str, Any]) -> tuple[str, str]:
    group = key.get("group", key.get("group_id"))
    return f"group {escape(str(group))}", str(group)


def _transactional_id(key: Mapping[str, Any]) -> tuple[str, str]:
    return f"transactional id {escape(key['transactional_id'])}", key["transactional_id"]


def _share_partition(key: Mapping[str, Any]) -> tuple[str, str]:
    name = f"{key['group_id']}:{key['topic_id']}:{key['partition']}"
    return f"share partition {escape(name)}", name


_COORDINATED: Final[Mapping[str, Callable[[Mapping[str, Any]], tuple[str, str]]]] = {
    CONSUMER_OFFSETS: _group,
    TRANSACTION_STATE: _transactional_id,
    SHARE_GROUP_STATE: _share_partition,
}
