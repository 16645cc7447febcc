"""Differences that compaction, retention and lag make."""

from __future__ import annotations

from copied import copy
from literal import commit, delete, emptied, put

from audit_cases.case import END, T1, clean, unknown

X = put(6, "x")
LEGAL_CASES = [
    clean(
        "cleaned at different times",
        copy(1, put(0, "K"), put(1, "K"), put(2, "D"), delete(3, "D"), put(4, "x", T1), commit(5, T1), X, END),
        copy(2, put(1, "K"), emptied(2), delete(3, "D"), put(4, "x", T1), commit(5, T1), X, END),
        copy(3, put(1, "K"), emptied(4, T1), commit(5, T1), X, END, high_watermark=3),
    ),
    clean("a later record beyond the bound may have removed it", copy(1, END, put(10, "K")), copy(2, put(0, "K"), END)),
    unknown(
        "cleaned beyond the other's log end",
        copy(1, END, put(12, "L")),
        copy(2, put(0, "K"), END),
        says="the log of broker 2 ends at 10, and broker 1 has cleaned beyond that: removed records cannot be",
    ),
    clean("a log start that was moved", copy(1, END, log_start=1), copy(2, put(0, "K"), END)),
    clean(
        "a log start that was moved, and only one broker has written it down",
        copy(1, put(0, "K"), delete(1, "K"), END, log_start=2),
        copy(2, put(0, "K"), END),
    ),
    clean(
        "that start, and a third broker has removed what is below it",
        copy(1, END, log_start=2),
        copy(2, put(0, "K"), END),
        copy(3, END),
    ),
    clean(
        "a log whose first segments are gone",
        copy(1, put(5, "L"), END, rolled_at=(5,)),
        copy(2, put(0, "K"), put(5, "L"), END),
    ),
    clean("no checkpoints", copy(1, put(0, "K"), END, checkpoints=False), copy(2, put(0, "K"), END, checkpoints=False)),
    unknown(
        "one replica",
        copy(4, put(0, "K"), END),
        says="there is only the replica of broker 4, and nothing to compare it with",
    ),
    clean(
        "segments that were rolled at other places",
        copy(1, put(0, "K"), END, rolled_at=(0, 9)),
        copy(2, put(0, "K"), END),
    ),
]
