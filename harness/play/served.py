"""Runs that are judged only by the records that a leader serves a read_committed consumer (`checkers.served`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.clients.reader import Reading, read_committed
from harness.cluster.cluster import Cluster
from harness.kafka_api import TopicPartition
from harness.run_folder.history import History
from harness.schedules.scenario import Phase
from workloads.filler import Filler
from workloads.payload import Payload

if TYPE_CHECKING:
    from harness.play.run_plan import RunPlan

ROUNDS: Final = 8
"""Of the filler, between two polls: some systems never show a consumer the end of a partition that grows."""


def read_served(  # noqa: PLR0917
    plan: RunPlan,
    cluster: Cluster,
    history: History,
    leader: int,
    partitions: Sequence[TopicPartition],
    phase: Phase = Phase.AFTER,
) -> Reading:
    """Read partitions from their leader with a read_committed consumer; the history gets it. As `read_committed`."""
    return read_committed(
        partial(plan.system.consumer, cluster.runtime, leader),
        partitions,
        broker=leader,
        phase=phase,
        history=history,
        clock=cluster.clock,
        timeout_s=plan.timers.settle_s,
    )


def wait_compacted(
    plan: RunPlan, cluster: Cluster, history: History, payloads: Mapping[str, Payload], filler: Filler
) -> None:
    """Have the filler write until no superseded record of the payload is delivered. Raises `WaitTimeoutError`."""
    partitions, leader = [*plan.replicas], plan.placement.brokers[0]
    superseded = {tp: payload.superseded_offset(tp) for payload in payloads.values() for tp in payload.partitions}

    def is_removed() -> bool:
        rounds = filler.rounds + ROUNDS
        with filler.running(Phase.OUTAGE):
            cluster.wait(lambda: filler.rounds >= rounds, "the filler's records")
        delivered = read_served(plan, cluster, history, leader, partitions).delivered
        return not any(record["offset"] == superseded[tp] for tp in partitions for record in delivered[tp])

    cluster.wait(is_removed, "superseded records to be removed", plan.timers.window_s)
