"""Who coordinates a group, or leads a partition, and whether that broker's replica is right about a finding.

A group is coordinated by the leader of one partition of ``__consumer_offsets``, which the hash of its id gives; in the
same way a transactional id by ``__transaction_state``, and a share group's partition by ``__share_group_state``.
Sources: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
``ShareCoordinatorService.partitionFor``, all of which hash alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harness.audit.explain.knowledge import place_of
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from harness.escape import escape
from harness.schedules.groups import offsets_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.audit.explain.knowledge import Place, Row
    from harness.broker_files.metadata_log.history import ClusterMetadata
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


def with_coordinators(findings: Iterable[Row], leaders: Leaders) -> list[Row]:
    """Add ``coordinator`` to the ``record`` of findings: ``broker`` (null: none), ``is`` and ``text``.

    ``is``: right, wrong, undecided or not accused: what the finding says of this broker's replica.
    """
    return [
        {**one, "record": {**one["record"], "coordinator": _coordinator(one, leaders)}}
        if "key" in one.get("record", {}) and place_of(one) in leaders.brokers
        else one
        for one in findings
    ]


def _coordinator(finding: Row, leaders: Leaders) -> Row:
    record, topic = finding["record"], finding["topic"]
    broker = leaders.brokers[place_of(finding)]
    whom, hashed, verb = _coordinated(topic, record["key"])
    verb = verb if leaders.is_now else {"coordinates": "coordinated", "leads": "led"}[verb]
    when = "now" if leaders.is_now else "at the end of the metadata log"
    question = f"who {verb} {whom} {when}"
    count = leaders.partitions[topic]
    if hashed is not None and offsets_partition(hashed, count) != finding["partition"]:
        here = f"partition {offsets_partition(hashed, count)} of {topic}, which has {count} partitions"
        return {"broker": None, "is": UNAFFECTED, "text": f"{whom} belongs to {here}: no coordinator reads this record"}
    if broker == _NO_LEADER:
        return {"broker": None, "is": UNAFFECTED, "text": f"{question}: nobody, the partition has no leader"}
    standing = _standing(finding, broker)
    return {"broker": broker, "is": standing, "text": f"{question}: broker {broker}, {standing}"}


def _standing(finding: Row, broker: int) -> str:
    if not finding["decided"]:
        return UNDECIDED
    if broker == finding["broker"]:
        return WRONG
    return RIGHT if broker in finding.get("right", ()) else UNAFFECTED


def _coordinated(topic: str, key: Mapping[str, Any]) -> tuple[str, str | None, str]:
    """Return who is coordinated, the name that is hashed (None: no coordinator), and the verb for a sentence."""
    coordinated = _COORDINATED.get(topic)
    if coordinated is None:
        return "the partition", None, "leads"
    whom, hashed = coordinated(key)
    return whom, hashed, "coordinates"


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
