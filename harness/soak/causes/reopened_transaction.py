"""A transaction that a replica takes for open although it has ended, and its own log has no open transaction.

A broker that truncates its log rebuilds the state of producers: it loads the last producer snapshot, and does not
replay the records after it if it knew no producer before (``UnifiedLog.rebuildProducerState``). A snapshot from between
a transaction's records and its marker then opens the transaction again, for good: the last stable offset of that
replica is stuck. A broker that was killed does the same if its cleaner has removed the marker since the snapshot that
it loads. See ``docs/explanation/track-record.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.judge.soak_verdict import BROKER, RoundFinding
from harness.soak.causes.cause import Cause, Diagnosis, Symptom
from harness.soak.evidence.replica_log import OPEN, read_replica, served_replicas

if TYPE_CHECKING:
    from harness.judge.verdict import Doubt
    from harness.kafka_api.messages import TopicPartition
    from harness.run_folder.store import RunFolder


@dataclass(frozen=True)
class Reopened:
    """A transaction that a broker lists as open from ``first_offset`` on, and that its log has not open.

    ``marker``: the offset of the marker, if the log has one.
    """

    broker: int
    partition: TopicPartition
    producer_id: int
    first_offset: int
    marker: int | None

    def explains(self, doubt: Doubt) -> bool:
        """Return whether the broker's answers contradict its log because of this transaction."""
        says = f"the broker says that producer {self.producer_id} has an open transaction"
        return (doubt.broker, doubt.place) == (self.broker, self.partition) and doubt.reason.startswith(says)

    @property
    def symptom(self) -> Symptom:
        """The symptom for causes."""
        return Symptom(BROKER, self.broker, self.partition, offset=self.first_offset)

    def finding(self, diagnosis: Diagnosis) -> RoundFinding:
        """Return the finding."""
        topic, partition = self.partition
        end = "neither records nor a marker of it" if self.marker is None else f"its marker at offset {self.marker}"
        words = f"; {diagnosis.words}" if diagnosis.words else ""
        return RoundFinding(
            anomaly=diagnosis.name,
            broker=self.broker,
            topic=topic,
            partition=partition,
            count=1,
            found_by=(BROKER,),
            explanation=(
                f"the broker takes the transaction of producer {self.producer_id} for open from offset"
                f" {self.first_offset} on, and its log has {end}: its last stable offset is stuck{words}"
            ),
            witness={"producer_id": self.producer_id, "offset": self.first_offset, "marker": self.marker},
        )


def reopened_of(folder: RunFolder) -> list[Reopened]:
    """Return the transactions that are open again in a round. Raises `UsageError` for a damaged folder."""
    reopened = []
    for (broker, tp), path, state in served_replicas(folder):
        if not state.get("open"):
            continue
        log = read_replica(path, state["log_start"])
        by_log = {record.producer_id for record in log.records if record.belief == OPEN}
        by_log |= {producer_id for _, producer_id in log.open_empty}
        for producer_id, _epoch, first in state["open"]:
            if producer_id not in by_log:
                markers = [e.marker for e in log.ended if e.producer_id == producer_id and e.marker > first]
                reopened.append(Reopened(broker, tp, producer_id, first, min(markers, default=None)))
    return reopened


CAUSE = Cause(
    "reopened-transaction",
    "a replica takes a transaction for open that its own log has ended",
    lambda _evidence, symptoms: {symptom: "" for symptom in symptoms if symptom.judge == BROKER},
)
