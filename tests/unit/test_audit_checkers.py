"""What audits say of hand-written logs without any client: what must be found, and what is legal or cannot be told.

One case a set of copied log directories, and all of them judged in one Spark job, twice: by all that they hold, and by
what is left of them after the reduction. Both have to say the same, and each case states all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from copied import Copy, copy, segment_name, write_copies
from literal import Txn, abort, aborted, commit, delete, emptied, emptied_marker, led, put, together, untied
from sample_logs import old_entry

from checkers.evidence import load_copies
from checkers.finding import HANGING_TRANSACTION as HANGING
from checkers.finding import LATENT, VISIBLE
from checkers.finding import UNEXPLAINED_DIVERGENCE as UNEXPLAINED
from checkers.reduce import reduce_copies
from harness.audit.copies import find_copies
from harness.audit.judge import assemble, judge_reduced, judge_whole
from harness.verdict import ANOMALY, CLEAN, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from harness.audit.copies import Copies

T1, T2 = Txn(5, "t/1"), Txn(5, "t/2")
"""Transactions of one producer whose epoch stays (v1): a marker may be any of theirs."""
V1, V2, V3 = Txn(6, "v/1", epoch=0), Txn(6, "v/2", epoch=1), Txn(6, "v/3", epoch=2)
"""Transactions of one producer whose epoch rises with each end (v2, KIP-890): V1's own marker is in the epoch of V2."""
U1, X1 = Txn(7, "u/1"), Txn(8, "x/1")
"""Transactions of other producers."""

STUCK, POISON = "stuck-lso", "aborted-to-committed"
HIDDEN, DIVERGED = "committed-to-aborted", "tombstone-divergence"

END = put(9, "end")
"""Logs end with a record: the cleaner leaves the last segment alone."""


@dataclass(frozen=True)
class Finding:
    """What a finding must say; ``says`` is in the explanation, ``witness`` among the witness's fields."""

    anomaly: str
    broker: int
    offset: int
    key: str | None
    producer_id: int | None
    effect: str
    candidates: tuple[str, ...] = ()
    says: str = ""
    witness: dict[str, Any] = field(default_factory=dict)
    decided: bool = True


def undecided(*place: Any, **more: Any) -> Finding:
    """Return a finding that accuses nobody; its broker is the one that is described."""
    return replace(Finding(*place, **more), decided=False)


@dataclass(frozen=True)
class Case:
    """Copies of one partition, and all that an audit must say of them; ``says`` is in the partition's reason.

    ``spoil`` does something to the files, in the folder that holds the log directories; ``{top}`` in ``says`` is that
    folder.
    """

    name: str
    copies: tuple[Copy, ...]
    verdict: str
    findings: tuple[Finding, ...] = ()
    says: str = ""
    spoil: Callable[[Path], None] = lambda _: None


def clean(name: str, *copies: Copy, **more: Any) -> Case:
    return Case(name, copies, CLEAN, **{"says": f"{len(copies)} replicas were read to offset", **more})


def unknown(name: str, *copies: Copy, says: str, **more: Any) -> Case:
    return Case(name, copies, UNKNOWN, says=says, **more)


def anomaly(name: str, copies: tuple[Copy, ...], *findings: Finding) -> Case:
    return Case(name, copies, ANOMALY, findings, findings[0].says)


MARKER_CASES = [
    anomaly(
        "stuck, and the marker is still elsewhere",
        (
            copy(1, commit(1, T1), put(2, "K"), END),
            copy(2, put(0, "K", T1), put(2, "K"), END),
        ),
        Finding(
            STUCK, 2, 0, "K", 5, VISIBLE, says="read_committed is frozen at 0",
            witness={"outcome": "committed", "marker_seen_elsewhere_at": 1, "high_watermark_here": 10},
        ),
    ),
    anomaly(
        "poison, and the ABORT is still elsewhere",
        (
            copy(1, abort(1, T1), put(2, "good", T2), commit(3, T2), END),
            copy(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2), END),
        ),
        undecided(
            POISON, 2, 0, "poison", 5, VISIBLE, says="takes the COMMIT at offset 3 for its end",
            witness={"outcome": "aborted", "believed_here": "committed", "records": 1},
        ),
    ),
    anomaly(
        "hidden, and the COMMIT is still elsewhere",
        (
            copy(1, put(0, "K", T1), commit(1, T1), put(2, "g", T2), abort(3, T2), END),
            copy(2, put(0, "K", T1), put(2, "g", T2), abort(3, T2), END),
        ),
        undecided(
            HIDDEN, 2, 0, "K", 5, VISIBLE, says="the key's final state is wrong",
            witness={"marker_taken_here_at": 3, "evidence": ["log", "txnindex"]},
        ),
    ),
    anomaly(
        "a delete is undone, and the COMMIT is still elsewhere",
        (
            copy(1, delete(1, "K", T1), commit(2, T1), abort(4, T2), END),
            copy(2, put(0, "K"), delete(1, "K", T1), put(3, "g", T2), abort(4, T2), END),
        ),
        undecided(HIDDEN, 2, 1, "K", 5, VISIBLE, says="the deleted value at offset 0 is alive again"),
    ),
    anomaly(
        "alive, and the tombstone is still elsewhere",
        (copy(1, delete(1, "K"), END), copy(2, put(0, "K"), END)),
        Finding(
            DIVERGED, 2, 0, "K", -1, VISIBLE, says="deleted key K is alive: it was deleted at offset 1",
            witness={"deleted_at": 1, "alive_here_at": 0},
        ),
    ),
    anomaly(
        "alive on two of three, which is no vote",
        (copy(1, put(0, "K"), END), copy(2, delete(1, "K"), END), copy(3, put(0, "K"), END)),
        Finding(DIVERGED, 1, 0, "K", -1, VISIBLE),
        Finding(DIVERGED, 3, 0, "K", -1, VISIBLE),
    ),
    anomaly(
        "nothing is left but the span of a .txnindex with a COMMIT inside",
        (
            copy(1, commit(1, T1), abort(4, T2), put(5, "K"), END, index=(aborted(T2, 3, 4),)),
            copy(2, abort(4, T2), put(5, "K"), END, index=(aborted(T1, 0, 4),)),
        ),
        Finding(
            HIDDEN, 2, 0, None, 5, LATENT, says="was committed at offset 1, and this broker's .txnindex has it",
            witness={"evidence": ["span"], "marker_taken_here_at": 4, "marker_seen_elsewhere_at": 1},
        ),
    ),
]  # fmt: skip

