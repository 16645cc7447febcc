"""Transactions that one replica, or every replica, holds open, with their coordinator's log."""

from checker_cases.case import STUCK, Finding
from checker_cases.transactions import END, T1, T2
from copied import Copy, copy
from literal import commit, emptied, emptied_marker, put

from audit_cases.case import HANGING, anomaly, both, clean, undecided, unknown
from checkers.finding import VISIBLE

HELD_BY_ONE = copy(2, put(0, "K", T1), put(2, "K"), END)

STUCK_CASES = [
    anomaly("open here, and not open on a broker without its records",
        copy(1, put(2, "K"), END), HELD_BY_ONE,
        Finding(
            STUCK, 2, 0, "K", 5, VISIBLE,
            witness={"outcome": "decided", "not_open_on_broker": 1, "marker_seen_elsewhere_at": None},
        ),
    ),
    anomaly("open here, and not in what a broker remembered before a later marker of the producer",
        copy(1, put(2, "K"), END, put(10, "M", T2), commit(11, T2), snapshots={10: {T1: None}}), HELD_BY_ONE,
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "decided", "not_open_on_broker": 1}),
    ),
    clean("open here, and a later marker elsewhere may have ended it",
        copy(1, put(2, "K"), END, put(10, "M", T2), commit(11, T2)), HELD_BY_ONE,
    ),
    unknown("open here, and an emptied marker beyond this log's end may have ended it",
        copy(1, put(2, "K"), END, emptied_marker(10, T1)), HELD_BY_ONE, says="broker 1 has cleaned beyond that",
    ),
    anomaly("open here, and of its marker a remnant is left elsewhere",
        copy(1, emptied_marker(1, T1), put(2, "K"), END, log_start=1), HELD_BY_ONE,
        Finding(
            STUCK, 2, 0, "K", 5, VISIBLE,
            witness={"outcome": "decided", "not_open_on_broker": None, "marker_seen_elsewhere_at": 1},
        ),
    ),
    anomaly("opened by an emptied batch",
        copy(1, put(2, "K"), END), copy(2, emptied(0, T1), put(2, "K"), END),
        Finding(STUCK, 2, 0, None, 5, VISIBLE, says="(producer 5, key (no key)) has ended"),
    ),
    clean("open here, and a log that starts later proves nothing", copy(1, put(2, "K"), END, log_start=1), HELD_BY_ONE),
]  # fmt: skip

OPEN = (put(0, "K", T1), END)


def ended_by(*states: tuple[str, int | None, str | None]) -> tuple[Copy, ...]:
    """Return two replicas on which only a transaction is open, one of them with its coordinator's log."""
    return copy(1, OPEN[0], coordinator=states), copy(2, OPEN[0])


HANGING_CASES = [
    anomaly("open everywhere, and its coordinator is done: hanging, unless another replica was not copied",
        *ended_by(("t", 5, "Ongoing"), ("t", 5, "PrepareCommit"), ("t", 5, "CompleteCommit")),
        *(
            undecided(
                STUCK, broker, 0, None, 5, VISIBLE, says="its coordinator has finished it (CompleteCommit)",
                witness={"transactional_id": "t", "coordinator_says": "CompleteCommit"}, candidates=(STUCK, HANGING),
            )
            for broker in (1, 2)
        ),
    ),
    clean("open everywhere, and its coordinator is at it", *ended_by(("t", 5, "CompleteCommit"), ("t", 5, "Ongoing"))),
    clean("open everywhere, and its coordinator has yet to write the marker", *ended_by(("t", 5, "PrepareCommit"))),
    clean("open everywhere, and another producer is done", *ended_by(("u", 7, "CompleteAbort"))),
    clean("open everywhere, and the coordinator's log was not copied", *both(*OPEN)),
    clean("open everywhere, and it was forgotten", *ended_by(("t", 5, "CompleteCommit"), ("t", None, None))),
    anomaly("the coordinator is done, and one replica does not hold it open: no hanging transaction",
        copy(1, END), copy(2, *OPEN, coordinator=(("t", 5, "CompleteAbort"),)), Finding(STUCK, 2, 0, "K", 5, VISIBLE),
    ),
]  # fmt: skip
