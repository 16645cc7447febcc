"""Leadership and ISR of each partition, by a metadata log or a running cluster: evidence from outside the logs."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from checkers.attribution.coverage import EpochCoverage
from harness.audit.live.cluster import AuditedCluster
from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.broker_files.metadata_log.history import ClusterMetadata, PartitionHistory, PartitionState
from harness.broker_files.metadata_log.join import JoinedLog
from harness.judge.finding import Place

NO_COPY: Final = "the copies have no metadata log (the folder __cluster_metadata-0 of any broker)"
NOT_ASKED: Final = "the metadata log was not read (--controllers), so only the leaders of the current epochs are known"
NOT_FETCHED: Final = "the metadata log could not be fetched, so only the leaders of the current epochs are known"


@dataclass(frozen=True)
class MetadataEvidence:
    """``coverage``: the leadership history by partition. ``replicas``: the assigned brokers of audited partitions.

    ``leaders``: the last leader of each partition, -1 for none; ``is_current``: by a running cluster, else at the end
    of a metadata log. ``partition_counts``: by topic. ``is_without_transactions``: the cluster has no transaction
    coordinator's log, and so never had a transaction. ``lacking``: why there is no metadata log, a sentence.
    """

    coverage: Mapping[Place, EpochCoverage] = field(default_factory=dict)
    replicas: Mapping[Place, tuple[int, ...]] = field(default_factory=dict)
    leaders: Mapping[Place, int] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    is_current: bool = False
    is_without_transactions: bool = False
    lacking: str = ""

    def coverage_of(self, place: Place) -> EpochCoverage:
        """Return the leadership history of a partition; an empty one if it is unknown."""
        return self.coverage.get(place, EpochCoverage())


def evidence_of_log(metadata: ClusterMetadata | None, audited: Collection[Place]) -> MetadataEvidence:
    """Return the evidence of a metadata log; empty without a log."""
    if metadata is None:
        return MetadataEvidence(lacking=NO_COPY)
    last = {place: history.states[-1] for place, history in metadata.histories.items()}
    return MetadataEvidence(
        {place: EpochCoverage(history, metadata.registrations) for place, history in metadata.histories.items()},
        {place: state.replicas for place, state in last.items() if place in audited},
        {place: state.leader for place, state in last.items()},
        Counter(topic for topic, _ in last),
        is_without_transactions=TRANSACTION_STATE not in metadata.topics,
    )


def evidence_of_cluster(
    before: AuditedCluster, after: AuditedCluster | None, log: JoinedLog | None = None
) -> MetadataEvidence:
    """Return the evidence of a cluster's metadata ``before`` and ``after`` its replicas were read.

    Earlier leaders, and since when a replica is in the ISR, are in the metadata ``log`` after the reading. Without it,
    coverage has the current leader epochs only, of partitions whose leader epoch did not change meanwhile.
    """
    coverage: dict[Place, EpochCoverage] = {}
    latest, latest_partitions = (after or before).state, {} if after is None else after.state.partitions
    for (topic, number), state in before.state.partitions.items():
        now = latest_partitions.get((topic, number))
        is_same = now is not None and (now.leader, now.leader_epoch) == (state.leader, state.leader_epoch)
        if state.leader_epoch is not None and is_same:
            states = (PartitionState(0, state.leader, state.leader_epoch, 0, state.replicas, state.isr),)
            history = PartitionHistory("", since_creation=False, states=states)
            coverage[topic, number] = EpochCoverage(history)
    metadata = None if log is None else log.metadata
    return MetadataEvidence(
        {**coverage, **evidence_of_log(metadata, ()).coverage},
        {place: state.replicas for place, state in before.state.partitions.items()},
        {place: state.leader for place, state in latest.partitions.items()},
        {topic.name: len(topic.partitions) for topic in latest.topics.values()},
        is_current=True,
        is_without_transactions=after is not None and not after.may_have_transactions,
        lacking="" if metadata is not None else NOT_ASKED if log is None else NOT_FETCHED,
    )