REMOVAL_CASES = [
    anomaly(
        "alive, and its tombstone is gone everywhere",
        (copy(1, END), copy(2, put(0, "K"), END)),
        undecided(
            DIVERGED, 2, 0, "K", -1, VISIBLE, says="broker 1, whose log covers that offset, has removed it",
            witness={"removed_by_broker": 1, "in_a_transaction": False},
        ),
    ),
    anomaly(
        "alive, and the partition has transactions",
        (copy(1, put(4, "x", U1), commit(5, U1), END), copy(2, put(0, "K"), put(4, "x", U1), commit(5, U1), END)),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "served, and elsewhere an older value is alive, as after an abort",
        (
            copy(1, put(0, "K"), put(4, "g", T2), commit(5, T2), END),
            copy(2, put(0, "K"), put(2, "K", T1), put(4, "g", T2), commit(5, T2), END),
        ),
        undecided(
            POISON, 2, 2, "K", 5, VISIBLE, says="broker 1 has removed it and still has the older value of offset 0",
            witness={"marker_taken_here_at": 5, "removed_by_broker": 1, "older_value_there_at": 0},
        ),
    ),
    anomaly(
        "its own marker (v2) says that it was committed, so it is no abort",
        (
            copy(1, put(0, "K"), put(4, "g", V2), commit(5, V3), END),
            copy(2, put(0, "K"), put(2, "K", V1), commit(3, V2), put(4, "g", V2), commit(5, V3), END),
        ),
        undecided(
            UNEXPLAINED, 1, 2, "K", 6, VISIBLE, says="broker 2 has a committed value at offset 2",
            witness={"held_by_broker": 2, "last_here_at": 0},
        ),
    ),
    anomaly(
        "a value without a transaction is lost, and an older one lives",
        (copy(1, put(0, "K"), put(2, "K"), END), copy(2, put(0, "K"), END)),
        Finding(UNEXPLAINED, 2, 2, "K", -1, VISIBLE, says="this broker has lost it and serves that of offset 0"),
    ),
]  # fmt: skip

CANDIDATE_CASES = [
    anomaly(
        "a transactional tombstone is missing, and its marker too",
        (
            copy(1, delete(1, "K", T1), commit(2, T1), END),
            copy(2, put(0, "K"), END),
        ),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "a transactional tombstone is missing, and its marker is there",
        (
            copy(1, delete(1, "K", T1), commit(2, T1), END),
            copy(2, put(0, "K"), commit(2, T1), END),
        ),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON)),
    ),
    anomaly(
        "a tombstone is missing whose own marker (v2) is there",
        (
            copy(1, delete(1, "K", V1), commit(2, V2), END),
            copy(2, put(0, "K"), commit(2, V2), END),
        ),
        undecided(DIVERGED, 2, 0, "K", 6, VISIBLE, candidates=(DIVERGED, POISON)),
    ),
    anomaly(
        "a tombstone is missing whose own marker (v2) is elsewhere alone",
        (
            copy(1, delete(1, "K", V1), commit(2, V2), END),
            copy(2, put(0, "K"), END),
        ),
        undecided(DIVERGED, 2, 0, "K", 6, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
]

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

HELD_BY_ONE = copy(2, put(0, "K", T1), put(2, "K"), END)

STUCK_CASES = [
    anomaly(
        "open here, and not open on a broker whose log has nothing of it",
        (copy(1, put(2, "K"), END), HELD_BY_ONE),
        Finding(
            STUCK, 2, 0, "K", 5, VISIBLE,
            witness={"outcome": "decided", "not_open_on_broker": 1, "marker_seen_elsewhere_at": None},
        ),
    ),
    anomaly(
        "open here, and not in what a broker remembered before a later marker of the producer",
        (
            copy(1, put(2, "K"), END, put(10, "M", T2), commit(11, T2), snapshots={10: {T1: None}}),
            HELD_BY_ONE,
        ),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "decided", "not_open_on_broker": 1}),
    ),
    clean(
        "open here, and a later marker elsewhere may have ended it",
        copy(1, put(2, "K"), END, put(10, "M", T2), commit(11, T2)),
        HELD_BY_ONE,
    ),
    unknown(
        "open here, and what is left of a marker beyond this log's end may have ended it",
        copy(1, put(2, "K"), END, emptied_marker(10, T1)),
        HELD_BY_ONE,
        says="broker 1 has cleaned beyond that",
    ),
    anomaly(
        "open here, and of its marker a remnant is left elsewhere",
        (copy(1, emptied_marker(1, T1), put(2, "K"), END, log_start=1), HELD_BY_ONE),
        Finding(
            STUCK, 2, 0, "K", 5, VISIBLE,
            witness={"outcome": "decided", "not_open_on_broker": None, "marker_seen_elsewhere_at": 1},
        ),
    ),
    anomaly(
        "opened by an emptied batch",
        (copy(1, put(2, "K"), END), copy(2, emptied(0, T1), put(2, "K"), END)),
        Finding(STUCK, 2, 0, None, 5, VISIBLE, says="(producer 5, key (no key)) was decided"),
    ),
    clean(
        "open here, and a log that starts later tells nothing",
        copy(1, put(2, "K"), END, log_start=1),
        HELD_BY_ONE,
    ),
]  # fmt: skip

OPEN = (put(0, "K", T1), END)


def told(*states: tuple[str, int | None, str | None]) -> tuple[Copy, ...]:
    """Return two replicas that hold a transaction open, and nothing else, one of them with its coordinator's log."""
    return copy(1, OPEN[0], coordinator=states), copy(2, OPEN[0])


