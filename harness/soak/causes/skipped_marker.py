"""A marker that a transaction coordinator skipped: the transaction stays open, until another marker ends it instead.

A coordinator that finds no leader for a partition treats it as deleted, and sends it no marker
(``TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue``): on 4.3 and later also if the partition is without a
leader for a moment. See ``docs/explanation/track-record.md``. The transaction stays open there, on every replica, until
the next marker of its producer ends it. An aborted transaction is committed by a later COMMIT, or the other way round.

Schema of ``skipped-markers.jsonl`` of a round, one line of a broker's log a line:

    broker              int   of the coordinator
    partitions          list of [topic, partition]: treated as deleted
    transactional_id    str
"""

import re
from collections import defaultdict
from typing import Any, Final

from harness.judge.verdict import BROKER
from harness.kafka_api import TopicPartition
from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import ANOMALIES, Cause, RoundEvidence, Symptom, Symptoms, with_key, wrong_groups
from harness.soak.evidence.client_log import ABORTED
from harness.soak.judge.truth import STUCK

_OF_TRANSACTIONS: Final = ANOMALIES - {str(Anomaly.TOMBSTONE_DIVERGENCE)}
"""Anomalies of groups' offsets in a transaction without its own marker."""

_LINE: Final = re.compile(
    rb"Couldn't find leader endpoint for partitions \w+\((?P<partitions>[^)]*)\) while trying to send transaction"
    rb" markers for (?P<transactional_id>.+), these partitions are likely deleted already"
)
_PARTITION: Final = re.compile(r"([\w.-]+)-(\d+)")


def parse_line(line: bytes, broker: int) -> dict[str, Any] | None:
    """Return the markers that the coordinator skipped by a line of its log; None for any other line."""
    match = _LINE.search(line)
    if match is None:
        return None
    partitions = [(topic, int(number)) for topic, number in _PARTITION.findall(match["partitions"].decode())]
    transactional_id = match["transactional_id"].decode(errors="replace")
    return {"broker": broker, "partitions": partitions, "transactional_id": transactional_id}


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> dict[Symptom, object]:
    """Return symptoms of transactions whose own marker no replica has: open, or ended by another marker."""
    truth = evidence.truth
    markers = [
        ((topic, number), line["transactional_id"]) for line in evidence.skipped for topic, number in line["partitions"]
    ]
    places = set(markers)

    def skipped(tp: TopicPartition, transaction: int | None, marker: int | None = None) -> str:
        known = truth.transactions.get(transaction or 0)
        name = known.transactional_id if known else ""
        return _words(tp, name, marker) if (tp, name) in places else ""

    missed = {(tp, transaction) for (_, tp), beliefs in truth.missed.items() for transaction in beliefs}
    opened = {
        (tp, wrong.transaction) for (_, tp), wrongs in truth.wrongs.items() for wrong in wrongs if wrong.kind == STUCK
    }
    without_last = {
        (symptom.partition, symptom.key) for symptom in symptoms if (wrong := symptom.wrong) and wrong.leaves_out_last
    }
    keys: dict[TopicPartition, dict[str, str]] = defaultdict(dict)
    for (tp, offset), write in truth.at.items() if places else ():
        ends = [] if write.transaction is None else list(truth.markers.get((tp, write.transaction), ()))
        is_wrong = (tp, write.transaction) in (missed if ends else opened) and len(ends) <= 1
        # The ABORT of a later transaction has ended it, and its records were removed everywhere.
        is_gone = not ends and ABORTED in truth.followed.get((tp, write.transaction or 0), ())
        is_last = (tp, write.key) in without_last and offset == truth.reached.get((tp, write.key))
        if (is_wrong or (is_gone and is_last)) and (words := skipped(tp, write.transaction, *ends)):
            keys[tp][write.key] = words
    of_transactions = [symptom for symptom in symptoms if symptom.anomaly in _OF_TRANSACTIONS]
    return {
        **with_key(symptoms, keys),
        **wrong_groups(of_transactions, {tp: _words(tp, name) for tp, name in markers}, evidence.brokers),
        **{
            symptom: words
            for symptom in symptoms
            if symptom.judge == BROKER and symptom.offset is not None
            if (record := truth.at.get((symptom.partition, symptom.offset)))
            if (words := skipped(symptom.partition, record.transaction))
        },
    }


def _words(tp: TopicPartition, transactional_id: str, marker: int | None = None) -> str:
    """Return the skipped marker in a sentence. ``marker``: the offset of the marker that ends the transaction."""
    ends = "" if marker is None else f": the next marker, at offset {marker}, ends it instead"
    return (
        f"the coordinator left out the marker of a transaction of {transactional_id} in {tp[0]}-{tp[1]}, as if the"
        f" partition had been deleted{ends}"
    )


CAUSE = Cause(
    "skipped-marker",
    "a coordinator skipped the marker of a transaction",
    explain,
    before=frozenset({"unclean-election", "reopened-transaction"}),
    is_seen_by_both=False,
)
