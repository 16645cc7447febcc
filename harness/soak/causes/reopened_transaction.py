"""A transaction that a replica takes for open although it has ended, and its own log has no open transaction.

A broker that truncates its log rebuilds the state of producers: it loads the last producer snapshot, and does not
replay the records after it if it knew no producer before (``UnifiedLog.rebuildProducerState``). A snapshot from between
a transaction's records and its marker then opens the transaction again, for good: the last stable offset of that
replica is stuck. A broker that was killed does the same if its cleaner has removed the marker since the snapshot that
it loads. See ``docs/explanation/track-record.md``.

The marker of the producer's next transaction ends the open one, too. If it is an ABORT, the replica takes everything
from the first offset on for one aborted transaction; but its cleaner, which ends the transaction at the first marker in
between (``CleanedTransactionMetadata.onControlBatchRead``), carries out the records of the next one.
"""

from collections import defaultdict
from collections.abc import Iterator

from harness.judge.verdict import BROKER, Doubt
from harness.kafka_api import TopicPartition
from harness.run_folder.store import RunFolder
from harness.soak.causes.cause import Cause, Explained, RoundEvidence, Symptom, Symptoms, with_key
from harness.soak.evidence.client_log import ABORTED
from harness.soak.evidence.replica_log import OPEN, read_replica, served_replicas
from harness.soak.judge.truth import Truth


def reopened(broker: int, tp: TopicPartition, producer_id: int, offset: int, marker: int | None) -> Symptom:
    """Return the symptom of a transaction that a broker alone has open from ``offset`` on. ``marker``: its end."""
    end = "neither records nor a marker of it" if marker is None else f"its marker at offset {marker}"
    return Symptom(
        BROKER,
        broker,
        tp,
        offset=offset,
        explanation=(
            f"the broker takes the transaction of producer {producer_id} for open from offset {offset} on, and its log"
            f" has {end}: its last stable offset is stuck"
        ),
        witness={"producer_id": producer_id, "offset": offset, "marker": marker},
    )


def explains(symptom: Symptom, doubt: Doubt) -> bool:
    """Return whether the broker's answers contradict its log because of this transaction."""
    words = f"the broker says that producer {symptom.witness['producer_id']} has an open transaction"
    return (doubt.broker, doubt.place) == (symptom.broker, symptom.partition) and doubt.reason.startswith(words)


def reopened_of(folder: RunFolder) -> list[Symptom]:
    """Return the transactions that are open again in a round. Raises `UsageError` for a damaged folder."""
    symptoms = []
    for (broker, tp), path, state in served_replicas(folder):
        if not state.get("open"):
            continue
        log = read_replica(path, state["log_start"])
        by_log = {record.producer_id for record in log.records if record.belief == OPEN}
        by_log |= {producer_id for _, producer_id in log.open_empty}
        for producer_id, _epoch, first in state["open"]:
            if producer_id not in by_log:
                markers = [e.marker for e in log.ended if e.producer_id == producer_id and e.marker > first]
                symptoms.append(reopened(broker, tp, producer_id, first, min(markers, default=None)))
    return symptoms


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return open transactions, and keys whose aborted record the replica has carried out."""
    explained: dict[Symptom, object] = {symptom: "" for symptom in symptoms if symptom.judge == BROKER}
    for (broker, tp), offsets in evidence.open_again.items():
        here = [symptom for symptom in symptoms if symptom.broker == broker]
        for offset in offsets:
            words = (
                f"the broker had the transaction of offset {offset} open again; the ABORT of the producer's next"
                " transaction ended both, and the cleaner carried the next one out"
            )
            explained |= with_key(here, {tp: dict.fromkeys(_carried_out(evidence.truth, tp, offset), words)})
    return explained


def _carried_out(truth: Truth, tp: TopicPartition, offset: int) -> Iterator[str]:
    """Yield the keys of a client's next transaction in a partition after the one at an offset, if it was aborted."""
    opened = truth.at.get((tp, offset))
    if opened is None or opened.transaction is None:
        return
    client, later = truth.transactions[opened.transaction].transactional_id, defaultdict[int, set[str]](set)
    for (place, _), write in truth.at.items():
        number = write.transaction or 0
        if place == tp and number > opened.transaction and truth.transactions[number].transactional_id == client:
            later[number].add(write.key)
    if later and truth.transactions[min(later)].outcome == ABORTED:
        yield from later[min(later)]


CAUSE = Cause("reopened-transaction", "a replica takes a transaction for open that its own log has ended", explain)
