"""Transactions that the literal histories share."""

from literal import Entry, Txn, abort, commit, put

T1, T2, T3 = Txn(5, "t/1"), Txn(5, "t/2"), Txn(5, "t/3")
"""Transactions of one producer whose epoch stays (v1, as librdkafka writes them): a marker may be any of theirs."""
V1, V2, V3 = Txn(6, "v/1", epoch=0), Txn(6, "v/2", epoch=1), Txn(6, "v/3", epoch=2)
"""Transactions of one producer whose epoch rises with each (v2, KIP-890); brokers write V1's marker in V2's epoch."""
U1, X1 = Txn(7, "u/1"), Txn(8, "x/1")
"""Transactions of other producers."""
END = put(9, "end")
"""Logs end with a record: the cleaner leaves the last segment alone."""


def good(offset: int, txn: Txn = T2) -> tuple[Entry, Entry]:
    """Return a committed transaction; without the marker of an earlier one, its COMMIT ends that one, too."""
    return put(offset, "good", txn), commit(offset + 1, txn)


def garbage(offset: int, txn: Txn = T2) -> tuple[Entry, Entry]:
    """Return an aborted transaction; without the marker of an earlier one, its ABORT ends that one, too."""
    return put(offset, "garbage", txn), abort(offset + 1, txn)
