"""The checks that take seconds: frozen replicas, and replicas that are exposed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.audit.live.broker_reports import ReplicaStatuses
from harness.audit.live.cluster import AuditedCluster, describe
from harness.audit.live.exposure import Exposure, exposure
from harness.audit.live.prefilter import Prefiltered, prefilter_readable
from harness.errors import HarnessError
from harness.judge.finding import Place
from harness.kafka_api.connection import ClusterClient


@dataclass(frozen=True)
class WatchChecks:
    """The result of the checks, which ended at ``time_ms``.

    ``readable``: ``cluster`` with the topics that this user may read; ``unreadable``: a sentence on each other topic.
    ``suspected_since_ms``: when the checks first suspected a partition that they suspect still.
    """

    time_ms: int
    took_s: float
    cluster: AuditedCluster
    readable: AuditedCluster
    answers: Prefiltered
    exposure: Exposure
    unreadable: tuple[str, ...] = ()
    suspected_since_ms: Mapping[Place, int] = field(default_factory=dict)


def check(client: ClusterClient, topics: Sequence[str], before: WatchChecks | None = None) -> WatchChecks:
    """Ask the brokers. ``before``: the previous checks; after them, topics that do not exist are left out.

    Raises `UsageError` as `describe`, and `HarnessError` for another cluster than before.
    """
    started_s = client.clock.now_s()
    cluster = describe(client, topics, may_miss=before is not None)
    cluster_id = cluster.state.cluster_id
    if before is not None and cluster_id != before.cluster.state.cluster_id:
        raise HarnessError(f"the brokers are of another cluster now: {cluster_id}")
    readable, answers, unreadable = prefilter_readable(cluster)
    exposed = exposure(readable, answers)
    now_ms, suspected_before = client.clock.time_ms(), before.suspected_since_ms if before else {}
    suspected = {(suspicion.topic, suspicion.partition) for suspicion in answers.suspicions}
    return WatchChecks(
        now_ms,
        client.clock.now_s() - started_s,
        cluster,
        readable,
        answers,
        exposed,
        unreadable,
        {place: suspected_before.get(place, now_ms) for place in suspected},
    )


def open_transactions(statuses: ReplicaStatuses) -> dict[str, int]:
    """Return the number of transactions by topic that are open on any replica."""
    transactions = {
        (topic, partition, transaction.producer_id, transaction.first_offset)
        for (_, (topic, partition)), status in statuses.replicas.items()
        for transaction in status.open or ()
    }
    return Counter(topic for topic, *_ in transactions)


def lso_spread(statuses: ReplicaStatuses) -> dict[str, int]:
    """Return the greatest difference by topic of the last stable offsets of one partition's replicas."""
    spreads: dict[str, int] = {}
    for (topic, _), by_broker in statuses.by_partition.items():
        offsets = [status.last_stable_offset for status in by_broker.values()]
        spreads[topic] = max(spreads.get(topic, 0), max(offsets) - min(offsets))
    return spreads
