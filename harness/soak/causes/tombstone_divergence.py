"""A deleted key that a replica still serves, whether or not a write of unknown outcome followed the delete."""

from harness.schedules.catalog import Anomaly
from harness.soak.causes.cause import Cause, with_wrong
from harness.soak.judge.truth import NO_VALUE, STATE, Wrong


def is_of_deleted(wrong: Wrong) -> bool:
    """Return whether clients know that a key, whose final state is wrong, was deleted last."""
    return wrong.truth == NO_VALUE or wrong.is_deleted


CAUSE = Cause(
    str(Anomaly.TOMBSTONE_DIVERGENCE),
    "a deleted key is served",
    with_wrong(lambda _truth, _symptom, wrong: wrong.kind == STATE and is_of_deleted(wrong)),
    before=frozenset(),
)
