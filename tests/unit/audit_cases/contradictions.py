"""Replicas that no history of one log explains."""

from checker_cases.transactions import END, T1
from copied import copy
from literal import abort, aborted, commit, put

from audit_cases.case import clean, unknown
from audit_cases.open_transactions import OPEN

DECIDED = (put(0, "K", T1), commit(1, T1), END)
HIDDEN_ALIKE = (put(0, "K", T1), abort(1, T1), END)
CONTRADICTION_CASES = [
    unknown("a producer snapshot holds open what the log has ended",
        copy(1, *DECIDED, snapshots={10: {T1: 0}}), copy(2, *DECIDED),
        says="broker 1: its producer snapshot holds a transaction of producer 5 open from 0 on, its log from no offset",
    ),
    unknown("a producer snapshot does not have what the log holds open",
        copy(1, *OPEN), copy(2, *OPEN, snapshots={10: {T1: None}}),
        says="broker 2: its producer snapshot holds a transaction of producer 5 open from no offset on, its log from 0",
    ),
    clean("a producer snapshot agrees", copy(1, *OPEN, snapshots={10: {T1: 0}}), copy(2, *OPEN)),
    clean("a producer snapshot from before the last segment proves nothing",
        copy(1, *DECIDED, rolled_at=(0, 9), snapshots={1: {T1: None}}), copy(2, *DECIDED),
    ),
    clean("a producer snapshot was taken before the marker",
        copy(1, *DECIDED, snapshots={1: {T1: 0}}), copy(2, *DECIDED),
    ),
    unknown("a .txnindex has what the log has committed",
        copy(1, *DECIDED, index=(aborted(T1, 0, 1),)), copy(2, *DECIDED),
        says="broker 1: its .txnindex has the batch at offset 0 among aborted transactions, but in its log it is "
        "committed",
    ),
    unknown("a .txnindex does not have a transaction that the log has aborted",
        copy(1, *HIDDEN_ALIKE), copy(2, *HIDDEN_ALIKE, index=()),
        says="broker 2: its .txnindex does not have the batch at offset 0 among aborted transactions",
    ),
]  # fmt: skip
