"""Edges of rules: each case is the only one that fails for some small change of a checker (see test_mutants)."""

from dataclasses import replace

from copied import copy
from literal import abort, aborted, commit, delete, emptied, emptied_marker, led, put, together, untied

from audit_cases.case import (
    DIVERGED,
    END,
    HIDDEN,
    POISON,
    STUCK,
    T1,
    T2,
    U1,
    V1,
    V2,
    V3,
    X1,
    Finding,
    anomaly,
    clean,
    undecided,
    unknown,
)
from audit_cases.contradictions import DECIDED, HIDDEN_ALIKE
from audit_cases.open_transactions import HELD_BY_ONE, OPEN
from checkers.finding import LATENT, VISIBLE
from checkers.finding import UNEXPLAINED_DIVERGENCE as UNEXPLAINED

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
        "a transactional tombstone is missing, and its emptied marker is present, as a copy of another log",
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
        "open here, and a replica without its records has cleaned beyond",
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
        "a producer snapshot does not have a transaction that the log holds open and continues",
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
        says="broker 1: its .txnindex has the batch at offset 0 among aborted transactions, but in its log it is",
    ),
    unknown(
        "a .txnindex has a committed transaction, and does not have an aborted transaction of the log",
        copy(1, *DECIDED[:2], put(2, "K", T2), abort(3, T2), END, index=(aborted(T1, 0, 1),)),
        copy(2, *DECIDED[:2], put(2, "K", T2), abort(3, T2), END),
        says="broker 1: its .txnindex has the batch at offset 0 among aborted transactions, but in its log it is "
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
        "a delete that is committed beyond the bound is present, and gone elsewhere",
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
        undecided(HIDDEN, 1, 2, "K", 5, VISIBLE, says="broker 3 serves the value of offset 2"),
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
        "a cleaned log that starts where another log ends",
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
        "a transaction continues in the next segment",
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
        "a producer without transactions continues in a higher epoch",
        copy(1, untied(put(0, "K", V1)), untied(put(4, "L", V2)), END),
        copy(2, untied(put(0, "K", V1)), untied(put(4, "L", V2)), END),
    ),
    anomaly(
        "alive, and the key's record beyond this log's end was aborted",
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
            undecided(POISON, untied_on, 0, "poison", 5, VISIBLE, says="as if it had not been part of a transaction"),
        )
        for untied_on in (1, 2)
    ),
]  # fmt: skip
"""At the edge of a rule: each of them is the only one for which some small change of a checker (`tests/quality`,
mutants) makes a test fail."""
