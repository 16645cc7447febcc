"""Deleted values that are alive on one replica."""

from literal import absent, commit, delete, put, replica

from checker_cases.case import DIVERGED, HIDDEN, VISIBLE, Finding, case
from checker_cases.transactions import END, T1

DIVERGED_CASES = [
    case("deleted value alive",
        Finding(
            DIVERGED, 2, 0, "K", -1, VISIBLE, says="it was deleted at offset 1",
            witness={"deleted_at": 1, "alive_here_at": 0},
        ),
        replica(1, END), replica(2, put(0, "K"), END), replica(3, delete(1, "K"), END),
        wrote=(put(0, "K"),), outage=(delete(1, "K"), END),
    ),
    case("deleted value alive, and the high watermark on disk lags", Finding(DIVERGED, 2, 0, "K", -1, VISIBLE),
        replica(1, END), replica(2, put(0, "K"), END), absent(3, delete(1, "K"), END),
        wrote=(put(0, "K"),), outage=(delete(1, "K"), END),
    ),
    case("deleted value alive, without a client, another replica holds the tombstone",
        Finding(DIVERGED, 2, 0, "K", -1, VISIBLE),
        replica(1, delete(1, "K"), END), replica(2, put(0, "K"), END),
        client=False,
    ),
    case("deleted value alive, the transactional tombstone never came",
        Finding(DIVERGED, 2, 0, "K", 5, VISIBLE, witness={"transaction_of_the_delete": "t/1"}),
        replica(1, END), replica(2, put(0, "K"), END),
        wrote=(put(0, "K"),), outage=(delete(1, "K", T1), commit(2, T1), END),
        before=(replica(1, delete(1, "K", T1), commit(2, T1)), absent(2, put(0, "K"))),
    ),
    case("deleted value alive, and nothing shows whether the transactional tombstone arrived",
        Finding(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, HIDDEN)),
        replica(1, delete(1, "K", T1), commit(2, T1), END), replica(2, put(0, "K"), END),
        wrote=(put(0, "K"),), outage=(delete(1, "K", T1), commit(2, T1), END),
    ),
]  # fmt: skip
