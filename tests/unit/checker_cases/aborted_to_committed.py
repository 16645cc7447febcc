"""Aborted records and deletes that a replica takes for committed."""

from literal import abort, aborted, commit, delete, emptied_marker, put, replica

from checker_cases.case import END, LATENT, POISON, T1, T2, U1, V1, V2, VISIBLE, Doubt, Finding, case

POISON_CASES = [
    case(
        "poison",
        Finding(
            POISON,
            2,
            0,
            "poison",
            5,
            VISIBLE,
            says="applies the COMMIT at offset 3 to the transaction",
            witness={
                "transaction": "t/1",
                "outcome": "aborted",
                "believed_here": "committed",
                "marker_taken_here_at": 3,
                "records": 1,
            },
        ),
        wrote=(put(0, "poison", T1),),
        outage=(abort(1, T1),),
        late=(put(2, "good", T2), commit(3, T2)),
        after=(
            replica(1, put(2, "good", T2), commit(3, T2)),
            replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
        ),
    ),
    case(
        "poison took the place of a value, which its broker has compacted away",
        Finding(POISON, 2, 1, "K", 5, VISIBLE),
        wrote=(put(0, "K"), put(1, "K", T1)),
        outage=(abort(2, T1),),
        late=(put(3, "good", T2), commit(4, T2), END),
        after=(
            replica(1, put(0, "K"), put(3, "good", T2), commit(4, T2), END),
            replica(2, put(1, "K", T1), put(3, "good", T2), commit(4, T2), END),
        ),
    ),
    case(
        "an aborted delete is carried out",
        Finding(POISON, 2, 1, "K", 5, VISIBLE, says="aborted delete of K is carried out"),
        wrote=(put(0, "K"), delete(1, "K", T1)),
        outage=(abort(2, T1),),
        late=(put(3, "good", T2), commit(4, T2), END),
        after=(
            replica(1, put(0, "K"), put(3, "good", T2), commit(4, T2), END),
            replica(2, put(0, "K"), delete(1, "K", T1), put(3, "good", T2), commit(4, T2), END),
        ),
    ),
    case(
        "an aborted delete was carried out, and nothing is left of it",
        Doubt("unexplained", 2, "K"),
        wrote=(put(0, "K"), delete(1, "K", T1)),
        outage=(abort(2, T1),),
        late=(put(3, "good", T2), commit(4, T2), END),
        after=(
            replica(1, put(0, "K"), put(3, "good", T2), commit(4, T2), END),
            replica(2, put(3, "good", T2), commit(4, T2), END),
        ),
    ),
    case(
        "poison, two records, one finding",
        Finding(POISON, 2, 0, "p", 5, VISIBLE, witness={"records": 2}),
        wrote=(put(0, "p", T1), put(1, "q", T1)),
        outage=(abort(2, T1),),
        late=(put(3, "good", T2), commit(4, T2)),
        after=(
            replica(1, put(3, "good", T2), commit(4, T2)),
            replica(2, put(0, "p", T1), put(1, "q", T1), put(3, "good", T2), commit(4, T2)),
        ),
    ),
    case(
        "poison behind a hanging transaction is not delivered yet",
        Finding(POISON, 2, 1, "poison", 5, LATENT),
        wrote=(put(0, "H", U1), put(1, "poison", T1)),
        outage=(abort(2, T1),),
        late=(put(3, "good", T2), commit(4, T2)),
        after=(
            replica(1, put(0, "H", U1), put(3, "good", T2), commit(4, T2)),
            replica(2, put(0, "H", U1), put(1, "poison", T1), put(3, "good", T2), commit(4, T2)),
        ),
    ),
    case(
        "poison that was not acknowledged itself",
        Finding(POISON, 2, 0, "poison", 5, VISIBLE),
        wrote=(put(0, "poison", T1),),
        lost=(0,),
        outage=(abort(1, T1),),
        late=(put(2, "good", T2), commit(3, T2)),
        after=(
            replica(1, put(2, "good", T2), commit(3, T2)),
            replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
        ),
    ),
    case(
        "poison, end not acknowledged, its marker is still elsewhere",
        Finding(POISON, 2, 0, "poison", 5, VISIBLE),
        wrote=(put(0, "poison", T1),),
        outage=(abort(1, T1),),
        in_doubt=(T1,),
        late=(put(2, "good", T2), commit(3, T2)),
        after=(
            replica(1, abort(1, T1), put(2, "good", T2), commit(3, T2)),
            replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
        ),
    ),
    case(
        "poison, without a client, the marker is known from a txnindex",
        Finding(POISON, 2, 0, "poison", 5, VISIBLE, witness={"transaction": "t/1"}),
        client=False,
        after=(
            replica(1, put(2, "good", T2), commit(3, T2), index=(aborted(T1, 0, 1),)),
            replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
        ),
    ),
    case(
        "poison, an emptied marker decides nothing",
        Finding(POISON, 2, 0, "poison", 6, VISIBLE, witness={"marker_taken_here_at": 3}),
        wrote=(put(0, "poison", V1),),
        outage=(abort(1, V1),),
        late=(put(2, "good", V2), commit(3, V2)),
        after=(
            replica(1, emptied_marker(1, V1), put(2, "good", V2), commit(3, V2)),
            replica(2, put(0, "poison", V1), emptied_marker(1, V1), put(2, "good", V2), commit(3, V2)),
        ),
    ),
]
