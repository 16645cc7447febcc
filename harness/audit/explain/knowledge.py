"""Leadership and ISR of each partition, as far as an audit knows: evidence from outside the logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkers.attribution.coverage import EpochCoverage
from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.broker_files.metadata_log.history import PartitionHistory, PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.audit.live.cluster import AuditedCluster
    from harness.broker_files.metadata_log.history import ClusterMetadata
    from harness.judge.finding import CheckerRow, Place


@dataclass(frozen=True)
class Knowledge:
    """Evidence from outside the logs: ``coverage`` by partition, and ``replicas``: the assigned brokers, in order.

    ``is_without_transactions``: the cluster has no transaction coordinator's log, and so never had a transaction.
    """

    coverage: Mapping[Place, EpochCoverage] = field(default_factory=dict)
    replicas: Mapping[Place, tuple[int, ...]] = field(default_factory=dict)
    is_without_transactions: bool = False

    def coverage_of(self, place: Place) -> EpochCoverage:
        """Return the leadership history of a partition, as far as it is known."""
        return self.coverage.get(place, EpochCoverage())


def name_of(place: Place) -> str:
    """Return the name of a partition's folders, which Kafka prints too."""
    return f"{place[0]}-{place[1]}"


def brokers_text(numbers: Iterable[int]) -> str:
    """Return "broker 1" or "brokers 1, 2" for a sentence."""
    listed = [str(number) for number in numbers]
    return f"broker{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def place_of(row: CheckerRow) -> Place:
    """Return the partition of a checker's row."""
    return row["topic"], row["partition"]


def rows_by_place(rows: Iterable[CheckerRow]) -> dict[Place, list[CheckerRow]]:
    """Group checkers' rows by partition."""
    places: dict[Place, list[CheckerRow]] = {}
    for row in rows:
        places.setdefault(place_of(row), []).append(row)
    return places


def knowledge_of_metadata(metadata: ClusterMetadata | None) -> Knowledge:
    """Return the evidence of a metadata log; none where there is no metadata log."""
    if metadata is None:
        return Knowledge()
    return Knowledge(
        {place: EpochCoverage(history, metadata.registrations) for place, history in metadata.histories.items()},
        {place: history.states[-1].replicas for place, history in metadata.histories.items()},
        TRANSACTION_STATE not in metadata.topics,
    )


def knowledge_of_cluster(before: AuditedCluster, after: AuditedCluster) -> Knowledge:
    """Return the evidence of a cluster's metadata before and after its replicas were read: current leader epochs only.

    The metadata lacks earlier leaders, and since when a replica is in the ISR. Where the leader epoch changed
    meanwhile, nothing is known.
    """
    coverage = {}
    for (topic, number), state in before.state.partitions.items():
        now = after.state.partitions.get((topic, number))
        is_same = now is not None and (now.leader, now.leader_epoch) == (state.leader, state.leader_epoch)
        if state.leader_epoch is not None and is_same:
            states = (PartitionState(0, state.leader, state.leader_epoch, 0, state.replicas, state.isr),)
            coverage[topic, number] = EpochCoverage(
                PartitionHistory(topic, "", number, since_creation=False, states=states)
            )
    return Knowledge(
        coverage,
        {place: state.replicas for place, state in before.state.partitions.items()},
        not before.may_have_transactions,
    )
