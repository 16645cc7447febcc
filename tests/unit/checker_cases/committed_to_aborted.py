"""Committed records and deletes that a replica takes for aborted."""

from literal import abort, aborted, absent, appeared, commit, delete, emptied, emptied_marker, put, replica

from checker_cases.case import DIVERGED, END, HIDDEN, LATENT, T1, T2, T3, V1, V2, VISIBLE, Finding, case

HIDDEN_CASES = [
    case(
        "hidden value, superseded",
        Finding(
            HIDDEN,
            2,
            0,
            "K",
            5,
            LATENT,
            says="applies the ABORT at offset 4 to the transaction; later records supersede it",
            witness={"transaction": "t/1", "outcome": "committed", "evidence": ["log", "txnindex"]},
        ),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K")),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        after=(
            replica(1, put(2, "K"), put(3, "garbage", T2), abort(4, T2), END),
            replica(2, put(0, "K", T1), put(2, "K"), put(3, "garbage", T2), abort(4, T2), END),
        ),
    ),
    case(
        "hidden value, the last of its key",
        Finding(HIDDEN, 2, 1, "K", 5, VISIBLE, says="the key's final state is wrong"),
        wrote=(put(0, "K"), put(1, "K", T1)),
        outage=(commit(2, T1),),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        after=(
            replica(1, put(1, "K", T1), commit(2, T1), put(3, "garbage", T2), abort(4, T2), END),
            replica(2, put(0, "K"), put(1, "K", T1), put(3, "garbage", T2), abort(4, T2), END),
        ),
    ),
    case(
        "hidden value that was alone of its key",
        Finding(HIDDEN, 2, 0, "K", 5, VISIBLE),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1),),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        after=(
            replica(1, put(0, "K", T1), commit(1, T1), put(3, "garbage", T2), abort(4, T2), END),
            replica(2, put(0, "K", T1), put(3, "garbage", T2), abort(4, T2), END),
        ),
    ),
    case(
        "hidden delete",
        Finding(
            HIDDEN,
            2,
            1,
            "K",
            5,
            VISIBLE,
            says="the deleted value at offset 0 is back",
            witness={"alive_here_at": 0, "evidence": ["log", "txnindex"]},
        ),
        wrote=(put(0, "K"), delete(1, "K", T1)),
        outage=(commit(2, T1),),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        after=(
            replica(1, put(3, "garbage", T2), abort(4, T2), END),
            replica(2, put(0, "K"), delete(1, "K", T1), put(3, "garbage", T2), abort(4, T2), END),
        ),
    ),
    case(
        "hidden value, byte-identical logs, and only the txnindex shows it",
        Finding(HIDDEN, 2, 0, "K", 5, LATENT, witness={"evidence": ["txnindex"], "marker_taken_here_at": 4}),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K")),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        before=(replica(1, put(2, "K"), put(3, "garbage", T2), abort(4, T2)), absent(2, put(0, "K", T1))),
        after=(
            replica(1, put(2, "K"), abort(4, T2), END, index=(aborted(T2, 3, 4),)),
            replica(2, put(2, "K"), abort(4, T2), END, index=(aborted(T1, 0, 4),)),
        ),
    ),
    *(
        case(
            f"hidden {kind}, seen by the observer alone, and the txnindex shows it",
            Finding(HIDDEN, 2, 1, "K", 5, LATENT, witness={"evidence": ["txnindex"]}),
            wrote=(put(0, "K"), entry),
            outage=(commit(2, T1), put(3, "K")),
            late=(put(4, "garbage", T2), abort(5, T2), END),
            before=(replica(1, put(3, "K"), put(4, "garbage", T2), abort(5, T2)), absent(2, emptied(1, T1))),
            after=(
                replica(1, put(3, "K"), abort(5, T2), END, index=(aborted(T2, 4, 5),)),
                replica(2, put(3, "K"), abort(5, T2), END, index=(aborted(T1, 1, 5),)),
            ),
            seen=(appeared(2, entry),),
        )
        for kind, entry in (("value", put(1, "K", T1)), ("delete", delete(1, "K", T1)))
    ),
    *(
        case(
            f"a txnindex spans a committed record that the replica {never}",
            wrote=(put(0, "K", T1),),
            outage=(abort(1, T1), put(2, "L", T2), commit(3, T2), put(4, "L")),
            late=(put(5, "garbage", T3), abort(6, T3), END),
            before=(replica(1, put(4, "L"), put(5, "garbage", T3), abort(6, T3)), absent(2, put(0, "K", T1))),
            after=(
                replica(1, put(4, "L"), abort(6, T3), END, index=(aborted(T3, 5, 6),)),
                replica(2, put(4, "L"), abort(6, T3), END, index=(aborted(T1, 0, 6),)),
            ),
            seen=seen,
        )
        for never, seen in (
            ("never had", (appeared(1, put(2, "L", T2)),)),
            ("had without its content", (appeared(1, put(2, "L", T2)), appeared(2, emptied(2, T2)))),
        )
    ),
    case(
        "hidden delete, cleaned away, and the txnindex shows it",
        Finding(
            HIDDEN,
            2,
            1,
            "K",
            5,
            VISIBLE,
            says="the deleted value at offset 0 is back",
            witness={"evidence": ["held", "txnindex"]},
        ),
        wrote=(put(0, "K"), delete(1, "K", T1)),
        outage=(commit(2, T1),),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        before=(replica(1, put(3, "garbage", T2), abort(4, T2)), absent(2, put(0, "K"), delete(1, "K", T1))),
        after=(
            replica(1, abort(4, T2), END, index=(aborted(T2, 3, 4),)),
            replica(2, put(0, "K"), abort(4, T2), END, index=(aborted(T1, 1, 4),)),
        ),
    ),
    case(
        "hidden delete, cleaned away, and only the files before the return tell",
        Finding(
            HIDDEN,
            2,
            1,
            "K",
            5,
            VISIBLE,
            says="applies another marker to the transaction",
            witness={"evidence": ["held"], "alive_here_at": 0},
        ),
        wrote=(put(0, "K"), delete(1, "K", T1)),
        outage=(commit(2, T1),),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        before=(replica(1, put(3, "garbage", T2), abort(4, T2)), absent(2, put(0, "K"), delete(1, "K", T1))),
        after=(replica(1, END), replica(2, put(0, "K"), END)),
    ),
    case(
        "hidden, one record superseded and one not",
        Finding(HIDDEN, 2, 0, "K", 5, VISIBLE, witness={"records": 2}),
        wrote=(put(0, "K", T1), put(1, "L", T1)),
        outage=(commit(2, T1), put(3, "K")),
        late=(put(4, "garbage", T2), abort(5, T2), END),
        after=(
            replica(1, put(1, "L", T1), commit(2, T1), put(3, "K"), put(4, "garbage", T2), abort(5, T2), END),
            replica(2, put(0, "K", T1), put(1, "L", T1), put(3, "K"), put(4, "garbage", T2), abort(5, T2), END),
        ),
    ),
    case(
        "hidden value, superseded, on a key whose later delete is lost",
        Finding(HIDDEN, 2, 0, "K", 5, LATENT, says="later records supersede it"),
        Finding(DIVERGED, 2, 2, "K", None, VISIBLE),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K")),
        late=(put(3, "garbage", T2), abort(4, T2), delete(5, "K"), END),
        after=(
            replica(1, put(3, "garbage", T2), abort(4, T2), END),
            replica(2, put(0, "K", T1), put(2, "K"), put(3, "garbage", T2), abort(4, T2), END),
        ),
    ),
    case(
        "hidden, a higher epoch closes nothing",
        Finding(HIDDEN, 2, 0, "K", 6, LATENT),
        wrote=(put(0, "K", V1),),
        outage=(commit(1, V1), put(2, "K")),
        late=(put(3, "garbage", V2), abort(4, V2), END),
        after=(
            replica(1, emptied_marker(1, V1), put(2, "K"), put(3, "garbage", V2), abort(4, V2), END),
            replica(2, put(0, "K", V1), put(2, "K"), put(3, "garbage", V2), abort(4, V2), END),
        ),
    ),
    case(
        "hidden, end not acknowledged, and another replica has its marker",
        Finding(HIDDEN, 2, 0, "K", 5, VISIBLE),
        wrote=(put(0, "K", T1), put(1, "L")),
        outage=(commit(2, T1),),
        in_doubt=(T1,),
        late=(put(3, "garbage", T2), abort(4, T2), END),
        after=(
            replica(1, put(0, "K", T1), put(1, "L"), commit(2, T1), put(3, "garbage", T2), abort(4, T2), END),
            replica(2, put(0, "K", T1), put(1, "L"), put(3, "garbage", T2), abort(4, T2), END),
        ),
    ),
]
