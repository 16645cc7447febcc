"""An aborted transaction that a replica takes for committed.

If the replica has removed the transaction, the final state shows it: the key has the state that the aborted
record would make of it, and the same client has later committed another transaction there.
"""

from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import Cause, Symptom, with_wrong
from harness.soak.evidence.client_log import COMMITTED
from harness.soak.judge.truth import SERVED, STATE, Truth, Wrong


def _holds(truth: Truth, symptom: Symptom, wrong: Wrong) -> bool:
    if wrong.kind != STATE:
        return wrong.kind == SERVED
    followed, tp = truth.followed, symptom.partition
    return any(COMMITTED in followed.get((tp, transaction), ()) for transaction in wrong.counts_aborted)


CAUSE = Cause(
    str(Anomaly.ABORTED_TO_COMMITTED),
    "an aborted transaction counts as committed",
    with_wrong(_holds),
    before=frozenset({str(Anomaly.COMMITTED_TO_ABORTED), str(Anomaly.TOMBSTONE_DIVERGENCE)}),
)
