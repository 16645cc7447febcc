"""``harness repair``: from the verdict of an audit to the verdict of the next audit.

Transactions that hang are aborted as ``kafka-transactions.sh abort`` does (KIP-664): only if the transaction is open on
every replica, and if its coordinator has ended it or does not know it; brokers and coordinators are asked again just
before. A client may still commit any other open transaction.
"""

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from checkers.finding import HANGING_TRANSACTION
from harness.audit.live.cluster import client_of, describe
from harness.audit.live.compare import audit_live
from harness.audit.live.prefilter import all_open, prefilter
from harness.audit.live.request import AuditRequest
from harness.errors import HarnessError, raised_as
from harness.host.clock import Clock, RealClock
from harness.host.java import find_java
from harness.judge.finding import name_of
from harness.judge.progress import Progress
from harness.judge.verdict import ScenarioVerdict, Verdict
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ONCE
from harness.kafka_api.transactions import abort_transaction
from harness.protect.guard.channel import KafkaChannel
from harness.protect.guard.cluster import LiveCluster
from harness.protect.repair.channel import REPAIR, ChannelHolds, ChannelThrottle, RepairJournal
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.plan import Abort, PreparedRepair, RepairPlan, check_cluster, prepare
from harness.protect.repair.service import PATIENCE_S, RepairOutcome, Repairs
from harness.spark.options import SparkOptions

RESUME: Final = "run the same command again to continue; until then compaction may stay paused (`harness guard status`)"


@dataclass(frozen=True)
class RepairRequest:
    """A user's request. ``audit``: the run id of the audit of the plan. Rates are of each broker."""

    bootstrap: Sequence[Address]
    plan: RepairPlan
    audit: str
    at_once: int = 4
    rate_bytes_s: int | None = None
    patience_s: float = PATIENCE_S
    spare: int | None = None


@dataclass(frozen=True)
class Aborted:
    """``why``: the reason why the transaction was not aborted; None where it was, or where it has ended already."""

    abort: Abort
    why: str | None


@dataclass(frozen=True)
class RepairResult:
    """The result of a repair. ``after``: the verdict of the audit at the end; None where there was no audit."""

    prepared: PreparedRepair
    outcomes: tuple[RepairOutcome, ...]
    aborted: tuple[Aborted, ...]
    after: Verdict | None
    took_s: float

    @property
    def scenarios(self) -> Sequence[ScenarioVerdict]:
        """The audited partitions at the end."""
        return () if self.after is None else self.after.scenarios


def look(request: RepairRequest, cluster: LiveRepairCluster, channel: KafkaChannel) -> PreparedRepair:
    """Compare the plan with the cluster. Changes nothing. Raises `HarnessError`."""
    plan = request.plan
    notes = check_cluster(plan, cluster.connect())
    begun = RepairJournal(channel).entries()
    answers = cluster.answers(sorted({*plan.partitions, *begun}))
    prepared = prepare(plan, answers, request.audit, begun=begun, spare=request.spare, at_once=request.at_once)
    return replace(prepared, notes=(*notes, *prepared.notes))


def apply(request: RepairRequest, progress: Progress, spark: SparkOptions) -> RepairResult:
    """Repair, and audit again. Raises `UsageError` before anything is repaired, and `HarnessError`."""
    clock, plan = RealClock(), request.plan
    progress.stage("ask the cluster")
    cluster = LiveRepairCluster(request.bootstrap)
    check_cluster(plan, cluster.connect())
    find_java()  # for the audit at the end
    with closing(KafkaChannel(request.bootstrap, clock, writer=f"{REPAIR} {secrets.token_hex(4)}")) as channel:
        channel.ensure()
        journal = RepairJournal(channel)
        journal.claim()
        try:
            prepared = look(request, cluster, channel)
            for note in prepared.notes:
                progress.stage(f"note: {note}")
            if plan.aborts:
                progress.stage(f"abort {len(plan.aborts)} transactions that hang")
            aborted = abort_all(plan.aborts, request.bootstrap, clock)
            count = len(prepared.entries) + len(prepared.resumed)
            progress.stage(f"repair {count} partition{'' if count == 1 else 's'}, {request.at_once} at once")
            began_s = clock.now_s()
            with closing(LiveCluster(request.bootstrap, clock)) as guard_cluster:
                repairs = Repairs(
                    cluster,
                    journal,
                    ChannelHolds(journal, guard_cluster),
                    ChannelThrottle(journal, cluster, request.rate_bytes_s),
                    clock,
                    at_once=request.at_once,
                    patience_s=request.patience_s,
                    on_step=progress.stage,
                    check_owner=journal.check,
                )
                with raised_as(HarnessError, f"the repair is not complete ({RESUME})", HarnessError, OSError):
                    outcomes = repairs.run(prepared.entries)
            took_s = clock.now_s() - began_s
        finally:
            journal.leave()
    repaired = [outcome.partition for outcome in outcomes]
    topics = sorted({topic for topic, _ in (*plan.partitions, *repaired)})
    after = audit_again(request.bootstrap, topics, progress, spark)
    return RepairResult(prepared, tuple(outcomes), tuple(aborted), after, took_s)


def audit_again(
    bootstrap: Sequence[Address], topics: Sequence[str], progress: Progress, spark: SparkOptions
) -> Verdict | None:
    """Audit the topics that still exist; return None where there is none. Raises `HarnessError`."""
    with raised_as(HarnessError, "the repair has ended, and the audit after it failed", HarnessError, OSError):
        existing = describe(client_of(bootstrap), topics, may_miss=True).state.topics if topics else ()
        return audit_live(AuditRequest(bootstrap, sorted(existing)), progress, spark) if existing else None


def abort_all(aborts: Sequence[Abort], bootstrap: Sequence[Address], clock: Clock) -> list[Aborted]:
    """Abort the transactions that still hang, except those that may have to be committed. Raises `UsageError`."""
    if not aborts:
        return []
    topics = sorted({abort.partition[0] for abort in aborts})
    cluster = describe(client_of(bootstrap, clock), topics, may_miss=True)
    prefiltered, aborted = prefilter(cluster), []
    still_open = {(tp, opened.producer_id, opened.first_offset) for _, tp, opened in all_open(prefiltered.statuses)}
    hanging = {
        ((suspect.topic, suspect.partition), suspect.transaction.producer_id, suspect.offset): suspect.transaction
        for suspect in prefiltered.suspicions
        if suspect.anomaly == HANGING_TRANSACTION and suspect.transaction is not None
    }
    for abort in aborts:
        if abort.caution.may_be_committed:
            aborted.append(Aborted(abort, abort.caution.text))
            continue
        transaction = hanging.get(place := (abort.partition, abort.producer_id, abort.offset))
        state, why = cluster.state.partitions.get(abort.partition), f"{name_of(abort.partition)} has no leader"
        leader = -1 if state is None else state.leader
        if transaction is None:
            why = "it is open, and brokers do not show now that it hangs" if place in still_open else ""
        elif leader in cluster.state.brokers:
            try:
                cluster.client.ask(leader, abort_transaction(abort.partition, transaction), ONCE)
                why = ""
            except (HarnessError, OSError) as error:
                why = str(error)
        aborted.append(Aborted(abort, why or None))
    return aborted
