"""A transaction that is open on a replica although it has ended: its last stable offset is stuck."""

from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import Cause, with_wrong
from harness.soak.judge.truth import STUCK

CAUSE = Cause(
    str(Anomaly.STUCK_LSO),
    "a transaction that has ended is open on a replica",
    with_wrong(lambda _truth, _symptom, wrong: wrong.kind == STUCK),
    before=frozenset(),
)
