"""What a finding means for whoever runs the cluster, and how to get out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checkers.finding import HANGING_TRANSACTION, UNEXPLAINED_DIVERGENCE
from harness.scenario import Anomaly

if TYPE_CHECKING:
    from collections.abc import Sequence

COPY_ANEW = (
    "make a broker that is right the leader (`kafka-leader-election.sh`), take broker {broker} out of the replicas of "
    "{partition} with `kafka-reassign-partitions.sh`, wait until its folder is gone, and put it back: it copies the "
    "log anew"
)
"""Seen to repair an undone delete and a stuck LSO on 4.4.0 (`facts/kafka.md`)."""

BEFORE = (
    "until then consumers that read from broker {broker} (as leader, or by rack) get its version; keep it from "
    "becoming leader"
)


@dataclass(frozen=True)
class Advice:
    """Templates with ``broker``, ``partition``, ``right`` (who holds the truth) and ``producer_id``."""

    means: str
    do: str


ADVICE: dict[str, Advice] = {
    Anomaly.TOMBSTONE_DIVERGENCE: Advice(
        "a key that was deleted still has its value on broker {broker}: it was away, or not yet in the ISR, while the "
        "tombstone was written and removed. {right}",
        f"{COPY_ANEW}; {BEFORE}. Writing the tombstone once more deletes the key everywhere, where you know that it is "
        f"to be",
    ),
    Anomaly.ABORTED_TO_COMMITTED: Advice(
        "broker {broker} delivers data of an aborted transaction to read_committed consumers: it missed the ABORT and "
        "took the next marker of producer {producer_id} for its end. {right}",
        f"{COPY_ANEW}; {BEFORE}. What consumers have read of it already has to be undone where they keep it",
    ),
    Anomaly.COMMITTED_TO_ABORTED: Advice(
        "broker {broker} hides committed data from read_committed consumers, and its cleaner removes them: it missed "
        "the COMMIT and took the next ABORT of producer {producer_id} for the end. {right}",
        f"{COPY_ANEW}; {BEFORE}. Where that broker has led since, writes and deletes of that transaction may be lost "
        "everywhere: write them again",
    ),
    Anomaly.STUCK_LSO: Advice(
        "read_committed consumers of broker {broker} get nothing from there on, and its cleaner is stuck, too: it "
        "missed the marker that ended the transaction of producer {producer_id}. It does not heal by itself. {right}",
        f"{COPY_ANEW}. The next transaction of the same transactional id on this partition unfreezes it, too, and so "
        f"does `kafka-transactions.sh abort`, but both give the old transaction the new outcome on that broker",
    ),
    HANGING_TRANSACTION: Advice(
        "read_committed consumers of {partition} get nothing from there on, on any broker: no marker was ever written "
        "for the transaction of producer {producer_id}, whose coordinator is done with it (KIP-664; KIP-890 prevents "
        "new ones)",
        "`kafka-transactions.sh abort --topic ... --partition ... --start-offset ...` on the leader",
    ),
    UNEXPLAINED_DIVERGENCE: Advice(
        "the replicas differ in a way that compaction does not make. {right}",
        "keep the folders of every broker as they are, and look at the offsets in the witness with "
        "`kafka-dump-log.sh`; then copy the wrong replica anew: " + COPY_ANEW,
    ),
}


def advise(finding: dict[str, Any], brokers: Sequence[int]) -> dict[str, str]:
    """Return ``means`` and ``do`` of a finding; ``brokers``: which hold the partition."""
    partition = f"{finding['topic']}-{finding['partition']}"
    others = [broker for broker in brokers if broker != finding["broker"]]
    known = {
        "broker": finding["broker"],
        "partition": partition,
        "producer_id": finding["producer_id"],
        "right": _right(finding, others),
    }
    advice = ADVICE[finding["anomaly"]]
    return {"means": advice.means.format(**known).strip(), "do": advice.do.format(**known)}


WITNESSES = ("removed_by_broker", "not_open_on_broker", "other_broker", "held_by_broker")


def _right(finding: dict[str, Any], others: Sequence[int]) -> str:
    """Say which replica holds the truth, and why."""
    witness = finding["witness"]
    named = next((witness[name] for name in WITNESSES if witness.get(name) is not None), None)
    if finding["candidates"]:
        why = "nothing tells any more which of the names it is, but who still holds something is who missed something"
    else:
        why = "a marker or a removal is not taken back, so whoever has seen it is right"
    if named is None and len(others) == 1:
        named = others[0]
    who = (
        f"broker {named}"
        if named is not None
        else f"brokers {', '.join(map(str, others))}, as far as they are not named here"
    )
    return f"The truth is on {who}: {why}."
