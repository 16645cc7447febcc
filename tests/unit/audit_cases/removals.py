"""Tombstones or markers are gone, or more than one anomaly would explain the difference."""

from checker_cases.case import DIVERGED, POISON, Finding
from checker_cases.transactions import END, T1, U1, V1, V2, V3, good
from copied import copy
from literal import commit, delete, put

from audit_cases.case import ANY, UNEXPLAINED, anomaly, undecided
from checkers.finding import VISIBLE

REMOVAL_CASES = [
    anomaly("alive, and its tombstone is gone everywhere",
        copy(1, END), copy(2, put(0, "K"), END),
        undecided(
            DIVERGED, 2, 0, "K", -1, VISIBLE, says="broker 1, whose log covers that offset, has removed the value",
            witness={"removed_by_broker": 1, "in_a_transaction": False},
        ),
    ),
    anomaly("alive, and the partition has transactions",
        copy(1, put(4, "x", U1), commit(5, U1), END), copy(2, put(0, "K"), put(4, "x", U1), commit(5, U1), END),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE, candidates=ANY),
    ),
    anomaly("served, and elsewhere an older value is alive, as after an abort",
        copy(1, put(0, "K"), *good(4), END), copy(2, put(0, "K"), put(2, "K", T1), *good(4), END),
        undecided(
            POISON, 2, 2, "K", 5, VISIBLE, says="broker 1 has removed it and still has the older value of offset 0",
            witness={"marker_taken_here_at": 5, "removed_by_broker": 1, "older_value_there_at": 0},
        ),
    ),
    anomaly("a marker of the next epoch says that it was committed: its own (v2), or of a producer that started again",
        copy(1, put(0, "K"), put(4, "g", V2), commit(5, V3), END),
        copy(2, put(0, "K"), put(2, "K", V1), commit(3, V2), put(4, "g", V2), commit(5, V3), END),
        undecided(
            UNEXPLAINED, 1, 2, "K", 6, VISIBLE, says="broker 2 has a committed value at offset 2",
            witness={"held_by_broker": 2, "last_here_at": 0}, candidates=(UNEXPLAINED, POISON),
        ),
    ),
    anomaly("alive, and the log with its tombstone starts after it",
        copy(1, put(7, "y"), delete(8, "K"), END, rolled_at=(7,)), copy(2, put(5, "K"), put(7, "y"), END),
        Finding(DIVERGED, 2, 5, "K", -1, VISIBLE),
    ),
    anomaly("a value without a transaction is lost, and an older one lives",
        copy(1, put(0, "K"), put(2, "K"), END), copy(2, put(0, "K"), END),
        Finding(
            UNEXPLAINED, 2, 2, "K", -1, VISIBLE,
            says="this broker has lost that value and serves the value of offset 0",
        ),
    ),
]  # fmt: skip

CANDIDATE_CASES = [
    anomaly("a transactional tombstone is missing, and its marker too",
        copy(1, delete(1, "K", T1), commit(2, T1), END), copy(2, put(0, "K"), END),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=ANY),
    ),
    anomaly("a transactional tombstone is missing, and its marker is present",
        copy(1, delete(1, "K", T1), commit(2, T1), END), copy(2, put(0, "K"), commit(2, T1), END),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON)),
    ),
    anomaly("a tombstone is missing whose own marker (v2) is present",
        copy(1, delete(1, "K", V1), commit(2, V2), END), copy(2, put(0, "K"), commit(2, V2), END),
        undecided(DIVERGED, 2, 0, "K", 6, VISIBLE, candidates=(DIVERGED, POISON)),
    ),
    anomaly("a tombstone is missing whose own marker (v2) is elsewhere alone",
        copy(1, delete(1, "K", V1), commit(2, V2), END), copy(2, put(0, "K"), END),
        undecided(DIVERGED, 2, 0, "K", 6, VISIBLE, candidates=ANY),
    ),
]  # fmt: skip
