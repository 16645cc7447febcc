"""Evidence that contradicts itself, and divergence that no anomaly explains."""

from literal import abort, commit, delete, put, replica

from checker_cases.case import CONTRADICTION, END, T1, T2, UNEXPLAINED, Doubt, case

SAME = (put(0, "K", T1), commit(1, T1), END)
HANGING = (put(0, "K", T1), END)

DOUBT_CASES = [
    case(
        "other batches served than stored",
        Doubt(CONTRADICTION, 2, "3 batches on disk and 3 served after the rejoin, with other content"),
        wrote=SAME,
        after=(replica(1, *SAME), replica(2, *SAME, served=(put(0, "K", T1, at_ms=77), *SAME[1:]))),
    ),
    case(
        "nothing served",
        Doubt(CONTRADICTION, 2, "3 batches on disk and 0 served"),
        wrote=SAME,
        after=(replica(1, *SAME), replica(2, *SAME, served=())),
    ),
    case(
        "another log seen last than stored",
        Doubt(CONTRADICTION, 2, "the stored log (3 batches) is not the last observed log (2 batches)"),
        wrote=SAME,
        after=(replica(1, *SAME), replica(2, *SAME, last_seen=SAME[:2])),
    ),
    case(
        "open by the broker's word alone",
        Doubt(CONTRADICTION, 2, "the broker says that producer 5 has an open transaction, its log that it has none"),
        wrote=SAME,
        after=(replica(1, *SAME), replica(2, *SAME, open=(T2,))),
    ),
    case(
        "open by the log alone",
        Doubt(CONTRADICTION, 2, "the broker says that producer 5 has no open transaction, its log that it has one"),
        wrote=HANGING,
        after=(replica(1, *HANGING), replica(2, *HANGING, open=())),
    ),
    case(
        "stable past an open transaction",
        Doubt(CONTRADICTION, 2, "last stable offset 5 is past offset 0"),
        wrote=HANGING,
        after=(replica(1, *HANGING), replica(2, *HANGING, last_stable_offset=5)),
    ),
    case(
        "delivered an aborted record",
        Doubt(CONTRADICTION, 2, "was delivered offset 0, which the stored log does not give"),
        wrote=(put(0, "K", T1), abort(1, T1), END),
        after=(replica(1, END), replica(2, put(0, "K", T1), abort(1, T1), END)),
        delivered=(0, 9),
    ),
    case(
        "not delivered a committed record",
        Doubt(CONTRADICTION, 2, "was not delivered offset 0, which the stored log gives"),
        wrote=SAME,
        after=(replica(1, *SAME), replica(2, *SAME)),
        delivered=(9,),
    ),
    case(
        "delivered nothing at all",
        Doubt(CONTRADICTION, 2, "was not delivered offset 0"),
        wrote=SAME,
        after=(replica(1, *SAME), replica(2, *SAME)),
        delivered=(),
    ),
    case(
        "a committed value is missing and nothing explains why",
        Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 0, this broker's is at none"),
        wrote=(put(0, "K"), END),
        after=(replica(1, put(0, "K"), END), replica(2, END)),
    ),
    case(
        "an older value is alive and nothing explains why",
        Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 1, this broker's is at 0"),
        wrote=(put(0, "K"), put(1, "K"), END),
        after=(replica(1, put(1, "K"), END), replica(2, put(0, "K"), END)),
    ),
    case(
        "a delete that was not acknowledged may have happened",
        Doubt(UNEXPLAINED, 1, "key K: the last committed record is at offset 0, this broker's is at none"),
        wrote=(put(0, "K"), delete(1, "K"), END),
        lost=(1,),
        after=(replica(1, END), replica(2, put(0, "K"), END)),
    ),
    case(
        "a value that only one replica has, without a client",
        Doubt(UNEXPLAINED, 1, "key K"),
        client=False,
        after=(replica(1, END), replica(2, put(0, "K"), END)),
    ),
]
