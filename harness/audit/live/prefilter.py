"""Suspicious replicas, found in seconds and without reading data: compares the open transactions of replicas.

Where one replica has a transaction open, and another replica does not although its last stable offset is past the
transaction, the transaction was ended, and its marker is below the high watermark of the other replica. A replica that
has reached that high watermark has appended the marker too, if the marker was still there to be replicated. A follower
may legally lag: it is asked again until it has reached the high watermark, or is reported as behind.

A transaction that no replica has ended is hanging where its coordinator has completed it or does not know it. While the
coordinator is ending the transaction (Prepare…), the transaction is not suspicious.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from harness.audit.live import broker_reports
from harness.audit.live.broker_reports import ReplicaStatus, ReplicaStatuses, TransactionDescriptions, replica_statuses
from harness.audit.live.cluster import AuditedCluster
from harness.broker_files.copies.selection import listed
from harness.broker_files.internal_topics.decode import FINISHED, ONGOING
from harness.errors import WaitTimeoutError
from harness.escape import escape
from harness.judge.finding import brokers_text, name_of
from harness.judge.verdict import UnknownReason
from harness.kafka_api import TopicPartition
from harness.kafka_api.metadata import ClusterState
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription

UNKNOWN_MS = 86_400_000
"""A transaction of an unknown producer hangs if its last record is older. Its transactional id may be one that this
user may not describe, and no ``transaction.max.timeout.ms`` is as long."""
BOUND_S = 10.0
"""For a follower to catch up; `replica.lag.time.max.ms` is 30 s, yet an in-sync follower is rarely a second behind."""

STUCK_LSO, HANGING_TRANSACTION = "stuck-lso", "hanging-transaction"


@dataclass(frozen=True)
class Suspicion:
    """A replica that an audit should read first, and the reason.

    ``transaction``: the open transaction on the replica; None where its broker does not list open transactions.
    ``decided_on``: replicas that are past the transaction. ``coordinator``: None where no coordinator knows it.
    """

    anomaly: str
    broker: int
    topic: str
    partition: int
    offset: int
    transaction: OpenTransaction | None
    decided_on: tuple[int, ...]
    coordinator: TransactionDescription | None
    explanation: str


@dataclass(frozen=True)
class Prefiltered:
    """The last status of every replica, the suspicions, and notes on missing answers, each in a sentence.

    ``behind``: suspicions that could not be checked as the replica did not catch up in time; they are among ``notes``,
    too.
    """

    statuses: ReplicaStatuses
    coordinator_answers: TransactionDescriptions
    suspicions: tuple[Suspicion, ...]
    notes: tuple[str, ...]
    behind: tuple[str, ...] = ()


PendingSuspicion: TypeAlias = tuple[Suspicion, int]
"""A suspicion to confirm once the replica has reached this high watermark and still has the transaction open."""


def _outcome(pending: PendingSuspicion, statuses: ReplicaStatuses, *, is_late: bool) -> bool | None:
    """Return whether these statuses confirm the suspicion; None while they show neither.

    ``is_late``: the time for catching up is over, so a last stable offset that has not moved confirms it.
    """
    suspicion, high_watermark = pending
    status = statuses.replicas.get((suspicion.broker, (suspicion.topic, suspicion.partition)))
    if status is None:
        return None
    transaction, is_behind = suspicion.transaction, status.last_stable_offset <= suspicion.offset
    if not (is_behind if transaction is None else _has_open(status, transaction)):
        return False
    return True if status.high_watermark >= high_watermark and (transaction is not None or is_late) else None


def prefilter(cluster: AuditedCluster) -> Prefiltered:
    """Query replicas and coordinators, then replicas again until every suspicion is decided, or time is up.

    Raises `UsageError` where this user may not read a topic.
    """
    before = replica_statuses(cluster)
    coordinator_answers = broker_reports.ask_coordinators(cluster, before.open_producers)
    latest = replica_statuses(cluster)
    pending = [
        *by_open_transactions(cluster.state, before, latest, coordinator_answers, cluster.client.clock.time_ms()),
        *by_last_stable_offsets(latest),
    ]
    confirmed: list[Suspicion] = []

    def settle(*, is_late: bool = False) -> bool:
        nonlocal latest, pending
        outcomes = [(candidate, _outcome(candidate, latest, is_late=is_late)) for candidate in pending]
        confirmed.extend(suspicion for (suspicion, _), outcome in outcomes if outcome)
        pending = [candidate for candidate, outcome in outcomes if outcome is None]
        if pending and not is_late:
            latest = replica_statuses(cluster)
        return not pending

    try:
        cluster.client.clock.wait_until(settle, BOUND_S, "replicas to catch up")
    except WaitTimeoutError:
        settle(is_late=True)
    confirmed.sort(key=lambda suspicion: (suspicion.topic, suspicion.partition, suspicion.offset, suspicion.broker))
    behind = tuple(f"{late.explanation}; but the replica is too far behind to tell" for late, _ in pending)
    notes = (*_unseen_notes(latest), *coordinator_answers.gaps, *behind)
    return Prefiltered(latest, coordinator_answers, tuple(confirmed), notes, behind)


def prefilter_readable(cluster: AuditedCluster) -> tuple[AuditedCluster, Prefiltered, tuple[str, ...]]:
    """Return the cluster with the topics that this user may read, their answers, and a sentence on each other topic."""
    unreadable: list[str] = []
    while True:
        try:
            return cluster, prefilter(cluster), tuple(unreadable)
        except broker_reports.UnreadableTopicError as error:
            unreadable.append(str(error))
            cluster = cluster.only({place for place in cluster.state.partitions if place[0] != error.topic})


def by_open_transactions(
    cluster: ClusterState,
    before: ReplicaStatuses,
    statuses: ReplicaStatuses,
    coordinator_answers: TransactionDescriptions,
    now_ms: int,
) -> Iterator[PendingSuspicion]:
    """Suspect each replica that has a transaction open which another replica is past.

    Also each open transaction that no replica is past, and that its coordinator has completed or does not know: only
    transactions that were open ``before`` the coordinators were asked. A coordinator completes a transaction once its
    markers are below the leader's high watermark.
    """
    open_before = {(broker, tp, _identity(transaction)) for broker, tp, transaction in all_open(before)}
    for broker, tp, transaction in all_open(statuses):
        replicas = statuses.by_partition[tp]
        past = {other: status.high_watermark for other, status in replicas.items() if _is_past(status, transaction)}
        described = coordinator_answers.by_producer.get(transaction.producer_id)
        leader = cluster.partitions[tp].leader
        anomaly, on_leader = STUCK_LSO, ""
        if past:
            reason, high_watermark = f"it has ended on {brokers_text(past)}", min(past.values())
            if described is not None:
                reason += f"; the coordinator of {escape(described.transactional_id)} says {described.state}"
        else:
            why_ended = _why_ended(coordinator_answers, tp, transaction, now_ms)
            if (broker, tp, _identity(transaction)) not in open_before or why_ended is None or leader not in replicas:
                continue
            # A replica that does not answer may have the marker: then the others are stuck.
            if _has_open(replicas[leader], transaction) and replicas.keys() >= {*cluster.partitions[tp].replicas}:
                anomaly, on_leader = HANGING_TRANSACTION, ", as its leader does"
            reason, high_watermark = why_ended, replicas[leader].high_watermark
        explanation = (
            f"broker {broker} still has the transaction of producer {transaction.producer_id} open from offset"
            f" {transaction.first_offset} of {name_of(tp)}{on_leader}, and {reason}"
        )
        place = anomaly, broker, *tp, transaction.first_offset
        yield Suspicion(*place, transaction, tuple(past), described, explanation), high_watermark


def by_last_stable_offsets(statuses: ReplicaStatuses) -> Iterator[PendingSuspicion]:
    """Suspect replicas whose last stable offset stays behind another's, where brokers do not list open transactions.

    Every follower is behind for a moment: only a replica that stays behind is suspicious.
    """
    for (broker, tp), status in statuses.replicas.items():
        ahead = {
            b: other.high_watermark
            for b, other in statuses.by_partition[tp].items()
            if other.log_start <= status.last_stable_offset < other.last_stable_offset
        }
        if status.open is None and ahead:
            offset = status.last_stable_offset
            explanation = (
                f"broker {broker} does not list open transactions, and its last stable offset of {name_of(tp)} stays"
                f" at {offset}, which {brokers_text(ahead)} passed"
            )
            suspicion = Suspicion(STUCK_LSO, broker, *tp, offset, None, tuple(ahead), None, explanation)
            yield suspicion, min(ahead.values())


def _is_past(status: ReplicaStatus, transaction: OpenTransaction) -> bool:
    """Return whether this replica has had the transaction's first offset and does not have the transaction open."""
    within = status.log_start <= transaction.first_offset < status.last_stable_offset
    return within and status.open is not None and not _has_open(status, transaction)


