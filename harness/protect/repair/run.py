"""``harness repair``: from the verdict of an audit to the verdict of the next audit."""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.audit.live.compare import AuditRequest, audit_live
from harness.host.clock import RealClock
from harness.protect.guard.channel import KafkaChannel
from harness.protect.guard.cluster import LiveCluster
from harness.protect.repair.channel import REPAIR, ChannelHolds, ChannelJournal, ChannelThrottle, Notes, RepairOwner
from harness.protect.repair.hanging import Aborted, abort_all
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.preflight import PreparedRepair, check_cluster, prepare
from harness.protect.repair.service import PATIENCE_S, RepairOutcome, Repairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.judge.progress import Progress
    from harness.judge.verdict import Verdict
    from harness.kafka_api.address import Address
    from harness.kafka_api.messages import TopicPartition
    from harness.protect.guard.topics import Channel
    from harness.protect.repair.plan import RepairPlan
    from harness.protect.repair.steps import PartitionRepair
    from harness.spark.options import SparkOptions

AGREE, DIFFER, UNKNOWN, UNDECIDED, NOT_AUDITED = "agree", "differ", "unknown", "undecided", "not audited"
STATE: Final = {"clean": AGREE, "anomaly": DIFFER, "unknown": UNKNOWN}
"""The state of a partition by its verdict."""


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
class Look:
    """A plan against the cluster. ``begun``: repairs in the journal that have not ended."""

    prepared: PreparedRepair
    begun: Mapping[TopicPartition, PartitionRepair]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RepairResult:
    """The result of a repair. ``after``: the verdict of the audit at the end; None where there was no audit."""

    look: Look
    outcomes: tuple[RepairOutcome, ...]
    aborted: tuple[Aborted, ...]
    after: Verdict | None
    took_s: float

    def state_after(self, partition: TopicPartition) -> str:
        """Return the state of a partition by the audit at the end."""
        scenarios = () if self.after is None else self.after.scenarios
        return next((STATE[scenario.verdict] for scenario in scenarios if scenario.has(partition)), NOT_AUDITED)


def look(request: RepairRequest, cluster: LiveRepairCluster, channel: Channel) -> Look:
    """Compare the plan with the cluster. Changes nothing. Raises `HarnessError` and OSError."""
    plan = request.plan
    cluster.connect()
    notes = check_cluster(plan, cluster.cluster_id)
    begun = ChannelJournal(Notes(channel, RealClock(), REPAIR)).entries()
    answers = cluster.answers(sorted({*plan.partitions, *begun}))
    usable = {broker: cluster.usable_bytes(broker) for broker in sorted(answers.brokers)}
    prepared = prepare(plan, answers, usable, request.audit, begun=begun, spare=request.spare, at_once=request.at_once)
    under_way = {partition: entry for partition, entry in begun.items() if not entry.is_done}
    return Look(prepared, under_way, (*notes, *prepared.notes))


def apply(request: RepairRequest, progress: Progress, spark: SparkOptions) -> RepairResult:
    """Repair, and audit again. Raises `UsageError` where another repair is under way, `HarnessError`, OSError."""
    clock, plan = RealClock(), request.plan
    progress.stage("ask the cluster")
    cluster = LiveRepairCluster(request.bootstrap)
    cluster.connect()
    check_cluster(plan, cluster.cluster_id)
    with closing(KafkaChannel(request.bootstrap, clock)) as channel:
        channel.ensure()
        owner = RepairOwner(Notes(channel, clock, f"{REPAIR} {secrets.token_hex(4)}"))
        owner.claim()
        try:
            looked = look(request, cluster, channel)
            if plan.aborts:
                progress.stage(f"abort {len(plan.aborts)} transactions that hang")
            aborted = abort_all(plan.aborts, request.bootstrap, clock)
            began_s = clock.now_s()
            outcomes = _repair(request, looked, cluster, channel, owner, progress)
            took_s = clock.now_s() - began_s
        finally:
            owner.leave()
    repaired = [outcome.partition for outcome in outcomes]
    topics = sorted({topic for topic, _ in (*plan.partitions, *repaired)})
    after = audit_live(AuditRequest(request.bootstrap, topics), progress, spark) if topics else None
    return RepairResult(looked, tuple(outcomes), tuple(aborted), after, took_s)


def _repair(  # noqa: PLR0917
    request: RepairRequest,
    looked: Look,
    cluster: LiveRepairCluster,
    channel: Channel,
    owner: RepairOwner,
    progress: Progress,
) -> list[RepairOutcome]:
    notes, clock = owner.notes, owner.notes.clock
    count = len(looked.prepared.entries) + len(looked.begun)
    progress.stage(f"repair {count} partitions, {request.at_once} at once")
    with closing(LiveCluster(request.bootstrap, clock)) as guard_cluster:
        repairs = Repairs(
            cluster,
            ChannelJournal(notes),
            ChannelHolds(channel, guard_cluster, clock, notes.writer),
            ChannelThrottle(notes, cluster, request.rate_bytes_s),
            clock,
            at_once=request.at_once,
            patience_s=request.patience_s,
            on_step=progress.stage,
            check_owner=owner.check,
        )
        return repairs.run(looked.prepared.entries)
