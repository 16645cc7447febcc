"""The anomalies that are looked for, as clients know them; each is asked once no special cause explains a symptom.

A replica may have removed what it misjudged. Then the rest of the transaction shows it, or the final state of a key:

- aborted-to-committed: the key has the state that the aborted record would make of it, and the same client has later
  committed another transaction there.
- committed-to-aborted: a key that is not deleted has the state before its last committed record, and the same client
  has later aborted another transaction there.
"""

from __future__ import annotations

from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import Cause, Symptom, with_wrong
from harness.soak.evidence.client_log import ABORTED, COMMITTED
from harness.soak.judge.truth import HIDDEN, NO_VALUE, SERVED, STATE, STUCK, Truth, Wrong


def _counts_as_committed(truth: Truth, symptom: Symptom, wrong: Wrong) -> bool:
    if wrong.kind != STATE:
        return wrong.kind == SERVED
    followed = truth.followed[symptom.partition]
    return any(COMMITTED in followed.get(transaction, ()) for transaction in wrong.counts_aborted)


def _counts_as_aborted(truth: Truth, symptom: Symptom, wrong: Wrong) -> bool:
    if wrong.kind != STATE:
        return wrong.kind == HIDDEN
    due, replica = wrong.due, (symptom.broker, symptom.partition)
    if due and (truth.missed[replica].get(due), truth.outcomes[due]) == (ABORTED, COMMITTED):
        return True
    is_followed = due and ABORTED in truth.followed[symptom.partition].get(due, ())
    return bool(is_followed and wrong.leaves_out_last and not _is_deleted(wrong))


def _is_deleted(wrong: Wrong) -> bool:
    """Return whether clients know that a key was deleted last; a write of unknown outcome may have followed."""
    return wrong.truth == NO_VALUE or wrong.is_deleted


CAUSES = (
    Cause(
        str(Anomaly.ABORTED_TO_COMMITTED),
        "an aborted transaction counts as committed",
        with_wrong(_counts_as_committed),
        before=frozenset({str(Anomaly.COMMITTED_TO_ABORTED), str(Anomaly.TOMBSTONE_DIVERGENCE)}),
    ),
    Cause(
        str(Anomaly.COMMITTED_TO_ABORTED),
        "a committed transaction counts as aborted",
        with_wrong(_counts_as_aborted),
        before=frozenset({str(Anomaly.TOMBSTONE_DIVERGENCE)}),
    ),
    Cause(
        str(Anomaly.TOMBSTONE_DIVERGENCE),
        "a deleted key is served",
        with_wrong(lambda _truth, _symptom, wrong: wrong.kind == STATE and _is_deleted(wrong)),
        before=frozenset(),
    ),
    Cause(
        str(Anomaly.STUCK_LSO),
        "a transaction that has ended is open on a replica",
        with_wrong(lambda _truth, _symptom, wrong: wrong.kind == STUCK),
        before=frozenset(),
    ),
)