def _has_open(status: ReplicaStatus, transaction: OpenTransaction) -> bool:
    return _identity(transaction) in map(_identity, status.open or ())


def _identity(transaction: OpenTransaction) -> tuple[int, int]:
    return transaction.producer_id, transaction.first_offset


def _why_ended(
    coordinator_answers: TransactionDescriptions, partition: TopicPartition, transaction: OpenTransaction, now_ms: int
) -> str | None:
    """Return why the transaction has ended by its coordinator; None where it may be ongoing."""
    described = coordinator_answers.by_producer.get(transaction.producer_id)
    if described is None:
        unknown = "no coordinator knows that producer, among the transactional ids that this user may describe"
        is_old = 0 <= transaction.last_time_ms < now_ms - UNKNOWN_MS
        return unknown if is_old and not coordinator_answers.gaps else None
    coordinator = f"the coordinator of {escape(described.transactional_id)} (broker {described.coordinator})"
    if described.state in FINISHED:
        return f"{coordinator} says {described.state}"
    if described.state != ONGOING:
        return None
    if described.producer_epoch > transaction.producer_epoch:
        return f"{coordinator} is at epoch {described.producer_epoch} already, not {transaction.producer_epoch}"
    return None if partition in described.partitions else f"{coordinator} has a transaction without that partition"


