"""An audit's evidence of leaders: from a running cluster, and from the brokers' metadata log."""

from dataclasses import replace
from pathlib import Path

from harness.audit.explain import metadata_evidence
from harness.audit.explain.metadata_evidence import evidence_of_cluster, evidence_of_log
from harness.audit.live.cluster import AuditedCluster
from harness.broker_files.metadata_log.history import ClusterMetadata, PartitionHistory, PartitionState
from harness.broker_files.metadata_log.join import JoinedLog
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.metadata import ClusterState, TopicState
from harness.kafka_api.metadata import PartitionState as Led

ALL = (1, 2, 3)
PLACE = ("t", 0)
TOPICS = frozenset({"t", "__transaction_state"})
NOTHING_READ = JoinedLog(None, ("why",))


def cluster(leader: int, epoch: int | None, isr: tuple[int, ...] = ALL) -> AuditedCluster:
    state = ClusterState("id", {}, {"t": TopicState("t", {0: Led(leader, ALL, isr, epoch)})})
    return AuditedCluster(ClusterClient(list), state, {}, may_have_transactions=False)


def test_a_running_cluster_tells_the_leader_of_the_current_epoch_unless_it_changed_meanwhile() -> None:
    evidence = evidence_of_cluster(cluster(1, 4), cluster(1, 4, isr=(1, 3)))
    coverage = evidence.coverage[PLACE]
    assert [broker for broker in ALL if coverage.received(broker, 4)] == [1]
    assert coverage.received(1, 3) is None
    assert evidence.replicas == {PLACE: ALL}
    assert evidence.is_without_transactions
    first_transaction = replace(cluster(1, 4), may_have_transactions=True)
    assert not evidence_of_cluster(cluster(1, 4), first_transaction).is_without_transactions
    for before, after in ((cluster(1, 4), cluster(2, 5)), (cluster(1, 4), cluster(1, 5)), (cluster(1, None),) * 2):
        assert evidence_of_cluster(before, after).coverage == {}


def test_a_metadata_log_tells_histories_and_whether_there_is_a_coordinator() -> None:
    states = (PartitionState(1, 1, 0, 0, ALL, ALL), PartitionState(2, 2, 1, 1, (2, 1, 3), ALL))
    history = PartitionHistory("id", since_creation=True, states=states)
    metadata = ClusterMetadata(Path("log"), {PLACE: history}, dict.fromkeys(ALL, (0,)), TOPICS, 0, 3)
    evidence = evidence_of_log(metadata, {PLACE})
    assert {broker for broker in ALL if evidence.coverage[PLACE].received(broker, 0)} == set(ALL)
    assert evidence.replicas == {PLACE: (2, 1, 3)}
    assert not evidence.is_without_transactions
    assert evidence_of_log(None, ()).coverage == {}


def test_without_a_metadata_log_the_evidence_says_how_to_get_it() -> None:
    not_asked, not_fetched = (evidence_of_cluster(cluster(1, 4), cluster(1, 4), log) for log in (None, NOTHING_READ))
    assert not_asked.lacking == metadata_evidence.NOT_ASKED
    assert not_fetched.lacking == metadata_evidence.NOT_FETCHED
    assert evidence_of_log(None, ()).lacking == metadata_evidence.NO_COPY


def test_a_fetched_metadata_log_replaces_the_current_epochs() -> None:
    states = (PartitionState(1, 2, 3, 0, ALL, ALL), PartitionState(2, 1, 4, 1, ALL, ALL))
    history = PartitionHistory("id", since_creation=True, states=states)
    metadata = ClusterMetadata(Path("log"), {PLACE: history}, {}, TOPICS, 0, 3)
    evidence = evidence_of_cluster(cluster(1, 4), cluster(2, 5), JoinedLog(metadata, ()))
    assert (evidence.coverage[PLACE].history, evidence.lacking) == (history, "")
    assert evidence.is_current
    assert evidence.replicas == {PLACE: ALL}
