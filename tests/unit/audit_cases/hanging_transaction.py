"""Transactions that every replica holds open, with what their coordinator says of them."""

from __future__ import annotations

from copied import Copy, copy
from literal import put

from audit_cases.case import END, STUCK, T1, Finding, anomaly, clean
from checkers.finding import HANGING_TRANSACTION as HANGING
from checkers.finding import VISIBLE

OPEN = (put(0, "K", T1), END)


def ended_by(*states: tuple[str, int | None, str | None]) -> tuple[Copy, ...]:
    """Return two replicas that hold a transaction open, and nothing else, one of them with its coordinator's log."""
    return copy(1, OPEN[0], coordinator=states), copy(2, OPEN[0])


HANGING_CASES = [
    anomaly(
        "open everywhere, and its coordinator is done",
        ended_by(("t", 5, "Ongoing"), ("t", 5, "PrepareCommit"), ("t", 5, "CompleteCommit")),
        *(
            Finding(
                HANGING, broker, 0, None, 5, VISIBLE, says="its coordinator has finished it (CompleteCommit)",
                witness={"transactional_id": "t", "coordinator_says": "CompleteCommit"},
            )
            for broker in (1, 2)
        ),
    ),
    clean("open everywhere, and its coordinator is at it", *ended_by(("t", 5, "CompleteCommit"), ("t", 5, "Ongoing"))),
    clean("open everywhere, and its coordinator has yet to write the marker", *ended_by(("t", 5, "PrepareCommit"))),
    clean("open everywhere, and another producer is done", *ended_by(("u", 7, "CompleteAbort"))),
    clean("open everywhere, and the coordinator's log was not copied", copy(1, *OPEN), copy(2, *OPEN)),
    clean("open everywhere, and it was forgotten", *ended_by(("t", 5, "CompleteCommit"), ("t", None, None))),
    anomaly(
        "the coordinator is done, and one replica does not hold it open: no hanging transaction",
        (copy(1, END), copy(2, *OPEN, coordinator=(("t", 5, "CompleteAbort"),))),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE),
    ),
]  # fmt: skip
