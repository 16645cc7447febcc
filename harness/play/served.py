"""What a leader serves a read_committed consumer, and runs that are judged by that alone (`checkers.served`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.clients.reader import Reading, read_committed
from harness.cluster.cluster import Cluster
from harness.errors import WaitTimeoutError
from harness.kafka_api import TopicPartition
from harness.run_folder.history import History
from harness.schedules.operations import Operation, of_process
from harness.schedules.scenario import Phase, scenario_and_process
from workloads.filler import Filler
from workloads.payload import Payload

if TYPE_CHECKING:
    from harness.play.run_plan import RunPlan

ROUNDS: Final = 8
"""Of the filler, between two polls: some systems never show a consumer the end of a partition that grows."""


@dataclass(frozen=True)
class ServedReader:
    """Reads what the brokers of a run serve; ``history`` gets every poll."""

    plan: RunPlan
    cluster: Cluster
    history: History

    def read(self, leader: int, partitions: Sequence[TopicPartition], phase: Phase = Phase.AFTER) -> Reading:
        """Read partitions from their leader with a read_committed consumer. Raises as `read_committed`."""
        return read_committed(
            partial(self.plan.system.consumer, self.cluster.runtime, leader),
            partitions,
            broker=leader,
            phase=phase,
            history=self.history,
            clock=self.cluster.clock,
            timeout_s=self.plan.timers.settle_s,
        )


def create_topics(plan: RunPlan, cluster: Cluster) -> None:
    """Create the topics of the run, and wait until they exist."""
    if plan.target.supports.administration:
        cluster.admin.create_topics(plan.replicas, plan.topic_settings)
    else:
        for topic in cluster.topics:
            cluster.admin.create_topic(topic, plan.placement.partitions, plan.topic_settings)
    cluster.wait(lambda: bool(cluster.states()), "the topics to exist")


def play_served(
    reader: ServedReader,
    payloads: Mapping[str, Payload],
    filler: Filler,
    operations: Sequence[Operation],
    progress: Callable[[str], None],
) -> None:
    """Play a run without a fault, in which no replica is read.

    ``payloads``: by scenario. The filler writes until no superseded record of the payload is delivered, and the last
    poll is judged.
    """
    plan, cluster = reader.plan, reader.cluster
    partitions, leader = [*plan.replicas], plan.placement.brokers[0]
    progress("write")
    for operation in operations:
        scenario, process = scenario_and_process(operation.process)
        payloads[scenario].play(Phase.BEFORE, of_process(operation, process))
    superseded = {tp: payload.superseded_offset(tp) for payload in payloads.values() for tp in payload.partitions}

    def is_removed() -> bool:
        rounds = filler.rounds + ROUNDS
        with filler.running(Phase.OUTAGE):
            cluster.wait(lambda: filler.rounds >= rounds, "the filler's records")
        delivered = reader.read(leader, partitions).delivered
        return not any(record["offset"] == superseded[tp] for tp in partitions for record in delivered[tp])

    progress("clean")
    try:
        cluster.wait(is_removed, "superseded records to be removed", plan.timers.window_s)
    except WaitTimeoutError as error:
        progress(f"compaction was not seen: {error}")
    progress("observe")
    if plan.target.supports.administration:
        cluster.wait(lambda: not cluster.admin.ending_transactions(), "the last transaction markers")
    reader.read(leader, partitions)
