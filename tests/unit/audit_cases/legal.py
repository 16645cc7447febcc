"""Differences that compaction, retention and lag make, and logs with tails of an earlier leader epoch."""

from checker_cases.case import VISIBLE, Finding
from checker_cases.transactions import END, T1
from copied import copy
from literal import abort, commit, delete, emptied, led, put

from audit_cases.case import UNEXPLAINED, anomaly, both, clean, unknown

X = put(6, "x")
LEGAL_CASES = [
    clean("cleaned at different times",
        copy(1, put(0, "K"), put(1, "K"), put(2, "D"), delete(3, "D"), put(4, "x", T1), commit(5, T1), X, END),
        copy(2, put(1, "K"), emptied(2), delete(3, "D"), put(4, "x", T1), commit(5, T1), X, END),
        copy(3, put(1, "K"), emptied(4, T1), commit(5, T1), X, END, high_watermark=3),
    ),
    clean("a later record beyond the bound may have removed it", copy(1, END, put(10, "K")), copy(2, put(0, "K"), END)),
    unknown("cleaned beyond the other's log end",
        copy(1, END, put(12, "L")), copy(2, put(0, "K"), END),
        says="the log of broker 2 ends at 10, and broker 1 has cleaned beyond that: removed records cannot be",
    ),
    clean("a log start that was moved", copy(1, END, log_start=1), copy(2, put(0, "K"), END)),
    clean("a log start that was moved, and only one broker has written it down",
        copy(1, put(0, "K"), delete(1, "K"), END, log_start=2), copy(2, put(0, "K"), END),
    ),
    clean("that start, and a third broker has removed what is below it",
        copy(1, END, log_start=2), copy(2, put(0, "K"), END), copy(3, END),
    ),
    clean("a log whose first segments are gone",
        copy(1, put(5, "L"), END, rolled_at=(5,)), copy(2, put(0, "K"), put(5, "L"), END),
    ),
    clean("no checkpoints", *both(put(0, "K"), END, checkpoints=False)),
    unknown("one replica",
        copy(4, put(0, "K"), END), says="there is only the replica of broker 4, and nothing to compare it with",
    ),
    clean("segments that were rolled at other places",
        copy(1, put(0, "K"), END, rolled_at=(0, 9)), copy(2, put(0, "K"), END),
    ),
]  # fmt: skip

BEFORE = led(0, put(0, "K"), put(1, "L"))
STALE = led(0, put(2, "M"), put(3, "L"), put(4, "K"))
AGAIN = copy(1, *led(0, put(1, "L"), put(2, "K")), *led(2, put(3, "N")), epochs={0: 0, 2: 3})
LINEAGE_CASES = [
    clean("a stale tail, by the batches' epochs",
        copy(1, *BEFORE, *led(1, put(2, "K"), put(3, "N"))), copy(2, *BEFORE, *STALE),
        says="2 replicas were read to offset 2 and agree",
    ),
    clean("a stale tail, by the checkpoints of leader epochs",
        copy(1, *BEFORE, *led(1, put(2, "K"), put(3, "N")), epochs={0: 0, 1: 2}),
        copy(2, *BEFORE, *STALE, epochs={0: 0}), says="2 replicas were read to offset 2 and agree",
    ),
    unknown("a stale tail, and the first batch of the new epoch is cleaned away",
        copy(1, *BEFORE, *led(1, put(3, "N"), put(4, "N")), epochs={0: 0, 1: 2}),
        copy(2, *BEFORE, *STALE, epochs={0: 0}),
        says="the log of broker 2 ends at 2, and broker 1 has cleaned beyond that",
    ),
    clean("the side files' entries of a stale tail are left out, too",
        copy(1, *BEFORE, *led(1, put(2, "K"), put(3, "N"))),
        copy(2, *BEFORE, *led(0, put(2, "M", T1), abort(3, T1)), snapshots={4: {T1: None}}),
        says="2 replicas were read to offset 2 and agree",
    ),
    clean("a stale tail that begins with an ABORT, where the newer leader has written the COMMIT",
        copy(1, *led(0, put(0, "K"), put(1, "L", T1)), *led(1, commit(2, T1), put(3, "N"))),
        copy(2, *led(0, put(0, "K"), put(1, "L", T1), abort(2, T1))), says="2 replicas were read to offset 2 and agree",
    ),
    clean("a stale tail of a leader that failed before the leader before, elected again, was truncated",
        AGAIN, copy(2, *BEFORE, *led(1, put(2, "M")), epochs={0: 0, 1: 2}),
        says="2 replicas were read to offset 2 and agree",
    ),
    clean("no stale tail, as the leader that failed had written nothing",
        AGAIN, copy(2, *BEFORE, epochs={0: 0, 1: 2}), says="2 replicas were read to offset 2 and agree",
    ),
    anomaly("no stale tail, as both logs continue: one was not truncated",
        copy(1, *BEFORE, *led(1, put(2, "K")), *led(2, put(3, "N"))),
        copy(2, *BEFORE, *led(0, emptied(2)), *led(2, put(3, "N"))), Finding(UNEXPLAINED, 2, 2, "K", -1, VISIBLE),
    ),
    anomaly("no stale tail, as both logs continue in the epoch of the newer leader",
        copy(1, *BEFORE, *led(1, put(2, "K"), put(3, "N"))),
        copy(2, *BEFORE, *led(0, emptied(2)), *led(1, put(3, "N"))), Finding(UNEXPLAINED, 2, 2, "K", -1, VISIBLE),
    ),
    clean("a later record is no stale tail, as the leader that followed has written nothing",
        copy(1, END, epochs={0: 0, 1: 10}), copy(2, put(0, "K"), END, put(10, "K"), epochs={0: 0}),
    ),
    clean("leaders that followed each other",
        *both(*BEFORE, *led(1, put(2, "K")), *led(4, put(3, "N")), epochs={0: 0, 1: 2, 4: 3}),
        says="2 replicas were read to offset 4 and agree",
    ),
]  # fmt: skip
