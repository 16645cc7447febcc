"""A higher producer epoch shows that a marker was missed."""

from __future__ import annotations

from dataclasses import replace

from copied import copy
from literal import abort, commit, put

from audit_cases.case import END, HIDDEN, POISON, STUCK, V1, V2, V3, Finding, anomaly, clean
from checkers.finding import LATENT, VISIBLE
from checkers.finding import UNEXPLAINED_DIVERGENCE as UNEXPLAINED

OVERTAKEN_CASES = [
    anomaly(
        "open, and overtaken by data of a higher epoch on every replica",
        (
            copy(1, put(0, "K", V1), put(4, "L", V2)),
            copy(2, put(0, "K", V1), put(4, "L", V2)),
        ),
        Finding(STUCK, 1, 0, "K", 6, VISIBLE, witness={"outcome": "decided", "overtaken_by_a_higher_epoch_at": 4}),
        Finding(STUCK, 2, 0, "K", 6, VISIBLE, witness={"outcome": "decided", "overtaken_by_a_higher_epoch_at": 4}),
    ),
    anomaly(
        "overtaken, and committed by the next marker",
        (
            copy(1, put(4, "L", V2), commit(5, V3), put(6, "K"), END),
            copy(2, put(0, "K", V1), put(4, "L", V2), commit(5, V3), put(6, "K"), END),
        ),
        Finding(
            UNEXPLAINED, 2, 0, "K", 6, LATENT, candidates=(UNEXPLAINED, POISON),
            says="a marker of producer 6 is missing between offset 0 (key K) and its data of a higher epoch at 4",
            witness={"believed_here": "committed", "marker_taken_here_at": 5},
        ),
    ),
    anomaly(
        "overtaken, and aborted by the next marker",
        (
            copy(1, abort(5, V3), put(6, "K"), END),
            copy(2, put(0, "K", V1), put(4, "L", V2), abort(5, V3), put(6, "K"), END),
        ),
        Finding(UNEXPLAINED, 2, 0, "K", 6, LATENT, candidates=(UNEXPLAINED, HIDDEN)),
    ),
    clean(
        "a gap between epochs proves nothing",
        copy(1, put(0, "K", V1), commit(1, V2), put(4, "L", V3), commit(5, replace(V3, epoch=3)), END),
        copy(2, put(0, "K", V1), commit(1, V2), put(4, "L", V3), commit(5, replace(V3, epoch=3)), END),
    ),
]  # fmt: skip
