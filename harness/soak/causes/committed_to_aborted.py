"""A committed transaction that a replica takes for aborted.

If the replica has removed the records, the rest of the transaction shows it, or the final state of a key that is not
deleted: it is the state before its last committed record, and the same client has later aborted another transaction.
"""

from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import Cause, Symptom, with_wrong
from harness.soak.causes.tombstone_divergence import is_of_deleted
from harness.soak.evidence.client_log import ABORTED, COMMITTED
from harness.soak.judge.truth import HIDDEN, STATE, Truth, Wrong


def _holds(truth: Truth, symptom: Symptom, wrong: Wrong) -> bool:
    if wrong.kind != STATE:
        return wrong.kind == HIDDEN
    due, replica = wrong.due, (symptom.broker, symptom.partition)
    if due and (truth.missed[replica].get(due), truth.transactions[due].outcome) == (ABORTED, COMMITTED):
        return True
    is_followed = due and ABORTED in truth.followed.get((symptom.partition, due), ())
    return bool(is_followed and wrong.leaves_out_last and not is_of_deleted(wrong))


CAUSE = Cause(
    str(Anomaly.COMMITTED_TO_ABORTED),
    "a committed transaction counts as aborted",
    with_wrong(_holds),
    before=frozenset({str(Anomaly.TOMBSTONE_DIVERGENCE)}),
)
