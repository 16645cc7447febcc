"""Transactions that are open on one replica and decided elsewhere; and open ones that are not stuck."""

from literal import abort, absent, appeared, commit, delete, emptied, emptied_marker, put, removed, replica

from checker_cases.case import END, STUCK, T1, U1, V1, VISIBLE, Finding, case

STUCK_CASES = [
    case(
        "stuck, its marker is still elsewhere",
        Finding(
            STUCK,
            2,
            0,
            "K",
            5,
            VISIBLE,
            says="read_committed is frozen at 0, high watermark 10: transaction t/1",
            witness={
                "transaction": "t/1",
                "outcome": "committed",
                "marker_seen_elsewhere_at": 1,
                "last_stable_offset_here": 0,
                "other_broker": 1,
                "last_stable_offset_there": 10,
            },
        ),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K"), END),
        after=(replica(1, commit(1, T1), put(2, "K"), END), replica(2, put(0, "K", T1), put(2, "K"), END)),
    ),
    case(
        "stuck, its marker is gone everywhere and the client knows",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "committed", "other_broker": 1}),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K"), END),
        after=(replica(1, put(2, "K"), END), replica(2, put(0, "K", T1), put(2, "K"), END)),
    ),
    case(
        "stuck, its marker was seen by the observer alone",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "aborted", "marker_seen_elsewhere_at": 1}),
        wrote=(put(0, "K", T1),),
        outage=(abort(1, T1), put(2, "K"), END),
        in_doubt=(T1,),
        after=(replica(1, put(2, "K"), END), replica(2, put(0, "K", T1), put(2, "K"), END)),
        seen=(appeared(1, abort(1, T1)), removed(1, abort(1, T1))),
    ),
    case(
        "stuck, its marker was in files before the return",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "committed", "transaction": "t/1"}),
        client=False,
        before=(replica(1, commit(1, T1), put(2, "K"), END), absent(2, put(0, "K", T1))),
        after=(replica(1, put(2, "K"), END), replica(2, put(0, "K", T1), put(2, "K"), END)),
    ),
    case(
        "stuck, opened by an emptied batch",
        Finding(STUCK, 2, 0, "K", 5, VISIBLE),
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K"), END),
        after=(replica(1, commit(1, T1), put(2, "K"), END), replica(2, emptied(0, T1), put(2, "K"), END)),
    ),
    case(
        "stuck, an emptied marker closes nothing",
        Finding(STUCK, 2, 0, "K", 6, VISIBLE),
        wrote=(put(0, "K", V1),),
        outage=(commit(1, V1), put(2, "K"), END),
        before=(replica(1, commit(1, V1), put(2, "K"), END), absent(2, put(0, "K", V1))),
        after=(
            replica(1, emptied_marker(1, V1), put(2, "K"), END),
            replica(2, put(0, "K", V1), emptied_marker(1, V1), put(2, "K"), END),
        ),
    ),
    case(
        "stuck, one of two producers on two of three brokers",
        Finding(STUCK, 2, 1, "L", 7, VISIBLE),
        Finding(STUCK, 3, 1, "L", 7, VISIBLE),
        wrote=(put(0, "K", T1), put(1, "L", U1)),
        outage=(commit(2, T1), commit(3, U1), END),
        after=(
            replica(1, put(0, "K", T1), put(1, "L", U1), commit(2, T1), commit(3, U1), END),
            replica(2, put(0, "K", T1), put(1, "L", U1), commit(2, T1), END),
            replica(3, put(0, "K", T1), put(1, "L", U1), commit(2, T1), END),
        ),
    ),
    case(
        "stuck, a delete that is not applied is not a lost tombstone",
        Finding(STUCK, 2, 1, "K", 5, VISIBLE),
        wrote=(put(0, "K"), delete(1, "K", T1)),
        outage=(commit(2, T1), END),
        after=(replica(1, commit(2, T1), END), replica(2, put(0, "K"), delete(1, "K", T1), END)),
    ),
]

NOT_STUCK_CASES = [
    case(
        "open on every replica is hanging, not stuck",
        wrote=(put(0, "K", T1), commit(1, T1), END),
        after=(replica(1, put(0, "K", T1), END), replica(2, put(0, "K", T1), END)),
    ),
    case(
        "open, and its marker lies beyond the log's end",
        wrote=(put(0, "K", T1), put(1, "L"), commit(2, T1), put(3, "L")),
        after=(
            replica(1, put(0, "K", T1), put(1, "L"), commit(2, T1), put(3, "L"), high_watermark=4),
            replica(2, put(0, "K", T1), put(1, "L")),
        ),
    ),
    case(
        "open, and its marker is not replicated",
        wrote=(put(0, "K", T1), put(1, "L"), commit(2, T1)),
        in_doubt=(T1,),
        after=(replica(1, put(0, "K", T1), put(1, "L"), commit(2, T1)), replica(2, put(0, "K", T1), put(1, "L"))),
    ),
    case(
        "open, and its marker was truncated",
        wrote=(put(0, "K", T1), put(1, "L"), END),
        before=(replica(1, put(0, "K", T1)), absent(2, put(0, "K", T1), abort(1, T1))),
        after=(replica(1, put(0, "K", T1), put(1, "L"), END), replica(2, put(0, "K", T1), put(1, "L"), END)),
    ),
    case(
        "a follower's LSO lags behind its high watermark",
        wrote=(put(0, "K", T1), commit(1, T1), END),
        after=(
            replica(1, put(0, "K", T1), commit(1, T1), END),
            replica(2, put(0, "K", T1), commit(1, T1), END, last_stable_offset=0),
        ),
    ),
]
