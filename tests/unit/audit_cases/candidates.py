"""Replicas differ, and more than one anomaly would explain it."""

from __future__ import annotations

from copied import copy
from literal import commit, delete, put

from audit_cases.case import DIVERGED, END, HIDDEN, POISON, T1, V1, V2, anomaly, undecided
from checkers.finding import VISIBLE

CANDIDATE_CASES = [
    anomaly(
        "a transactional tombstone is missing, and its marker too",
        (copy(1, delete(1, "K", T1), commit(2, T1), END), copy(2, put(0, "K"), END)),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "a transactional tombstone is missing, and its marker is present",
        (copy(1, delete(1, "K", T1), commit(2, T1), END), copy(2, put(0, "K"), commit(2, T1), END)),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON)),
    ),
    anomaly(
        "a tombstone is missing whose own marker (v2) is present",
        (copy(1, delete(1, "K", V1), commit(2, V2), END), copy(2, put(0, "K"), commit(2, V2), END)),
        undecided(DIVERGED, 2, 0, "K", 6, VISIBLE, candidates=(DIVERGED, POISON)),
    ),
    anomaly(
        "a tombstone is missing whose own marker (v2) is elsewhere alone",
        (copy(1, delete(1, "K", V1), commit(2, V2), END), copy(2, put(0, "K"), END)),
        undecided(DIVERGED, 2, 0, "K", 6, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
]
