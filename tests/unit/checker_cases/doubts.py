"""Evidence that contradicts itself, and divergence that no anomaly explains."""

from __future__ import annotations

from literal import History, abort, commit, delete, put, replica

from checker_cases.case import CONTRADICTION, END, T1, T2, UNEXPLAINED, Case, Doubt

SAME = (put(0, "K", T1), commit(1, T1), END)
HANGING = (put(0, "K", T1), END)

DOUBT_CASES = [
    Case(
        History(
            "other batches served than stored",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, served=(put(0, "K", T1, at_ms=77), *SAME[1:]))),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "3 batches on disk and 3 served after the rejoin, with other content"),),
    ),
    Case(
        History(
            "nothing served",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, served=())),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "3 batches on disk and 0 served"),),
    ),
    Case(
        History(
            "another log seen last than stored",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, last_seen=SAME[:2])),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "the stored log (3 batches) is not the last observed log (2 batches)"),),
    ),
    Case(
        History(
            "open by the broker's word alone",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, open=(T2,))),
        ),
        doubts=(
            Doubt(
                CONTRADICTION,
                2,
                "the broker says that producer 5 has an open transaction, its log that it has none",
            ),
        ),
    ),
    Case(
        History(
            "open by the log alone",
            wrote=HANGING,
            after=(replica(1, *HANGING), replica(2, *HANGING, open=())),
        ),
        doubts=(
            Doubt(
                CONTRADICTION,
                2,
                "the broker says that producer 5 has no open transaction, its log that it has one",
            ),
        ),
    ),
    Case(
        History(
            "stable past an open transaction",
            wrote=HANGING,
            after=(replica(1, *HANGING), replica(2, *HANGING, last_stable_offset=5)),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "last stable offset 5 is past offset 0"),),
    ),
    Case(
        History(
            "delivered what was aborted",
            wrote=(put(0, "K", T1), abort(1, T1), END),
            after=(replica(1, END), replica(2, put(0, "K", T1), abort(1, T1), END)),
            delivered=(0, 9),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "was delivered offset 0, which the stored log does not give"),),
    ),
    Case(
        History(
            "not delivered what was committed",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME)),
            delivered=(9,),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "was not delivered offset 0, which the stored log gives"),),
    ),
    Case(
        History(
            "delivered nothing at all",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME)),
            delivered=(),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "was not delivered offset 0"),),
    ),
    Case(
        History(
            "a committed value is missing and nothing tells why",
            wrote=(put(0, "K"), END),
            after=(replica(1, put(0, "K"), END), replica(2, END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 0, this broker's is at none"),),
    ),
    Case(
        History(
            "an older value is alive and nothing tells why",
            wrote=(put(0, "K"), put(1, "K"), END),
            after=(replica(1, put(1, "K"), END), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 1, this broker's is at 0"),),
    ),
    Case(
        History(
            "a delete that was not acknowledged may have happened",
            wrote=(put(0, "K"), delete(1, "K"), END),
            lost=(1,),
            after=(replica(1, END), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 1, "key K: the last committed record is at offset 0, this broker's is at none"),),
    ),
    Case(
        History(
            "a value that only one replica has, without a client",
            client=False,
            after=(replica(1, END), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 1, "key K"),),
    ),
]