def all_open(statuses: ReplicaStatuses) -> list[tuple[int, TopicPartition, OpenTransaction]]:
    """Return the open transactions of every replica, with its broker and partition."""
    return [(broker, tp, opened) for (broker, tp), status in statuses.replicas.items() for opened in status.open or ()]


def open_without_records(statuses: ReplicaStatuses) -> dict[TopicPartition, tuple[UnknownReason, ...]]:
    """Return the partitions where a transaction that began before the log start offset is open on some replicas only.

    The last stable offset is the log start offset there (`UnifiedLog.maybeIncrementFirstUnstableOffset`).
    """
    transactions = all_open(statuses)
    opened = {(broker, tp, transaction.producer_id) for broker, tp, transaction in transactions}
    return {
        tp: (UnknownReason("unsure", f"broker {broker}, unlike others, has a transaction open without records"),)
        for broker, tp, transaction in transactions
        if transaction.first_offset < statuses.replicas[broker, tp].log_start
        for other, status in statuses.by_partition[tp].items()
        if status.open is not None and (other, tp, transaction.producer_id) not in opened
    }


def _unseen_notes(statuses: ReplicaStatuses) -> Iterator[str]:
    yield from (f"broker {broker} does not answer: {why}" for broker, why in sorted(statuses.silent.items()))
    unseen: dict[tuple[int, str], list[str]] = {}
    for (broker, tp), why in sorted(statuses.unseen.items()):
        unseen.setdefault((broker, why), []).append(name_of(tp))
    yield from (f"broker {broker} does not report {listed(names)}: {why}" for (broker, why), names in unseen.items())
    without_list = sorted({broker for (broker, _), status in statuses.replicas.items() if status.open is None})
    if without_list:
        yield (
            f"{brokers_text(without_list)} did not list the open transactions of some replicas (on Redpanda only"
            " leaders do): a stuck replica there shows only by its last stable offset, or when it is read"
        )
