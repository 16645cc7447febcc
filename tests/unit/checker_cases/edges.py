"""Edges of the checkers' rules."""

from literal import abort, aborted, absent, appeared, commit, delete, put, removed, replica, together

from checker_cases.case import (
    CONTRADICTION,
    DIVERGED,
    END,
    HIDDEN,
    LATENT,
    POISON,
    STUCK,
    T1,
    T2,
    T3,
    U1,
    UNEXPLAINED,
    VISIBLE,
    Doubt,
    Finding,
    case,
)

EDGE_CASES = [
    case(
        "stuck, and its marker is not the only one that it missed",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "committed", "marker_seen_elsewhere_at": 1}),
        client=False,
        after=(
            replica(1, commit(1, T1), abort(3, T2), put(4, "K"), END),
            replica(2, put(0, "K", T1), put(4, "K"), END),
        ),
    ),
    case(
        "stuck, and two others are past it",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"other_broker": 1, "last_stable_offset_there": 10}),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K"), END),
        after=(
            replica(1, put(2, "K"), END),
            replica(2, put(0, "K", T1), put(2, "K"), END),
            replica(3, put(2, "K"), END, last_stable_offset=9),
        ),
    ),
    case(
        "open, and nobody but its own broker says that it is past it",
        Doubt(CONTRADICTION, 2, "last stable offset 10 is past offset 0"),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), END),
        after=(replica(2, put(0, "K", T1), END, last_stable_offset=10),),
    ),
    case(
        "poison where the last stable offset has not come past",
        Finding(POISON, 2, 0, "poison", 5, LATENT),
        wrote=(put(0, "poison", T1),),
        outage=(abort(1, T1),),
        late=(put(2, "good", T2), commit(3, T2)),
        after=(
            replica(1, put(2, "good", T2), commit(3, T2)),
            replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2), last_stable_offset=0),
        ),
    ),
    case(
        "poison on a key that was deleted later",
        Finding(POISON, 2, 1, "K", 5, VISIBLE),
        wrote=(put(1, "K", T1),),
        outage=(abort(2, T1), delete(3, "K")),
        late=(put(4, "good", T2), commit(5, T2)),
        after=(
            replica(1, put(4, "good", T2), commit(5, T2)),
            replica(2, put(1, "K", T1), put(4, "good", T2), commit(5, T2)),
        ),
    ),
    case(
        "hidden, a delete and a value of one transaction",
        Finding(
            HIDDEN, 2, 1, "D", 5, VISIBLE, says="committed delete of D is hidden as aborted: transaction t/1",
            witness={"alive_here_at": 0, "records": 2, "marker_taken_here_at": 5},
        ),
        wrote=(put(0, "D"), delete(1, "D", T1), put(2, "K", T1)),
        outage=(commit(3, T1), put(4, "g", T2), abort(5, T2), END),
        after=(
            replica(1, delete(1, "D", T1), put(2, "K", T1), commit(3, T1), abort(5, T2), END),
            replica(2, put(0, "D"), delete(1, "D", T1), put(2, "K", T1), put(4, "g", T2), abort(5, T2), END),
        ),
    ),
    case(
        "hidden, a delete that was superseded and a value that was not",
        Finding(HIDDEN, 2, 1, "D", 5, VISIBLE, says="the ABORT at offset 5 to the transaction; the key's"),
        wrote=(delete(1, "D", T1), put(2, "K", T1)),
        outage=(commit(3, T1), put(4, "g", T2), abort(5, T2), put(6, "D"), END),
        after=(
            replica(1, put(2, "K", T1), commit(3, T1), abort(5, T2), put(6, "D"), END),
            replica(2, delete(1, "D", T1), put(2, "K", T1), put(4, "g", T2), abort(5, T2), put(6, "D"), END),
        ),
    ),
    case(
        "stuck, and its first batch has two records",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE),
        wrote=(together(put(0, "K", T1), put(1, "L", T1)),),
        outage=(commit(2, T1), put(3, "K"), put(4, "L"), END),
        after=(
            replica(1, put(3, "K"), put(4, "L"), END),
            replica(2, together(put(0, "K", T1), put(1, "L", T1)), put(3, "K"), put(4, "L"), END),
        ),
    ),
    case(
        "another log of as many batches seen last than stored",
        Doubt(CONTRADICTION, 1, "the stored log (2 batches) is not the last observed log (2 batches)"),
        wrote=(put(0, "K"), END),
        after=(replica(1, put(0, "K"), END, last_seen=(put(1, "K"), END)), replica(2, put(0, "K"), END)),
    ),
    case(
        "nothing served by a broker that was never seen",
        Doubt(CONTRADICTION, 1, "2 batches on disk and 0 served"),
        wrote=(put(0, "K"), END),
        after=(replica(1, put(0, "K"), END, served=(), watched=False), replica(2, put(0, "K"), END)),
    ),
    case(
        "a reader that had no answer",
        wrote=(put(0, "K"), END),
        after=(replica(1, put(0, "K"), END), replica(2, put(0, "K"), END)),
        answered=False,
    ),
    case(
        "not delivered one record, and delivered another that is not there",
        Doubt(CONTRADICTION, 2, "was not delivered offset 0, which the stored log gives"),
        wrote=(put(0, "K"), put(2, "L"), END),
        after=(
            replica(1, put(0, "K"), put(2, "L"), END),
            replica(2, put(0, "K"), put(2, "L"), END),
        ),
        delivered=(1, 2, 9),
    ),
    case(
        "delivered up to the first of two that are open",
        wrote=(put(0, "a"), put(1, "K", T1), put(2, "b"), put(3, "L", U1), END),
        after=tuple(
            replica(broker, put(0, "a"), put(1, "K", T1), put(2, "b"), put(3, "L", U1), END) for broker in (1, 2)
        ),
    ),
    case(
        "a .txnindex hid it before the return, and that replica was copied again",
        wrote=(put(0, "K", T1), commit(1, T1)),
        outage=(END,),
        before=(
            replica(1, put(0, "K", T1), commit(1, T1), END),
            absent(2, put(0, "K", T1), index=(aborted(T1, 0, 3),)),
        ),
        after=(
            replica(1, put(0, "K", T1), commit(1, T1), END),
            replica(2, put(0, "K", T1), commit(1, T1), END),
        ),
    ),
    case(
        "poison on a key whose delete was present before the return, and was removed correctly",
        Finding(POISON, 2, 3, "K", 5, VISIBLE),
        wrote=(put(0, "K"), delete(1, "K", T1), commit(2, T1), put(3, "K", T2)),
        outage=(abort(4, T2),),
        late=(put(5, "good", T3), commit(6, T3)),
        before=(
            replica(1, delete(1, "K", T1), commit(2, T1), abort(4, T2)),
            absent(2, delete(1, "K", T1), commit(2, T1), put(3, "K", T2)),
        ),
        after=(
            replica(1, put(5, "good", T3), commit(6, T3)),
            replica(2, put(3, "K", T2), put(5, "good", T3), commit(6, T3)),
        ),
    ),
    case(
        "a value was present before the return, and an older value is alive",
        Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 1, this broker's is at 0"),
        wrote=(put(0, "K"), put(1, "K", T1)),
        outage=(commit(2, T1), END),
        before=(
            replica(1, put(1, "K", T1), commit(2, T1), END),
            absent(2, put(0, "K"), put(1, "K", T1)),
        ),
        after=(replica(1, put(1, "K", T1), commit(2, T1), END), replica(2, put(0, "K"), END)),
    ),
    case(
        "no served and observed batch is on disk",
        Doubt(CONTRADICTION, 1, "0 batches on disk and 2 served"),
        Doubt(CONTRADICTION, 1, "the stored log (0 batches) is not the last observed log (2 batches)"),
        wrote=(put(0, "K"), END),
        after=(
            replica(1, served=(put(0, "K"), END), last_seen=(put(0, "K"), END)),
            replica(2, put(0, "K"), END),
        ),
    ),
    case(
        "a commit that was not acknowledged, and the coordinator has aborted it",
        wrote=(put(0, "K", T1), commit(1, T1), END),
        in_doubt=(T1,),
        after=tuple(replica(broker, put(0, "K", T1), abort(1, T1), END) for broker in (1, 2)),
    ),
    case(
        "written again beyond the end of a log that copied a cleaned one",
        wrote=(put(0, "K"),),
        outage=(delete(1, "K"), put(2, "L")),
        late=(put(3, "K"),),
        after=(
            replica(1, put(2, "L"), put(3, "K"), high_watermark=4),
            replica(2, put(0, "K"), put(2, "L")),
        ),
    ),
    case(
        "deleted value alive, and the key's record beyond the log's end was aborted",
        Finding(DIVERGED, 2, 0, "K", None, VISIBLE),
        wrote=(put(0, "K"),),
        outage=(delete(1, "K"), put(2, "L")),
        late=(put(3, "K", T1), abort(4, T1), END),
        after=(
            replica(1, put(2, "L"), put(3, "K", T1), abort(4, T1), END, high_watermark=10),
            replica(2, put(0, "K"), put(2, "L")),
        ),
    ),
    case(
        "deleted value alive, and the key's later record was aborted",
        Finding(DIVERGED, 2, 0, "K", None, VISIBLE),
        wrote=(put(0, "K"),),
        outage=(delete(1, "K"), put(2, "K", T1), abort(3, T1), END),
        after=(replica(1, END), replica(2, put(0, "K"), END)),
    ),
    case(
        "the outcome of the last record is unknown, and the record is gone",
        wrote=(put(0, "K"), put(1, "K", T1), abort(2, T1), END),
        in_doubt=(T1,),
        after=(replica(1, put(0, "K"), END), replica(2, put(0, "K"), END)),
    ),
    case(
        "truncated beyond the high watermark, and what took its offset was cleaned away",
        client=False,
        before=(replica(1, put(0, "K")), absent(2, put(0, "K"), delete(1, "K"))),
        after=(replica(1, put(0, "K"), put(2, "M"), END), replica(2, put(0, "K"), put(2, "M"), END)),
    ),
    case(
        "lost by an unclean election, and another record took its offset",
        client=False,
        before=(replica(1, put(0, "K")), absent(2, put(0, "K"), put(1, "K"), high_watermark=2)),
        after=(replica(1, put(0, "K"), put(1, "M"), END), replica(2, put(0, "K"), put(1, "M"), END)),
    ),
    case(
        "hidden beyond every high watermark",
        wrote=(put(0, "a"), put(5, "K", T1), commit(6, T1), put(7, "g", T2), abort(8, T2), END),
        after=(
            replica(
                1, put(0, "a"), put(5, "K", T1), commit(6, T1), put(7, "g", T2), abort(8, T2), END,
                high_watermark=5,
            ),
            replica(2, put(0, "a"), put(5, "K", T1), put(7, "g", T2), abort(8, T2), END, high_watermark=5),
        ),
        seen=(appeared(1, put(5, "K", T1)),),
    ),
    case(
        "open everywhere, and two of its records were seen",
        wrote=(put(0, "K", T1), put(1, "L", T1), END),
        after=tuple(replica(broker, put(0, "K", T1), put(1, "L", T1), END) for broker in (1, 2)),
        seen=(appeared(1, put(0, "K", T1)), appeared(1, put(1, "L", T1))),
    ),
    case(
        "a marker was seen and truncated, and a record of another producer took its offset",
        wrote=(put(0, "x", U1), put(1, "K", T1), abort(2, T1), commit(3, U1), END),
        in_doubt=(T1,),
        after=tuple(replica(broker, put(0, "x", U1), commit(3, U1), END) for broker in (1, 2)),
        seen=(appeared(1, commit(1, U1)), removed(1, commit(1, U1))),
    ),
]  # fmt: skip
"""At the edge of a rule: each of them is the only one for which some small change of a checker (`tests/quality`,
mutants) makes a test fail."""
