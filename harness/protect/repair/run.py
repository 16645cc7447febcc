"""``harness repair``: from the verdict of an audit to the verdict of the next one."""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from harness.audit.live.compare import AuditRequest, audit_live
from harness.host.clock import RealClock
from harness.protect.guard.channel import KafkaChannel
from harness.protect.guard.cluster import LiveCluster
from harness.protect.repair.channel import REPAIR, ChannelHolds, ChannelJournal, Notes, RepairOwner
from harness.protect.repair.hanging import Aborted, abort_all
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.preflight import Limits, PreparedRepair, check_cluster, prepare
from harness.protect.repair.service import PATIENCE_S, RepairOutcome, Repairs
from harness.protect.repair.throttle import ChannelThrottle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.judge.outcome import Progress
    from harness.judge.verdict import Verdict
    from harness.kafka_api.address import Address
    from harness.protect.guard.ports import Channel
    from harness.protect.repair.plan import RepairPlan
    from harness.protect.repair.state import Partition, PartitionRepair
    from harness.spark.options import SparkOptions

AGREE, DIFFER, UNKNOWN, UNDECIDED, NOT_AUDITED = "agree", "differ", "unknown", "undecided", "not audited"
STATE: Final = {"clean": AGREE, "anomaly": DIFFER, "unknown": UNKNOWN}
"""The state of a partition by its verdict."""


@dataclass(frozen=True)
class RepairRequest:
    """What to repair. ``audit``: the run id of the audit that the plan is made from. Rates are of each broker."""

    bootstrap: Sequence[Address]
    plan: RepairPlan
    audit: str
    at_once: int = 4
    rate_bytes_s: int | None = None
    patience_s: float = PATIENCE_S
    spare: int | None = None


@dataclass(frozen=True)
class Look:
    """A plan and what of it can be done. ``begun``: repairs in the journal that are not finished."""

    prepared: PreparedRepair
    begun: Mapping[Partition, PartitionRepair]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What a repair did. ``after``: the verdict of the audit at the end; None where there was nothing to audit."""

    look: Look
    outcomes: tuple[RepairOutcome, ...]
    aborted: tuple[Aborted, ...]
    after: Verdict | None
    took_s: float
    notes: tuple[str, ...] = field(default_factory=tuple)

    def state_after(self, partition: Partition) -> str:
        """Return what the audit at the end says of a partition."""
        scenarios = () if self.after is None else self.after.scenarios
        verdicts = [one.verdict for one in scenarios if one.has(partition)]
        return STATE[verdicts[0]] if verdicts else NOT_AUDITED


def look(request: RepairRequest, cluster: LiveRepairCluster, channel: Channel) -> Look:
    """Return what can be done now. Changes nothing. Raises `HarnessError` and OSError."""
    plan = request.plan
    cluster.connect()
    notes = check_cluster(plan, cluster.cluster_id)
    begun = ChannelJournal(Notes(channel, RealClock(), REPAIR)).entries()
    answers = cluster.answers(sorted({*plan.partitions, *begun}))
    usable = {broker: cluster.usable_bytes(broker) for broker in sorted(answers.brokers)}
    limits = Limits(request.spare, request.at_once)
    prepared = prepare(plan, answers, usable, request.audit, limits=limits, begun=begun)
    under_way = {partition: entry for partition, entry in begun.items() if not entry.is_done}
    return Look(prepared, under_way, (*notes, *prepared.notes))


def apply(request: RepairRequest, progress: Progress, spark: SparkOptions) -> Result:
    """Repair, and audit again. Raises `UsageError` where another repair is under way, `HarnessError`, OSError."""
    clock = RealClock()
    progress.stage("ask the cluster")
    cluster = LiveRepairCluster(request.bootstrap)
    cluster.connect()
    check_cluster(request.plan, cluster.cluster_id)
    with closing(KafkaChannel(request.bootstrap, clock)) as channel:
        channel.ensure()
        owner = RepairOwner(Notes(channel, clock, f"{REPAIR} {secrets.token_hex(4)}"))
        owner.claim()
        try:
            looked = look(request, cluster, channel)
            aborted, outcomes, took_s = _work(request, looked, cluster, channel, owner, progress)
        finally:
            owner.leave()
    topics = sorted({topic for topic, _ in (*request.plan.partitions, *(one.partition for one in outcomes))})
    after = audit_live(AuditRequest(request.bootstrap, topics), progress, spark) if topics else None
    return Result(looked, tuple(outcomes), tuple(aborted), after, took_s)


def _work(  # noqa: PLR0917
    request: RepairRequest,
    looked: Look,
    cluster: LiveRepairCluster,
    channel: Channel,
    owner: RepairOwner,
    progress: Progress,
) -> tuple[list[Aborted], list[RepairOutcome], float]:
    """Abort and repair; return what came of both, and the seconds that the repairs took."""
    notes, clock = owner.notes, owner.notes.clock
    if request.plan.aborts:
        progress.stage(f"abort {len(request.plan.aborts)} transactions that hang")
    aborted = abort_all(request.plan.aborts, request.bootstrap, clock)
    began_s = clock.now_s()
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
        outcomes = repairs.run(looked.prepared.entries)
    return aborted, outcomes, clock.now_s() - began_s
