"""Logs with tails of an earlier leader epoch."""

from __future__ import annotations

from copied import copy
from literal import abort, commit, led, put

from audit_cases.case import T1, clean, unknown

BEFORE = led(0, put(0, "K"), put(1, "L"))
STALE = led(0, put(2, "M"), put(3, "L"), put(4, "K"))
LINEAGE_CASES = [
    clean(
        "a stale tail, by the batches' epochs",
        copy(1, *BEFORE, *led(1, put(2, "K"), put(3, "N"))),
        copy(2, *BEFORE, *STALE),
        says="2 replicas were read to offset 2 and agree",
    ),
    clean(
        "a stale tail, by the checkpoints of leader epochs",
        copy(1, *BEFORE, *led(1, put(2, "K"), put(3, "N")), epochs={0: 0, 1: 2}),
        copy(2, *BEFORE, *STALE, epochs={0: 0}),
        says="2 replicas were read to offset 2 and agree",
    ),
    unknown(
        "a stale tail, and the first batch of the new epoch is cleaned away",
        copy(1, *BEFORE, *led(1, put(3, "N"), put(4, "N")), epochs={0: 0, 1: 2}),
        copy(2, *BEFORE, *STALE, epochs={0: 0}),
        says="the log of broker 2 ends at 2, and broker 1 has cleaned beyond that",
    ),
    clean(
        "the side files' entries of a stale tail are left out, too",
        copy(1, *BEFORE, *led(1, put(2, "K"), put(3, "N"))),
        copy(2, *BEFORE, *led(0, put(2, "M", T1), abort(3, T1)), snapshots={4: {T1: None}}),
        says="2 replicas were read to offset 2 and agree",
    ),
    clean(
        "a stale tail that begins with an ABORT, where the newer leader has written the COMMIT",
        copy(1, *led(0, put(0, "K"), put(1, "L", T1)), *led(1, commit(2, T1), put(3, "N"))),
        copy(2, *led(0, put(0, "K"), put(1, "L", T1), abort(2, T1))),
        says="2 replicas were read to offset 2 and agree",
    ),
    clean(
        "leaders that followed each other",
        copy(1, *BEFORE, *led(1, put(2, "K")), *led(4, put(3, "N")), epochs={0: 0, 1: 2, 4: 3}),
        copy(2, *BEFORE, *led(1, put(2, "K")), *led(4, put(3, "N")), epochs={0: 0, 1: 2, 4: 3}),
        says="2 replicas were read to offset 4 and agree",
    ),
]
