"""Legal differences between replicas: no checker may report any of them."""

from literal import abort, absent, commit, delete, emptied, emptied_marker, put, replica

from checker_cases.case import END, T1, T2, U1, V1, V2, case

LEGAL_CASES = [
    case(
        "superseded value still there",
        wrote=(put(0, "K"), put(2, "K"), END),
        after=(replica(1, put(2, "K"), END), replica(2, put(0, "K"), put(2, "K"), END)),
    ),
    case(
        "tombstone still there, with and without its value",
        wrote=(put(0, "K"), delete(1, "K"), END),
        after=(
            replica(1, END),
            replica(2, delete(1, "K"), END),
            replica(3, put(0, "K"), delete(1, "K", horizon_ms=7), END),
        ),
    ),
    case(
        "key written again after its delete",
        wrote=(put(0, "K"), delete(1, "K"), put(2, "K"), END),
        after=(replica(1, put(2, "K"), END), replica(2, put(0, "K"), delete(1, "K"), put(2, "K"), END)),
    ),
    case(
        "empty batches and gaps",
        wrote=(put(0, "K", T1), commit(1, T1), put(2, "L"), put(3, "K"), put(4, "L"), END),
        after=(
            replica(1, put(0, "K", T1), commit(1, T1), put(2, "L"), put(3, "K"), put(4, "L"), END),
            replica(2, emptied(0, T1), commit(1, T1), emptied(2), put(3, "K"), put(4, "L"), END),
            replica(3, put(3, "K"), put(4, "L"), END),
        ),
    ),
    case(
        "emptied marker with nothing to close",
        wrote=(put(0, "K", V1), commit(1, V1), put(2, "K"), END),
        after=(replica(1, emptied_marker(1, V1), put(2, "K"), END), replica(2, put(2, "K"), END)),
    ),
    case(
        "another log start",
        wrote=(put(0, "K"), put(1, "L", T1), commit(2, T1), END),
        after=(replica(1, put(0, "K"), put(1, "L", T1), commit(2, T1), END), replica(2, END, log_start=3)),
    ),
    case(
        "another log start, inside a segment, hides a deleted value",
        wrote=(put(0, "K"), delete(4, "K"), END),
        after=(replica(1, END), replica(2, put(0, "K"), END, log_start=3)),
    ),
    case(
        "another log start, inside a segment, hides poison",
        wrote=(put(0, "poison", T1), abort(1, T1), put(3, "good", T2), commit(4, T2)),
        after=(
            replica(1, put(3, "good", T2), commit(4, T2)),
            replica(2, put(0, "poison", T1), put(3, "good", T2), commit(4, T2), log_start=2),
        ),
    ),
    case(
        "cleaned beyond another's log end",
        wrote=(put(0, "K"), put(1, "L"), put(2, "M"), put(5, "K"), END),
        after=(
            replica(1, put(1, "L"), put(2, "M"), put(5, "K"), END, high_watermark=10),
            replica(2, put(0, "K"), put(1, "L"), put(2, "M")),
        ),
    ),
    case(
        "deleted and cleaned beyond another's log end",
        wrote=(put(0, "K"), put(1, "L"), put(2, "M"), delete(5, "K"), END),
        after=(
            replica(1, put(1, "L"), put(2, "M"), END, high_watermark=10),
            replica(2, put(0, "K"), put(1, "L"), put(2, "M")),
        ),
    ),
    case(
        "read beyond the log end of another",
        wrote=(put(0, "K"), put(1, "L"), put(2, "M")),
        after=(
            replica(1, put(0, "K"), put(1, "L")),
            replica(2, put(0, "K"), put(1, "L"), put(2, "M"), high_watermark=3),
        ),
    ),
    case(
        "high watermark on disk lags where a broker is down",
        wrote=(put(0, "K"), delete(1, "K"), END),
        after=(replica(1, END), absent(2, put(0, "K"), delete(1, "K"), END), replica(3, delete(1, "K"), END)),
    ),
    case(
        "truncated beyond the high watermark",
        wrote=(put(0, "K"), put(1, "M"), END),
        before=(replica(1, put(0, "K")), absent(2, put(0, "K"), put(1, "L"))),
        after=(replica(1, put(0, "K"), put(1, "M"), END), replica(2, put(0, "K"), put(1, "M"), END)),
    ),
    case(
        "truncated, and others have gone on",
        client=False,
        before=(
            replica(1, put(0, "K"), put(1, "M", U1), commit(2, U1), END),
            absent(2, put(0, "K"), put(1, "L", T1), put(2, "N")),
        ),
        after=(
            replica(1, put(0, "K"), put(1, "M", U1), commit(2, U1), END),
            replica(2, put(0, "K"), put(1, "M", U1), commit(2, U1), END),
        ),
    ),
    case(
        "both transactions decided alike, one marker lost",
        wrote=(put(0, "K", V1),),
        outage=(commit(1, V1),),
        late=(put(2, "L", V2), commit(3, V2)),
        after=(
            replica(1, put(0, "K", V1), commit(1, V1), put(2, "L", V2), commit(3, V2)),
            replica(2, put(0, "K", V1), put(2, "L", V2), commit(3, V2)),
        ),
    ),
    case(
        "epochs rise from transaction to transaction",
        wrote=(put(0, "K", V1), abort(1, V1), put(2, "K", V2), commit(3, V2)),
        after=(
            replica(1, put(0, "K", V1), abort(1, V1), put(2, "K", V2), commit(3, V2)),
            replica(2, put(2, "K", V2), commit(3, V2)),
        ),
    ),
    case(
        "unknown outcomes, the same everywhere",
        wrote=(put(0, "K", T1), commit(1, T1), put(2, "L", U1), abort(3, U1), END),
        in_doubt=(T1, U1),
        after=(
            replica(1, put(0, "K", T1), commit(1, T1), put(2, "L", U1), abort(3, U1), END),
            replica(2, put(0, "K", T1), commit(1, T1), put(2, "L", U1), abort(3, U1), END),
        ),
    ),
    case(
        "duplicate of an acknowledged record in its own transaction",
        wrote=(put(0, "K", T1), commit(2, T1), END),
        after=(
            replica(1, put(0, "K", T1), put(1, "K", T1), commit(2, T1), END),
            replica(2, put(1, "K", T1), commit(2, T1), END),
        ),
    ),
    case(
        "duplicate of an acknowledged record in the next transaction, which is aborted",
        wrote=(put(0, "K", T1), commit(1, T1), put(3, "L", T2), abort(4, T2), END),
        after=(
            replica(1, put(0, "K", T1), commit(1, T1), put(2, "K", T1), put(3, "L", T2), abort(4, T2), END),
            replica(2, put(0, "K", T1), commit(1, T1), put(2, "K", T1), put(3, "L", T2), abort(4, T2), END),
        ),
    ),
    case(
        "an aborted delete deletes nothing",
        wrote=(put(0, "K"), delete(1, "K", T1), abort(2, T1), END),
        after=(replica(1, put(0, "K"), END), replica(2, put(0, "K"), delete(1, "K", T1), abort(2, T1), END)),
    ),
    case(
        "an aborted record is gone on one replica",
        wrote=(put(0, "K", T1), abort(1, T1), END),
        after=(replica(1, END), replica(2, put(0, "K", T1), abort(1, T1), END)),
    ),
    case(
        "deleted twice, and one replica has had only the first tombstone",
        wrote=(put(0, "K"), delete(1, "K")),
        outage=(delete(3, "K"), END),
        after=(replica(1, END), replica(2, delete(1, "K"), END)),
    ),
]
