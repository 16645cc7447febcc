"""Replicas of Redpanda, which are judged by the records that they serve."""

from literal import abort, commit, put, replica, untied

from checker_cases.case import POISON, STUCK, VISIBLE, Finding, case
from checker_cases.transactions import END, T1

REDPANDA_CASES = [
    case("stuck on a replica that is judged by its served batches",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, says="read_committed is frozen at 0"),
        replica(1, put(2, "K"), END, redpanda=True), replica(2, put(0, "K", T1), put(2, "K"), END, redpanda=True),
        wrote=(put(0, "K", T1),), outage=(commit(1, T1), put(2, "K"), END),
    ),
    case("aborted, and held without its transactional bit",
        Finding(
            POISON, 2, 0, "poison", 5, VISIBLE,
            says="was aborted, and this broker holds it as if it had not been part of a transaction",
        ),
        replica(1, END, redpanda=True), replica(2, untied(put(0, "poison", T1)), END, redpanda=True),
        wrote=(put(0, "poison", T1),), outage=(abort(1, T1), END),
    ),
    case("committed, and one replica's compaction took the transactional bit",
        replica(1, untied(put(0, "K", T1)), END, redpanda=True),
        replica(2, put(0, "K", T1), commit(1, T1), END, redpanda=True),
        wrote=(put(0, "K", T1),), outage=(commit(1, T1), END),
    ),
]  # fmt: skip