HANGING_CASES = [
    anomaly(
        "open everywhere, and its coordinator is done",
        told(("t", 5, "Ongoing"), ("t", 5, "PrepareCommit"), ("t", 5, "CompleteCommit")),
        *(
            Finding(
                HANGING, broker, 0, None, 5, VISIBLE, says="its coordinator is done with it (CompleteCommit)",
                witness={"transactional_id": "t", "coordinator_says": "CompleteCommit"},
            )
            for broker in (1, 2)
        ),
    ),
    clean("open everywhere, and its coordinator is at it", *told(("t", 5, "CompleteCommit"), ("t", 5, "Ongoing"))),
    clean("open everywhere, and its coordinator has yet to write the marker", *told(("t", 5, "PrepareCommit"))),
    clean("open everywhere, and another producer is done", *told(("u", 7, "CompleteAbort"))),
    clean("open everywhere, and the coordinator's log was not copied", copy(1, *OPEN), copy(2, *OPEN)),
    clean("open everywhere, and it was forgotten", *told(("t", 5, "CompleteCommit"), ("t", None, None))),
    anomaly(
        "the coordinator is done, and one replica does not hold it open: no hanging transaction",
        (copy(1, END), copy(2, *OPEN, coordinator=(("t", 5, "CompleteAbort"),))),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE),
    ),
]  # fmt: skip

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
        "what was noted of a stale tail is left out, too",
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

DECIDED = (put(0, "K", T1), commit(1, T1), END)
HIDDEN_ALIKE = (put(0, "K", T1), abort(1, T1), END)
CONTRADICTION_CASES = [
    unknown(
        "a producer snapshot holds open what the log has ended",
        copy(1, *DECIDED, snapshots={10: {T1: 0}}),
        copy(2, *DECIDED),
        says="broker 1: its producer snapshot holds a transaction of producer 5 open from 0 on, its log from no offset",
    ),
    unknown(
        "a producer snapshot does not have what the log holds open",
        copy(1, *OPEN),
        copy(2, *OPEN, snapshots={10: {T1: None}}),
        says="broker 2: its producer snapshot holds a transaction of producer 5 open from no offset on, its log from 0",
    ),
    clean("a producer snapshot agrees", copy(1, *OPEN, snapshots={10: {T1: 0}}), copy(2, *OPEN)),
    clean(
        "a producer snapshot from before the last segment tells nothing",
        copy(1, *DECIDED, rolled_at=(0, 9), snapshots={1: {T1: None}}),
        copy(2, *DECIDED),
    ),
    clean(
        "a producer snapshot was taken before the marker",
        copy(1, *DECIDED, snapshots={1: {T1: 0}}),
        copy(2, *DECIDED),
    ),
    unknown(
        "a .txnindex has what the log has committed",
        copy(1, *DECIDED, index=(aborted(T1, 0, 1),)),
        copy(2, *DECIDED),
        says="broker 1: its .txnindex has the batch at offset 0 among aborted transactions, and its log gives it as "
        "committed",
    ),
    unknown(
        "a .txnindex lacks what the log has aborted",
        copy(1, *HIDDEN_ALIKE),
        copy(2, *HIDDEN_ALIKE, index=()),
        says="broker 2: its .txnindex does not have the batch at offset 0 among aborted transactions",
    ),
]

