"""Who led each partition and who was in its ISR, as far as an audit knows: what decides beside the logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from checkers.attribution.coverage import Coverage
from harness.audit.cluster import TRANSACTION_STATE
from harness.brokers.segments.metadata_log import PartitionHistory, PartitionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.audit.cluster import Cluster
    from harness.brokers.protocol.admin import PartitionState as Led
    from harness.brokers.segments.metadata_log import ClusterMetadata

Place: TypeAlias = "tuple[str, int]"


@dataclass(frozen=True)
class Knowledge:
    """What decides beside the logs: ``coverage`` by partition, and ``replicas``: who is assigned, in order.

    ``is_without_transactions``: the cluster has no transaction coordinator's log, and so never had a transaction.
    """

    coverage: Mapping[Place, Coverage] = field(default_factory=dict)
    replicas: Mapping[Place, tuple[int, ...]] = field(default_factory=dict)
    is_without_transactions: bool = False


def knowledge_of_metadata(metadata: ClusterMetadata | None) -> Knowledge:
    """Return what a metadata log tells; nothing where there is none."""
    if metadata is None:
        return Knowledge()
    return Knowledge(
        {place: Coverage(history, metadata.registrations) for place, history in metadata.histories.items()},
        {place: history.states[-1].replicas for place, history in metadata.histories.items()},
        TRANSACTION_STATE not in metadata.topics,
    )


def _led(state: Led | None) -> tuple[int, int | None] | None:
    return None if state is None else (state.leader, state.leader_epoch)


def knowledge_of_cluster(before: Cluster, after: Cluster) -> Knowledge:
    """Return what a running cluster tells, before and after its replicas were read: of current leader epochs only.

    Who led before, and since when anybody is in the ISR, it does not tell. Where the leader epoch changed meanwhile,
    nothing is known.
    """
    partitions = after.partitions
    histories = {
        (topic, number): PartitionHistory(
            topic,
            "",
            number,
            since_creation=False,
            states=(PartitionState(0, state.leader, state.leader_epoch, 0, state.replicas, state.isr),),
        )
        for (topic, number), state in before.partitions.items()
        if state.leader_epoch is not None and _led(partitions.get((topic, number))) == _led(state)
    }
    return Knowledge(
        {place: Coverage(history) for place, history in histories.items()},
        {place: state.replicas for place, state in before.partitions.items()},
        not before.may_have_transactions,
    )
