"""Markers are on some replica or in a ``.txnindex``, or a higher producer epoch shows that a marker was missed."""

from dataclasses import replace

from checker_cases.case import DIVERGED, HIDDEN, LATENT, POISON, STUCK, VISIBLE, Finding
from checker_cases.transactions import END, T1, T2, V1, V2, V3, garbage, good
from copied import copy
from literal import abort, aborted, commit, delete, put

from audit_cases.case import UNEXPLAINED, anomaly, both, clean, undecided
from checkers.reduction.packed_spans import CHUNK_OFFSETS

MARKER_CASES = [
    anomaly("stuck, and the marker is still elsewhere",
        copy(1, commit(1, T1), put(2, "K"), END), copy(2, put(0, "K", T1), put(2, "K"), END),
        Finding(
            STUCK, 2, 0, "K", 5, VISIBLE, says="read_committed is frozen at 0",
            witness={"outcome": "committed", "marker_seen_elsewhere_at": 1, "high_watermark_here": 10},
        ),
    ),
    anomaly("poison, and the ABORT is still elsewhere",
        copy(1, abort(1, T1), *good(2), END), copy(2, put(0, "poison", T1), *good(2), END),
        undecided(
            POISON, 2, 0, "poison", 5, VISIBLE, says="applies the COMMIT at offset 3 to the transaction",
            witness={"outcome": "aborted", "believed_here": "committed", "records": 1},
        ),
    ),
    anomaly("hidden, and the COMMIT is still elsewhere",
        copy(1, put(0, "K", T1), commit(1, T1), *garbage(2), END), copy(2, put(0, "K", T1), *garbage(2), END),
        undecided(
            HIDDEN, 2, 0, "K", 5, VISIBLE, says="the key's final state is wrong",
            witness={"marker_taken_here_at": 3, "evidence": ["log", "txnindex"]},
        ),
    ),
    anomaly("a delete is undone, and the COMMIT is still elsewhere",
        copy(1, delete(1, "K", T1), commit(2, T1), abort(4, T2), END),
        copy(2, put(0, "K"), delete(1, "K", T1), *garbage(3), END),
        undecided(HIDDEN, 2, 1, "K", 5, VISIBLE, says="the deleted value at offset 0 is back"),
    ),
    anomaly("alive, and the tombstone is still elsewhere",
        copy(1, delete(1, "K"), END), copy(2, put(0, "K"), END),
        Finding(
            DIVERGED, 2, 0, "K", -1, VISIBLE, says="deleted key K is back: it was deleted at offset 1",
            witness={"deleted_at": 1, "alive_here_at": 0},
        ),
    ),
    anomaly("alive on two of three replicas, and the majority does not count",
        copy(1, put(0, "K"), END), copy(2, delete(1, "K"), END), copy(3, put(0, "K"), END),
        Finding(DIVERGED, 1, 0, "K", -1, VISIBLE), Finding(DIVERGED, 3, 0, "K", -1, VISIBLE),
    ),
    anomaly("nothing is left but the span of a .txnindex with a COMMIT inside",
        copy(1, commit(1, T1), abort(4, T2), put(5, "K"), END, index=(aborted(T2, 3, 4),)),
        copy(2, abort(4, T2), put(5, "K"), END, index=(aborted(T1, 0, 4),)),
        Finding(
            HIDDEN, 2, 0, None, 5, LATENT, says="was committed at offset 1, and this broker's .txnindex lists it",
            witness={"evidence": ["span"], "marker_taken_here_at": 4, "marker_seen_elsewhere_at": 1},
        ),
    ),
]  # fmt: skip

OVERTAKEN_CASES = [
    anomaly("open, and overtaken by data of a higher epoch on every replica",
        *both(put(0, "K", V1), put(4, "L", V2)),
        Finding(STUCK, 1, 0, "K", 6, VISIBLE, witness={"outcome": "decided", "overtaken_by_a_higher_epoch_at": 4}),
        Finding(STUCK, 2, 0, "K", 6, VISIBLE, witness={"outcome": "decided", "overtaken_by_a_higher_epoch_at": 4}),
    ),
    *(
        anomaly(f"overtaken{where}, and committed by the next marker",
            copy(1, put(at, "L", V2), commit(at + 1, V3), put(at + 2, "K"), put(at + 5, "end")),
            copy(2, put(0, "K", V1), put(at, "L", V2), commit(at + 1, V3), put(at + 2, "K"), put(at + 5, "end")),
            Finding(UNEXPLAINED, 2, 0, "K", 6, LATENT, candidates=(UNEXPLAINED, POISON),
                says="a marker of producer 6 is missing between offset 0 (key K) "
                f"and its data of a higher epoch at {at}",
                witness={"believed_here": "committed", "marker_taken_here_at": at + 1},
            ),
        )
        for where, at in (("", 4), (" in the next chunk of offsets", CHUNK_OFFSETS))
    ),
    anomaly("overtaken, and aborted by the next marker",
        copy(1, abort(5, V3), put(6, "K"), END),
        copy(2, put(0, "K", V1), put(4, "L", V2), abort(5, V3), put(6, "K"), END),
        Finding(UNEXPLAINED, 2, 0, "K", 6, LATENT, candidates=(UNEXPLAINED, HIDDEN)),
    ),
    clean("overtaken on every replica, as a batch came late",
        *both(put(0, "K", V1), put(4, "L", V2), commit(5, V3), END),
    ),
    clean("a gap between epochs proves nothing",
        *both(put(0, "K", V1), commit(1, V2), put(4, "L", V3), commit(5, replace(V3, epoch=3)), END),
    ),
]  # fmt: skip