X = put(6, "x")
LEGAL_CASES = [
    clean(
        "cleaned at different times",
        copy(1, put(0, "K"), put(1, "K"), put(2, "D"), delete(3, "D"), put(4, "x", T1), commit(5, T1), X, END),
        copy(2, put(1, "K"), emptied(2), delete(3, "D"), put(4, "x", T1), commit(5, T1), X, END),
        copy(3, put(1, "K"), emptied(4, T1), commit(5, T1), X, END, high_watermark=3),
    ),
    clean(
        "a later record beyond the bound may have removed it",
        copy(1, END, put(10, "K")),
        copy(2, put(0, "K"), END),
    ),
    unknown(
        "cleaned beyond the other's log end",
        copy(1, END, put(12, "L")),
        copy(2, put(0, "K"), END),
        says="the log of broker 2 ends at 10, and broker 1 has cleaned beyond that: what it removed by then cannot be",
    ),
    clean("a log start that was moved", copy(1, END, log_start=1), copy(2, put(0, "K"), END)),
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


def path_of(top: Path, broker: int, base_offset: int) -> Path:
    return top / str(broker) / "t-0" / segment_name(base_offset)


def flip(broker: int, base_offset: int, position: int) -> Callable[[Path], None]:
    def spoil(top: Path) -> None:
        path = path_of(top, broker, base_offset)
        data = bytearray(path.read_bytes())
        data[position] ^= 0xFF
        path.write_bytes(data)

    return spoil


def cut(broker: int, base_offset: int) -> Callable[[Path], None]:
    """Take the last byte of a segment."""

    def spoil(top: Path) -> None:
        path = path_of(top, broker, base_offset)
        path.write_bytes(path.read_bytes()[:-1])

    return spoil


def precede_by_old(top: Path) -> None:
    path = path_of(top, 1, 0)
    path.write_bytes(old_entry(0, 0) + old_entry(1, 1) + path.read_bytes())


def precede_by_old_and_damage(top: Path) -> None:
    precede_by_old(top)
    path = path_of(top, 1, 0)
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def cut_snapshot(top: Path) -> None:
    (top / "1" / "t-0" / segment_name(10, "snapshot")).write_bytes(b"\0\1")


def spoil_checkpoints(top: Path) -> None:
    for broker in ("1", "2"):
        (top / broker / "replication-offset-checkpoint").write_bytes(b"7\n0\n")


ROLLED = {"rolled_at": (0, 9)}
DAMAGE_CASES = [
    unknown(
        "a segment is damaged",
        copy(1, put(0, "K"), END),
        copy(2, put(0, "K"), END),
        spoil=flip(2, 0, 70),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: CRC is ",
    ),
    unknown(
        "a damaged replica accuses nobody",
        copy(1, put(0, "K"), END),
        copy(2, put(0, "K"), END, **ROLLED),
        spoil=flip(2, 0, 70),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: CRC is ",
    ),
    clean(
        "the last segment is cut, as a broker was writing it",
        copy(1, put(0, "K"), END, put(10, "L"), **ROLLED),
        copy(2, put(0, "K"), END, put(10, "L"), **ROLLED),
        spoil=cut(2, 9),
        says="2 replicas were read to offset 10 and agree",
    ),
    unknown(
        "another segment is cut",
        copy(1, put(0, "K"), put(1, "L"), END, **ROLLED),
        copy(2, put(0, "K"), put(1, "L"), END, **ROLLED),
        spoil=cut(2, 0),
        says="00000000000000000000.log at byte ",
    ),
    unknown(
        "entries of old formats",
        copy(1, put(2, "K"), END),
        copy(2, put(2, "K"), END),
        spoil=precede_by_old,
        says="{top}/1/t-0/00000000000000000000.log: 2 entries of magic 0 or 1 are not read",
    ),
    unknown(
        "entries of old formats, and damage after them",
        copy(1, put(2, "K"), END),
        copy(2, put(2, "K"), END),
        spoil=precede_by_old_and_damage,
        says="{top}/1/t-0/00000000000000000000.log at byte ",
    ),
    unknown(
        "checkpoints of high watermarks are damaged",
        copy(1, *OPEN),
        copy(2, *OPEN),
        spoil=spoil_checkpoints,
        says="{top}/1/replication-offset-checkpoint at byte 0: line 1: version '7', not 0",
    ),
    unknown(
        "a log is damaged where its structure is, and transactions follow",
        copy(1, put(0, "K", T1), commit(1, T1), put(2, "L", U1), commit(3, U1), END),
        copy(2, put(0, "K", T1), commit(1, T1), put(2, "L", U1), END),
        spoil=flip(2, 0, 16),
        says="{top}/2/t-0/00000000000000000000.log at byte 0: ",
    ),
    unknown(
        "a producer snapshot is cut",
        copy(1, *OPEN, snapshots={10: {T1: 0}}),
        copy(2, *OPEN),
        spoil=cut_snapshot,
        says="{top}/1/t-0/00000000000000000010.snapshot at byte 0: header is cut: 2 of 10 bytes",
    ),
]

V4 = replace(V3, epoch=3)
EDGE_CASES = [
    clean(
        "aborted alike",
        copy(1, *HIDDEN_ALIKE),
        copy(2, *HIDDEN_ALIKE),
    ),
    clean(
        "aborted alike, as far as the log goes back",
        copy(1, put(0, "K", T1), put(2, "L", T1), abort(3, T1), END),
        copy(2, put(2, "L", T1), abort(3, T1), END, log_start=2),
    ),
    clean(
        "aborted by a marker at the bound",
        copy(1, put(0, "K", T1), put(2, "L", T1), abort(5, T1), END, high_watermark=5),
        copy(2, put(2, "L", T1), abort(5, T1), END, high_watermark=5),
        says="2 replicas were read to offset 5",
    ),
    anomaly(
        "alive, it was written in a transaction, and its tombstone is gone everywhere",
        (copy(1, END), copy(2, put(0, "K", T1), commit(3, T1), END)),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "the span of a .txnindex with a COMMIT and an ABORT inside",
        (
            copy(1, commit(1, T1), abort(3, T2), abort(6, T2), END, index=(aborted(T2, 2, 3), aborted(T2, 5, 6))),
            copy(2, abort(6, T2), END, index=(aborted(T1, 0, 6),)),
        ),
        Finding(HIDDEN, 2, 0, None, 5, LATENT, witness={"marker_taken_here_at": 6, "marker_seen_elsewhere_at": 1}),
    ),
    anomaly(
        "the span of a .txnindex with two COMMITs inside",
        (
            copy(1, commit(1, T1), commit(3, T2), abort(6, T2), END, index=(aborted(T2, 5, 6),)),
            copy(2, abort(6, T2), END, index=(aborted(T1, 0, 6),)),
        ),
        Finding(HIDDEN, 2, 0, None, 5, LATENT, witness={"marker_taken_here_at": 6, "marker_seen_elsewhere_at": 1}),
    ),
    unknown(
        "the span of a .txnindex begins where the shortest log ends",
        copy(1, put(3, "b"), commit(5, T1), abort(8, T2), END, high_watermark=10, index=(aborted(T2, 7, 8),)),
        copy(2, put(3, "b"), abort(8, T2), END, high_watermark=10, index=(aborted(T1, 4, 8),)),
        copy(3, put(3, "b")),
        says="the log of broker 3 ends at 4, and broker 1 has cleaned beyond that",
    ),
    anomaly(
        "a transactional tombstone is missing, and of its marker a remnant is there, as another log's copy",
        (
            copy(1, delete(1, "K", T1), commit(2, T1), END),
            copy(2, put(0, "K"), emptied_marker(2, T1), END),
        ),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "a tombstone is missing whose own marker (v2) one of two others has",
        (
            copy(1, delete(1, "K", V1), commit(2, V2), put(4, "g", V2), commit(5, V3), END),
            copy(2, put(0, "K"), put(4, "g", V2), commit(5, V3), END),
            copy(3, delete(1, "K", V1), put(4, "g", V2), commit(5, V3), END),
        ),
        undecided(DIVERGED, 2, 0, "K", 6, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "overtaken, after another transaction that ended as it should",
        (
            copy(1, put(0, "A", V1), commit(1, V2), put(4, "L", V3), commit(5, V4), put(6, "K"), END),
            copy(2, put(0, "A", V1), commit(1, V2), put(2, "K", V2), put(4, "L", V3), commit(5, V4), put(6, "K"), END),
        ),
        Finding(UNEXPLAINED, 2, 2, "K", 6, LATENT, candidates=(UNEXPLAINED, POISON)),
    ),
    anomaly(
        "overtaken, and its first batch was emptied",
        (
            copy(1, put(4, "L", V2), commit(5, V3), END),
            copy(2, emptied(0, V1), put(4, "L", V2), commit(5, V3), END),
        ),
        Finding(UNEXPLAINED, 2, 0, None, 6, LATENT, candidates=(UNEXPLAINED, POISON), says="(key (no key))"),
    ),
    clean(
        "overtaken at the bound",
        copy(1, put(0, "a"), put(4, "L", V2), commit(5, V3), END, high_watermark=2),
        copy(2, put(0, "a"), put(2, "K", V1), put(4, "L", V2), commit(5, V3), END, high_watermark=2),
    ),
    clean(
        "overtaken before the log start",
        copy(1, put(4, "L", V2), commit(5, V3), put(6, "K"), END),
        copy(2, put(2, "K", V1), put(4, "L", V2), commit(5, V3), put(6, "K"), END, log_start=3),
    ),
    anomaly(
        "overtaken and ended, and a later transaction is open everywhere",
        (
            copy(1, put(4, "L", V2), commit(5, V3), put(6, "K", V3), END),
            copy(2, put(0, "K", V1), put(4, "L", V2), commit(5, V3), put(6, "K", V3), END),
        ),
        Finding(UNEXPLAINED, 2, 0, "K", 6, LATENT, candidates=(UNEXPLAINED, POISON)),
    ),
    clean(
        "open everywhere at the bound, and its coordinator is done",
        copy(1, *OPEN, high_watermark=0, coordinator=(("t", 5, "CompleteCommit"),)),
        copy(2, *OPEN, high_watermark=0),
        says="2 replicas were read to offset 0",
    ),
    clean(
        "open at the bound, and not elsewhere",
        copy(1, put(0, "a"), put(3, "K", T1), commit(4, T1), END, high_watermark=3),
        copy(2, put(0, "a"), put(3, "K", T1), END, high_watermark=3),
    ),
    unknown(
        "open below the bound, its marker is not, and somebody has cleaned beyond",
        copy(1, put(0, "K", T1), commit(5, T1), END, high_watermark=3),
        copy(2, put(0, "K", T1), END, high_watermark=3),
        copy(3, put(0, "K", T1), commit(5, T1), END, put(12, "z"), high_watermark=3),
        says="broker 3 has cleaned beyond that",
    ),
    anomaly(
        "open here, and elsewhere the producer has gone on beyond this log's end",
        (copy(1, put(2, "K"), END, put(10, "M", T2)), HELD_BY_ONE),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"not_open_on_broker": 1}),
    ),
    clean(
        "open here, and a marker elsewhere at this log's end may have ended it",
        copy(1, put(2, "K"), END, commit(10, T2)),
        HELD_BY_ONE,
    ),
    anomaly(
        "open here, and in what a broker remembered only a later transaction is",
        (
            copy(1, put(2, "K"), put(8, "M", T2), END, commit(10, T2), snapshots={10: {T2: 8}}),
            copy(2, put(0, "K", T1), put(2, "K"), put(8, "M", T2), END),
        ),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"not_open_on_broker": 1}),
    ),
    unknown(
        "open here, and who has nothing of it has cleaned beyond",
        copy(1, put(2, "K"), END, put(12, "L")),
        HELD_BY_ONE,
        says="broker 1 has cleaned beyond that",
    ),
    anomaly(
        "opened by an emptied batch, and two markers were missed",
        (
            copy(1, commit(1, T1), abort(3, T2), put(4, "K"), END),
            copy(2, emptied(0, T1), put(4, "K"), END),
        ),
        Finding(
            STUCK, 2, 0, None, 5, VISIBLE, witness={"outcome": "committed", "marker_seen_elsewhere_at": 1},
        ),
    ),
    anomaly(
        "open here, and not open on two brokers",
        (copy(1, put(2, "K"), END), HELD_BY_ONE, copy(3, put(2, "K"), END)),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"not_open_on_broker": 1}),
    ),
    anomaly(
        "open here, and a broker that remembered others did not remember the producer",
        (copy(1, put(2, "K"), END, put(10, "M", T2), commit(11, T2), snapshots={10: {U1: None}}), HELD_BY_ONE),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"not_open_on_broker": 1}),
    ),
    clean(
        "open here, and not in what a broker remembered whose log starts later",
        copy(1, put(2, "K"), END, put(10, "M", T2), commit(11, T2), log_start=1, snapshots={10: {T1: None}}),
        HELD_BY_ONE,
    ),
    unknown(
        "open here, and not in what a broker remembered that has cleaned beyond",
        copy(1, put(2, "K"), END, put(12, "M", T2), commit(13, T2), snapshots={10: {T1: None}}),
        HELD_BY_ONE,
        says="broker 1 has cleaned beyond that",
    ),
    unknown(
        "open on the only replica, which remembered otherwise",
        copy(1, *OPEN, rolled_at=(0, 9), snapshots={5: {T1: None}}),
        says="there is only the replica of broker 1",
    ),
    unknown(
        "an older producer snapshot agrees, and the newest does not",
        copy(1, *DECIDED, snapshots={0: {}, 10: {T1: 0}}),
        copy(2, *DECIDED),
        says="broker 1: its producer snapshot holds a transaction of producer 5 open from 0 on, its log from no offset",
    ),
    clean(
        "an older producer snapshot holds open what the log has no more",
        copy(1, put(2, "K"), END, rolled_at=(0, 9), snapshots={5: {T1: 0}}),
        copy(2, put(2, "K"), END),
    ),
    unknown(
        "a producer snapshot at the last segment holds open what the log has ended",
        copy(1, *DECIDED, rolled_at=(0, 9), snapshots={9: {T1: 0}}),
        copy(2, *DECIDED),
        says="broker 1: its producer snapshot holds a transaction of producer 5 open from 0 on, its log from no offset",
    ),
    unknown(
        "a producer snapshot does not have what the log holds open and goes on with",
        copy(1, put(0, "K", T1), put(5, "L", T1), END),
        copy(2, put(0, "K", T1), put(5, "L", T1), END, snapshots={3: {T1: None}}),
        says="broker 2: its producer snapshot holds a transaction of producer 5 open from no offset on, its log from 0",
    ),
    clean(
        "a producer snapshot holds open what begins before the log start",
        copy(1, put(3, "L", T1), END, log_start=2, snapshots={10: {T1: 0}}),
        copy(2, put(0, "K", T1), put(3, "L", T1), END),
    ),
    unknown(
        "a .txnindex has an aborted transaction end at another marker",
        copy(1, *HIDDEN_ALIKE, index=(aborted(T1, 0, 3),)),
        copy(2, *HIDDEN_ALIKE),
        says="broker 1: its .txnindex has the batch at offset 0 among aborted transactions, and its log gives it as",
    ),
    unknown(
        "a .txnindex has what the log has committed, and lacks what it has aborted",
        copy(1, *DECIDED[:2], put(2, "K", T2), abort(3, T2), END, index=(aborted(T1, 0, 1),)),
        copy(2, *DECIDED[:2], put(2, "K", T2), abort(3, T2), END),
        says="broker 1: its .txnindex has the batch at offset 0 among aborted transactions, and its log gives it as "
        "committed",
    ),
    anomaly(
        "overtaken, and its first batch has two records",
        (
            copy(1, put(4, "L", V2), commit(5, V3), put(6, "K"), put(7, "M"), END),
            copy(
                2, together(put(0, "K", V1), put(1, "M", V1)), put(4, "L", V2), commit(5, V3), put(6, "K"),
                put(7, "M"), END,
            ),
        ),
        Finding(UNEXPLAINED, 2, 0, "K", 6, LATENT, candidates=(UNEXPLAINED, POISON)),
    ),
    anomaly(
        "overtaken twice before the next marker, and its first batch was emptied",
        (
            copy(1, put(6, "N", V3), commit(7, V4), put(8, "L"), END),
            copy(2, emptied(0, V1), put(4, "L", V2), put(6, "N", V3), commit(7, V4), put(8, "L"), END),
        ),
        Finding(
            UNEXPLAINED, 2, 0, None, 6, LATENT, candidates=(UNEXPLAINED, POISON),
            witness={"overtaken_by_a_higher_epoch_at": 4},
        ),
    ),
    anomaly(
        "the COMMIT inside the span of a .txnindex lies before the other log's start",
        (
            copy(1, commit(1, T1), abort(4, T2), put(5, "K"), END, log_start=3, index=(aborted(T2, 3, 4),)),
            copy(2, abort(4, T2), put(5, "K"), END, index=(aborted(T1, 0, 4),)),
        ),
        Finding(HIDDEN, 2, 0, None, 5, LATENT, witness={"marker_taken_here_at": 4, "marker_seen_elsewhere_at": 1}),
    ),
    anomaly(
        "alive, and two others have removed it",
        (copy(1, END), copy(2, put(0, "K"), END), copy(3, END)),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE, witness={"removed_by_broker": 1}),
    ),
    anomaly(
        "served, removed by two others, and the second one still has an older value, as after an abort",
        (
            copy(1, put(4, "g", T2), commit(5, T2), END),
            copy(2, put(0, "K"), put(2, "K", T1), put(4, "g", T2), commit(5, T2), END),
            copy(3, put(0, "K"), put(4, "g", T2), commit(5, T2), END),
        ),
        undecided(
            POISON, 2, 2, "K", 5, VISIBLE, says="broker 3 has removed it and still has the older value of offset 0",
        ),
        undecided(
            DIVERGED, 3, 0, "K", -1, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN), witness={"removed_by_broker": 1},
        ),
    ),
    anomaly(
        "alive, written again after a delete",
        (copy(1, END), copy(2, delete(1, "K"), put(3, "K"), END)),
        undecided(DIVERGED, 2, 3, "K", -1, VISIBLE, witness={"removed_by_broker": 1}),
    ),
    anomaly(
        "alive, written again after a delete, and deleted again",
        (copy(1, END), copy(2, delete(1, "K"), put(3, "K"), END), copy(3, delete(5, "K"), END)),
        Finding(DIVERGED, 2, 3, "K", -1, VISIBLE, witness={"deleted_at": 5, "alive_here_at": 3}),
    ),
    anomaly(
        "alive and removed elsewhere, which an aborted delete does not explain",
        (copy(1, END), copy(2, put(0, "K"), delete(1, "K", T1), abort(2, T1), END)),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    clean(
        "a delete that is committed beyond the bound is there, and gone elsewhere",
        copy(1, commit(5, T1), END, high_watermark=3),
        copy(2, delete(1, "K", T1), commit(5, T1), END, high_watermark=3),
    ),
    anomaly(
        "hidden on two replicas, and one of them copied a log that had been cleaned by it",
        (
            copy(1, put(2, "K", T1), put(4, "g", T2), abort(5, T2), END),
            copy(2, put(0, "K"), put(2, "K", T1), put(4, "g", T2), abort(5, T2), END),
            copy(3, put(2, "K", T1), commit(3, T1), put(4, "g", T2), abort(5, T2), END),
        ),
        undecided(HIDDEN, 1, 2, "K", 5, VISIBLE, says="broker 3 serves the value of offset 2; who is wrong"),
    ),
    clean(
        "a value is gone for a later one that is aborted beyond the bound",
        copy(1, put(2, "K", T1), abort(5, T1), END, high_watermark=3),
        copy(2, put(0, "K"), put(2, "K", T1), abort(5, T1), END, high_watermark=3),
    ),
    anomaly(
        "poison took the place of a value",
        (
            copy(1, put(2, "K", T1), put(4, "good", T2), commit(5, T2), END),
            copy(2, put(0, "K"), abort(3, T1), put(4, "good", T2), commit(5, T2), END),
        ),
        undecided(POISON, 1, 2, "K", 5, VISIBLE, witness={"outcome": "aborted", "marker_taken_here_at": 5}),
    ),
    anomaly(
        "stuck, with records of a key before and after what another has removed",
        (copy(1, END), copy(2, put(0, "K", T1), put(2, "K"), put(3, "K", T1), END)),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"not_open_on_broker": 1}),
    ),
    anomaly(
        "stuck, and a later value of its key lives on that another has removed",
        (copy(1, END), HELD_BY_ONE),
        Finding(STUCK, 2, 0, "K", 5, VISIBLE),
        undecided(DIVERGED, 2, 2, "K", -1, LATENT, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "alive, and who has removed it counts what its producer wrote later as aborted",
        (
            copy(1, put(4, "g", T2), abort(5, T2), END),
            copy(2, put(0, "K", T1), commit(1, T1), put(4, "g", T2), abort(5, T2), END),
        ),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "alive, and who has removed it counts what its producer wrote before as aborted",
        (
            copy(1, put(0, "g", T1), abort(1, T1), commit(5, T2), END),
            copy(2, put(0, "g", T1), abort(1, T1), put(4, "K", T2), commit(5, T2), END),
        ),
        undecided(DIVERGED, 2, 4, "K", 5, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "hidden and cleaned away, and an older value is alive as after an abort",
        (
            copy(1, put(0, "K"), put(4, "g", T2), abort(5, T2), END, index=(aborted(T1, 2, 5),)),
            copy(2, put(2, "K", T1), commit(3, T1), put(4, "g", T2), abort(5, T2), END),
        ),
        undecided(HIDDEN, 1, 2, "K", 5, VISIBLE, witness={"marker_taken_here_at": 5, "evidence": ["txnindex"]}),
    ),
    anomaly(
        "alive without its transactional bit, and who has removed it counts it as aborted",
        (copy(1, abort(1, T1), END, index=(aborted(T1, 0, 1),)), copy(2, untied(put(0, "K", T1)), END)),
        undecided(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    clean(
        "a record without a key, which cleaners remove as invalid",
        copy(1, END),
        copy(2, put(0, None), put(1, None, T1), commit(2, T1), END),
    ),
    anomaly(
        "alive, and its key is empty",
        (copy(1, END), copy(2, put(0, ""), END)),
        undecided(DIVERGED, 2, 0, "", -1, VISIBLE),
    ),
    anomaly(
        "alive, and a later record beyond the other log's end is aborted, for all to know",
        (copy(1, END, put(10, "K", T1), abort(11, T1), high_watermark=12), copy(2, put(0, "K"), END)),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    clean(
        "a later record beyond the other log's end is open here, and may be committed where it was copied from",
        copy(1, END, put(10, "K", T1)),
        copy(2, put(0, "K"), END),
    ),
    anomaly(
        "deleted and alive, and a stale tail has the key once more",
        (
            copy(1, delete(1, "K"), END, *led(1, put(10, "N"))),
            copy(2, put(0, "K"), END, put(10, "K", T1)),
        ),
        Finding(DIVERGED, 2, 0, "K", -1, VISIBLE),
    ),
    anomaly(
        "alive, and a stale tail of one record has the key once more",
        (
            copy(1, END, *led(1, put(10, "N")), epochs={0: 0, 1: 10}),
            copy(2, put(0, "K"), END, put(10, "K"), epochs={0: 0}),
        ),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE),
    ),
    anomaly(
        "alive, and nothing but a stale tail deletes the key",
        (
            copy(1, END, *led(1, delete(10, "L"))),
            copy(2, put(0, "K"), END, delete(10, "K")),
        ),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE),
    ),
    clean(
        "logs that start after the end of an empty one, and hold more than they have to",
        copy(1, put(0, "K"), put(3, "L"), END, log_start=2),
        copy(2, put(0, "K"), put(3, "L"), END, log_start=2),
        copy(3),
        says="3 replicas were read to offset 0 and agree",
    ),
    clean(
        "a log that starts where another one ends, and was cleaned",
        copy(1, put(0, "K"), put(1, "L")),
        copy(2, put(7, "L"), END, log_start=2, rolled_at=(2,)),
        says="2 replicas were read to offset 2 and agree",
    ),
    clean(
        "high watermarks that lag behind logs that end alike",
        copy(1, put(0, "K"), put(3, "K"), END, high_watermark=5),
        copy(2, put(3, "K"), END, high_watermark=4),
        says="2 replicas were read to offset 5 and agree",
    ),
    clean(
        "a transaction goes on in the next segment",
        copy(1, put(0, "K", T1), put(1, "L", T1), commit(2, T1), END, rolled_at=(0, 1)),
        copy(2, put(0, "K", T1), put(1, "L", T1), commit(2, T1), END),
    ),
    clean(
        "an older producer snapshot holds open what has ended since",
        copy(1, put(0, "K", T1), commit(7, T1), END, rolled_at=(0, 9), snapshots={5: {T1: 0}, 9: {T1: None}}),
        copy(2, put(0, "K", T1), commit(7, T1), END),
    ),
    clean(
        "a producer snapshot was taken before the marker, and nothing but that followed",
        copy(1, put(0, "K", T1), commit(5, T1), snapshots={3: {T1: 0}}),
        copy(2, put(0, "K", T1), commit(5, T1)),
    ),
    clean(
        "an ABORT whose transaction was cleaned away before any of these copied it",
        copy(1, abort(1, T1), put(2, "K"), END),
        copy(2, abort(1, T1), put(2, "K"), END),
    ),
    clean(
        "a log whose only segment is empty",
        copy(1, END),
        copy(2, log_start=10, rolled_at=(10,)),
    ),
    clean(
        "a producer without transactions goes on in a higher epoch",
        copy(1, untied(put(0, "K", V1)), untied(put(4, "L", V2)), END),
        copy(2, untied(put(0, "K", V1)), untied(put(4, "L", V2)), END),
    ),
    anomaly(
        "alive, and what was written of the key beyond this log's end was aborted",
        (copy(1, END, put(10, "K", T1), abort(11, T1)), copy(2, put(0, "K"), END)),
        undecided(DIVERGED, 2, 0, "K", -1, VISIBLE, candidates=(DIVERGED, POISON, HIDDEN)),
    ),
    anomaly(
        "poison behind the first of two transactions that are open everywhere",
        (
            copy(1, put(0, "H", U1), abort(2, T1), put(3, "good", T2), commit(4, T2), put(5, "I", X1), END),
            copy(2, put(0, "H", U1), put(1, "poison", T1), put(3, "good", T2), commit(4, T2), put(5, "I", X1), END),
        ),
        undecided(POISON, 2, 1, "poison", 5, LATENT),
    ),
    *(
        anomaly(
            f"aborted, and broker {untied_on} holds it without its transactional bit",
            (
                copy(untied_on, untied(put(0, "poison", T1)), END),
                copy(3 - untied_on, put(0, "poison", T1), abort(1, T1), END),
            ),
            undecided(POISON, untied_on, 0, "poison", 5, VISIBLE, says="holds it as if it had never been in one"),
        )
        for untied_on in (1, 2)
    ),
]  # fmt: skip
"""At the edge of a rule: each of them is the only one for which some small change of a checker (`tests/quality`,
mutants) makes a test fail."""

CASES = [
    *MARKER_CASES, *REMOVAL_CASES, *CANDIDATE_CASES, *OVERTAKEN_CASES, *STUCK_CASES, *HANGING_CASES, *LINEAGE_CASES,
    *CONTRADICTION_CASES, *LEGAL_CASES, *DAMAGE_CASES, *EDGE_CASES,
]  # fmt: skip

LET_GO = {
    "a producer snapshot was taken before the marker, and nothing but that followed",
    "a record without a key, which cleaners remove as invalid",
    "a transaction goes on in the next segment",
    "an ABORT whose transaction was cleaned away before any of these copied it",
    "an older producer snapshot holds open what has ended since",
    "a delete that is committed beyond the bound is there, and gone elsewhere",
    "a gap between epochs proves nothing",
    "a log start that was moved",
    "a log whose first segments are gone",
    "a producer snapshot from before the last segment tells nothing",
    "a producer snapshot was taken before the marker",
    "a producer without transactions goes on in a higher epoch",
    "aborted alike",
    "cleaned at different times",
    "high watermarks that lag behind logs that end alike",
    "leaders that followed each other",
    "no checkpoints",
    "one replica",
    "segments that were rolled at other places",
}
"""Where all logs end alike, nothing is open, and every marker that any replica shows decides on all of them."""

ALONE = (
    "alive, and the tombstone is still elsewhere",
    "open everywhere, and its coordinator is done",
    "the COMMIT inside the span of a .txnindex lies before the other log's start",
)
"""Replicas that differ, that hold a transaction open, whose `.txnindex` has a span: each is reason to look closer."""

WHOLE, REDUCED = "whole", "reduced"
Verdicts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Said:
    """Verdicts by name of the case, each way to judge.

    ``let_go``: the cases that the reduction let go without a judgement; ``alone``: verdicts of `ALONE`, each reduced in
    a job of its own.
    """

    top: Path
    verdicts: dict[str, Verdicts]
    let_go: set[str]
    alone: Verdicts


@pytest.fixture(scope="module")
def said(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Said:
    top = tmp_path_factory.mktemp("copies")
    every = []
    for case in CASES:
        brokers = write_copies(top / case.name, *case.copies)
        case.spoil(top / case.name)
        every.append(find_copies(brokers, ["t"], case.name))
    reduced = reduce_copies(spark, every, tasks=2)
    rows = {WHOLE: judge_whole(load_copies(spark, every)), REDUCED: judge_reduced(reduced)}
    assert {way: told["raised"] for way, told in rows.items()} == {WHOLE: [], REDUCED: []}
    return Said(
        top,
        {way: {copies.run_id: assemble(copies, told, timings_s={}) for copies in every} for way, told in rows.items()},
        {run for run, *_ in reduced.let_go},
        judged_alone(every, lambda one: judge_reduced(reduce_copies(spark, [one], tasks=2))),
    )


def judged_alone(every: Sequence[Copies], judge: Callable[[Copies], Mapping[str, Any]]) -> Verdicts:
    """Return the verdicts of `ALONE`."""
    return {one.run_id: assemble(one, judge(one), timings_s={}) for one in every if one.run_id in ALONE}


BOTH_WAYS = pytest.mark.parametrize("way", [WHOLE, REDUCED])
EVERY_CASE = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])


@BOTH_WAYS
@EVERY_CASE
def test_findings(case: Case, way: str, said: Said) -> None:
    findings = said.verdicts[way][case.name]["findings"]
    assert [_facts(found) for found in findings] == [
        (
            w.anomaly,
            w.broker,
            "t",
            0,
            w.offset,
            w.key if w.key is None else {"text": w.key},
            w.producer_id,
            w.effect,
            list(w.candidates),
            w.decided,
        )
        for w in case.findings
    ]
    for found, wanted in zip(findings, case.findings, strict=True):
        assert wanted.says in found["explanation"]
        assert {name: found["witness"].get(name) for name in wanted.witness} == wanted.witness


def _facts(found: dict[str, Any]) -> tuple[Any, ...]:
    names = (
        "anomaly",
        "broker",
        "topic",
        "partition",
        "offset",
        "key",
        "producer_id",
        "effect",
        "candidates",
        "decided",
    )
    return tuple(found[name] for name in names)


@BOTH_WAYS
@EVERY_CASE
def test_verdicts(case: Case, way: str, said: Said) -> None:
    verdict = said.verdicts[way][case.name]
    (partition,) = verdict["scenarios"]
    assert (verdict["verdict"], partition["verdict"]) == (case.verdict, case.verdict), partition["reason"]
    assert case.says.format(top=said.top / case.name) in partition["reason"]
    assert partition["reason"] in verdict["reason"]


@EVERY_CASE
def test_both_ways_say_the_same(case: Case, said: Said) -> None:
    assert said.verdicts[REDUCED][case.name] == said.verdicts[WHOLE][case.name]


@pytest.mark.parametrize("name", ALONE)
def test_one_reason_to_look_closer_is_enough(name: str, said: Said) -> None:
    assert said.alone[name] == said.verdicts[WHOLE][name]


def test_what_leaves_no_doubt_is_let_go(said: Said) -> None:
    assert said.let_go == LET_GO


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
