"""The truth of `harness.soak` and `bench/blame.py`: which replicas are wrong, on logs of a few records; the tally."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import findings
import pytest
from random_traffic import load_client_log, save_client_log
from soaked import names_by_replica
from stored_markers import encode_marker

from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.side_files.producer_state import AbortedTxn, encode_txnindex
from harness.judge.finding import Finding
from harness.judge.verdict import Verdict
from harness.run_folder.history import HEADER_OP
from harness.soak.causes import diagnose
from harness.soak.causes.cause import RoundEvidence
from harness.soak.causes.reopened_transaction import reopened
from harness.soak.evidence.client_log import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    ClientLog,
    Transaction,
    WrittenRecord,
    client_log_of,
)
from harness.soak.evidence.replica_log import OPEN, ReplicaLog, read_replica
from harness.soak.judge.audit_tally import BY_LUCK, EITHER, RIGHT, WRONG, judge, tally
from harness.soak.judge.round_verdict import UNEXPLAINED
from harness.soak.judge.truth import HIDDEN, SERVED, STATE, STUCK, compare

TP = ("t", 0)
PRODUCER = 7
TRANSACTIONAL: dict[str, Any] = {"is_transactional": True, "producer_id": PRODUCER, "producer_epoch": 0}
HANGING, REOPENED, SKIPPED_MARKER, STALE_MARKER = (
    "hanging-transaction", "reopened-transaction", "skipped-marker", "stale-marker",
)  # fmt: skip
SKIPPED_LINE: dict[str, Any] = {"broker": 3, "partitions": [list(TP)], "transactional_id": "id"}


def names_of(evidence: RoundEvidence) -> list[set[str]]:
    """Return the names of the errors of each replica that has some."""
    return list(names_by_replica(evidence).values())


def wrote(number: int, key: str, offset: int | None, txn: int | None = None, *, deletes: bool = False) -> WrittenRecord:
    return WrittenRecord(number, *TP, key, deletes, txn, offset)


def data(write: int, offset: int, key: str, *, deletes: bool = False, transactional: bool = False) -> bytes:
    value = None if deletes else str(write).encode()
    record = Record(offset, 0, key.encode(), value, ((HEADER_OP, str(write).encode()),))
    return encode_batch(base_offset=offset, records=[record], **(TRANSACTIONAL if transactional else {}))


def end(offset: int, *, commit: bool, by: int = 0) -> bytes:
    """Return a marker ``by`` a coordinator of that epoch."""
    return encode_marker(
        base_offset=offset, commit=commit, producer_id=PRODUCER, producer_epoch=0, timestamp_ms=0, coordinator_epoch=by
    )


def replica(folder: Path, *batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> Path:
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    entries = [AbortedTxn(PRODUCER, first, last, first) for first, last in aborted]
    (folder / f"{0:020}.txnindex").write_bytes(encode_txnindex(entries))
    return folder


def stored(*batches: bytes, aborted: tuple[tuple[int, int], ...] = (), log_start: int = 0) -> ReplicaLog:
    """Return the log of a replica with these batches."""
    with TemporaryDirectory() as folder:
        return read_replica(replica(Path(folder) / "t-0", *batches, aborted=aborted), log_start)


VALUE, DELETE = data(1, 0, "k"), data(2, 1, "k", deletes=True, transactional=True)


def clients(outcome: str) -> ClientLog:
    """Know of a value of k at offset 0, and of a transaction that deletes k at offset 1."""
    writes = {1: wrote(1, "k", 0), 2: wrote(2, "k", 1, 9, deletes=True)}
    return ClientLog(writes, {9: Transaction(9, "id", outcome)})


def audited(accusations: Sequence[Finding], verdict: str = "anomaly") -> Verdict:
    audit = findings.audited_verdict("t")
    scenarios = tuple(replace(scenario, verdict=verdict) for scenario in audit.scenarios)
    return replace(audit, scenarios=scenarios, findings=tuple(accusations))


def finding(broker: int, offset: int = 0, key: str | None = "k", **more: Any) -> Finding:
    named = None if key is None else {"text": key}
    return findings.finding(broker=broker, offset=offset, key=named, **more)


def test_a_record_is_what_its_broker_serves_it_as() -> None:
    aborted = stored(VALUE, DELETE, end(2, commit=False), aborted=((1, 2),))
    committed, opened = stored(VALUE, DELETE, end(2, commit=True)), stored(VALUE, DELETE)
    beliefs = [[record.belief for record in log.records] for log in (aborted, committed, opened)]
    assert beliefs == [[COMMITTED, ABORTED], [COMMITTED, COMMITTED], [COMMITTED, OPEN]]


@pytest.mark.parametrize(("outcome", "marker", "kinds"), [
    (ABORTED, None, {STUCK}),
    (ABORTED, COMMITTED, {SERVED, STATE}),
    (ABORTED, ABORTED, set()),
    (COMMITTED, None, {STUCK, STATE}),
    (COMMITTED, COMMITTED, set()),
    (COMMITTED, ABORTED, {HIDDEN, STATE}),
    (UNKNOWN, COMMITTED, set()),
    (UNKNOWN, ABORTED, set()),
])  # fmt: skip
def test_a_replica_is_wrong_by_what_clients_know(outcome: str, marker: str | None, kinds: set[str]) -> None:
    batches = [VALUE, DELETE, *([] if marker is None else [end(2, commit=marker == COMMITTED)])]
    replica_log = stored(*batches, aborted=((1, 2),) if marker == ABORTED else ())
    truth = compare(clients(outcome), {(2, TP): replica_log})
    assert {wrong.kind for wrong in truth.wrongs[2, TP]} == kinds
    assert truth.diverged == ({TP} if kinds else set())
    assert truth.unknown_keys == ({(TP, "k")} if outcome == UNKNOWN else set())


VALUE_ALONE, CARRIED_OUT = stored(VALUE), stored(DELETE, end(2, commit=True))


def test_an_aborted_delete_that_was_carried_out_accuses_who_carried_it_out() -> None:
    """The case that audits had the wrong way round: brokers 1 and 3 still have the value, and are right."""
    truth = compare(clients(ABORTED), {(1, TP): VALUE_ALONE, (2, TP): CARRIED_OUT})
    assert judge(truth, finding(1)) == WRONG
    assert judge(truth, finding(2)) == RIGHT
    assert judge(truth, finding(2, right=[1])) == RIGHT
    assert judge(truth, finding(2, key="other", offset=5)) == WRONG
    assert judge(truth, finding(2, key=None, offset=1)) == RIGHT, "the record of the transaction at that offset"
    done = tally(truth, audited([finding(1), finding(2)]))
    assert (done.counts["diverged"], done.counts["found"]) == (1, 1)
    assert (done.counts["right accusations"], done.counts["wrong accusations"]) == (1, 1)
    assert [wrong["finding"].broker for wrong in done.wrong] == [1]
    both_wrong = compare(clients(ABORTED), {(1, TP): CARRIED_OUT, (2, TP): CARRIED_OUT})
    assert judge(both_wrong, finding(2, right=[1])) == WRONG, "a replica that is called right must not be wrong"


def test_who_is_right_about_a_key_may_be_stuck_in_another_transaction() -> None:
    log = clients(COMMITTED)
    log.writes[3], log.transactions[8] = wrote(3, "k", 3, 8), Transaction(8, "other", ABORTED)
    stuck = stored(VALUE, DELETE, end(2, commit=True), data(3, 3, "k", transactional=True))
    truth = compare(log, {(1, TP): VALUE_ALONE, (2, TP): stuck})
    assert {wrong.kind for wrong in truth.wrongs[2, TP]} == {STUCK}
    assert judge(truth, finding(1, right=[2])) == RIGHT
    assert judge(truth, finding(2)) == WRONG, "of its final state it is right"
    assert judge(truth, finding(2, offset=3)) == RIGHT, "of that transaction it is wrong"


@pytest.mark.parametrize(("leader", "harmful"), [(1, 0), (2, 1)])
def test_a_copy_of_what_is_wrong_over_what_is_right_is_harmful(leader: int, harmful: int) -> None:
    truth = compare(clients(ABORTED), {(1, TP): VALUE_ALONE, (2, TP): CARRIED_OUT, (3, TP): VALUE_ALONE})
    plan = {"partitions": [{"topic": "t", "partition": 0, "replicas": [leader]}]}
    result = finding(3, commands=["kafka-configs.sh …", f"echo '{json.dumps(plan)}' > without.json"])
    assert tally(truth, audited([result])).counts["harmful copies"] == harmful


def test_a_missed_marker_that_agrees_is_right_by_luck() -> None:
    """Two transactions of a client end by the marker of the second one, and both were committed."""
    log = clients(COMMITTED)
    log.writes[3], log.transactions[10] = wrote(3, "o", 3, 10), Transaction(10, "id", COMMITTED)
    second = (data(3, 3, "o", transactional=True), end(4, commit=True))
    whole, missed = stored(VALUE, DELETE, end(2, commit=True), *second), stored(VALUE, DELETE, *second)
    truth = compare(log, {(1, TP): whole, (2, TP): missed})
    assert truth.diverged == set()
    assert truth.missed == {(1, TP): {}, (2, TP): {9: COMMITTED}}
    assert [judge(truth, finding(broker, offset=1)) for broker in (1, 2)] == [WRONG, BY_LUCK]
    assert tally(truth, audited([finding(2, offset=1)])).counts["nothing wrong"] == 0


@pytest.mark.parametrize(("outcome", "judged"), [(ABORTED, BY_LUCK), (COMMITTED, RIGHT), (UNKNOWN, EITHER)])
@pytest.mark.parametrize("is_emptied", [True, False])
def test_a_missed_marker_shows_by_the_rest_of_its_transaction(outcome: str, judged: str, *, is_emptied: bool) -> None:
    """An empty batch, or the entry of `.txnindex` alone."""
    log = clients(outcome)
    log.writes[3], log.transactions[10] = wrote(3, "o", 3, 10), Transaction(10, "id", ABORTED)
    batches = [VALUE, *[EMPTIED] * is_emptied, data(3, 3, "o", transactional=True), end(4, commit=False)]
    truth = compare(log, {(2, TP): stored(*batches, aborted=((1, 4),))})
    assert truth.missed == {(2, TP): {9: ABORTED}}
    assert judge(truth, finding(2, offset=1, key=None)) == judged


def test_the_transaction_that_followed_a_missed_marker_may_have_left_nothing() -> None:
    """Its records were never acknowledged, it was aborted, and every replica has cleaned it away."""
    log = clients(ABORTED)
    log.writes[3], log.transactions[10] = wrote(3, "o", None, 10), Transaction(10, "id", ABORTED)
    truth = compare(log, {(2, TP): stored(VALUE, end(4, commit=False), aborted=((1, 4),))})
    assert truth.missed == {(2, TP): {9: ABORTED}}
    assert judge(truth, finding(2, offset=1, key=None)) == BY_LUCK


@pytest.mark.parametrize(
    ("epochs", "stale"), [((1, 2, 1), {4}), ((1, 1, 2), set()), ((2, 1, 1), {3, 4}), ((0,), set())]
)
def test_a_marker_of_a_former_coordinator_is_stale(epochs: tuple[int, ...], stale: set[int]) -> None:
    markers = [end(offset, commit=True, by=epoch) for offset, epoch in enumerate(epochs, 2)]
    replica_log = stored(VALUE, DELETE, *markers)
    assert replica_log.stale_markers == stale
    assert compare(clients(COMMITTED), {(1, TP): replica_log, (2, TP): ReplicaLog()}).stale_markers[TP] == stale


def test_a_transaction_that_a_stale_marker_ended_has_its_name() -> None:
    """Found by a soak on 4.4.0: a third COMMIT came when the producer was forgotten and wrote again."""
    twice = (end(0, commit=True, by=1), end(1, commit=True, by=2))
    delete = data(2, 2, "k", deletes=True, transactional=True)
    log = clients(ABORTED)
    log.writes[2].offset = 2
    for epoch, name in ((1, STALE_MARKER), (2, "aborted-to-committed")):
        replica_log = stored(*twice, delete, end(3, commit=True, by=epoch))
        truth = compare(log, {(broker, TP): replica_log for broker in (1, 2, 3)})
        assert names_of(RoundEvidence(truth)) == [{name}] * 3


def test_a_transaction_that_another_marker_ended_as_its_own_was_left_out_has_its_name() -> None:
    """Found by a soak on 4.4.0: an ABORT was skipped, and the next COMMIT served records that it should have hidden."""
    later = data(3, 2, "l", transactional=True)
    replica_log = stored(VALUE, DELETE, later, end(3, commit=True))
    correct = stored(VALUE, DELETE, end(2, commit=False), aborted=((1, 2),))
    log = clients(ABORTED)
    log.writes[3], log.transactions[10] = wrote(3, "l", 2, 10), Transaction(10, "id", COMMITTED)

    def names(lines: list[dict[str, Any]], *replicas: ReplicaLog) -> list[set[str]]:
        truth = compare(log, {(broker, TP): replica_log for broker, replica_log in enumerate(replicas)})
        return names_of(RoundEvidence(truth, skipped=lines))

    assert names([SKIPPED_LINE], replica_log, replica_log) == [{SKIPPED_MARKER}] * 2
    for other in ([], [SKIPPED_LINE | {"transactional_id": "other"}], [SKIPPED_LINE | {"partitions": [["t", 1]]}]):
        assert names(other, replica_log, replica_log) == [{"aborted-to-committed"}] * 2
    assert names([SKIPPED_LINE], replica_log, correct)[0] == {"aborted-to-committed"}, "another replica has its marker"


def test_a_transaction_whose_marker_was_left_out_has_its_name_where_it_is_open_or_gone_everywhere() -> None:
    """Found by a soak on 4.4.0: the next ABORT ended the transaction, and its record was removed from every replica."""
    log = clients(COMMITTED)
    log.writes[3], log.transactions[10] = wrote(3, "l", 3, 10), Transaction(10, "id", ABORTED)
    for replica_log, other in ((stored(VALUE, DELETE), HANGING), (stored(VALUE), "tombstone-divergence")):
        truth = compare(log, {(broker, TP): replica_log for broker in (1, 2)})
        for lines, name in (([SKIPPED_LINE], SKIPPED_MARKER), ([], other)):
            assert names_of(RoundEvidence(truth, skipped=lines)) == [{name}] * 2


def test_a_transaction_without_a_marker_is_not_open_again_where_its_records_were_deleted() -> None:
    """Found by a soak on 4.4.0: a broker kept the transaction open after the log start had moved past its records."""
    replica_log = stored(log_start=3)
    truth = compare(clients(COMMITTED), {(broker, TP): replica_log for broker in (1, 2)})

    def name(offset: int, *lines: dict[str, Any]) -> str:
        symptom = reopened(1, TP, PRODUCER, offset, None)
        return diagnose(RoundEvidence(truth, skipped=lines), [symptom])[symptom].name

    assert name(1, SKIPPED_LINE) == SKIPPED_MARKER
    assert name(1) == REOPENED
    assert name(0, SKIPPED_LINE) == REOPENED, "a record outside of transactions"
    assert name(2, SKIPPED_LINE) == REOPENED, "a record that nobody knows"


def test_an_aborted_delete_is_carried_out_once_the_transaction_before_was_open_again() -> None:
    """Found by a soak on 4.4.0 (seed 2, with the gate): nothing is open in the end, and the index is cleaned away."""
    log = clients(COMMITTED)
    log.writes[2] = wrote(2, "o", 1, 9)
    log.writes[3], log.transactions[10] = wrote(3, "k", 3, 10, deletes=True), Transaction(10, "id", ABORTED)
    truth = compare(log, {(1, TP): stored(data(2, 1, "o"))})
    for broker, offset, outcome, name in ((1, 1, ABORTED, REOPENED), (2, 1, ABORTED, UNEXPLAINED),
                                          (1, 0, ABORTED, UNEXPLAINED), (1, 1, COMMITTED, UNEXPLAINED)):  # fmt: skip
        log.transactions[10] = replace(log.transactions[10], outcome=outcome)
        assert names_of(RoundEvidence(truth, open_again={(broker, TP): {offset}})) == [{name}]


def test_markers_are_known_from_the_replicas_that_have_them() -> None:
    whole, without = stored(VALUE, DELETE, end(2, commit=True)), stored(VALUE, DELETE)
    assert compare(clients(COMMITTED), {(1, TP): whole, (2, TP): without}).markers == {(TP, 9): {2}}
    assert compare(clients(COMMITTED), {(2, TP): without}).markers == {}


@pytest.mark.parametrize(("epoch", "is_late"), [(0, True), (2, False)])
def test_a_late_request_of_a_producer_may_have_written_again_what_is_gone(epoch: int, *, is_late: bool) -> None:
    """Found by a soak on 4.3.1: a batch of epoch 14 behind one of 139, with a second copy of a delete."""
    keys = {1: ("k", 0), 2: ("k", 1), 3: ("o", None), 4: ("p", 2)}
    log = ClientLog({number: wrote(number, *written, deletes=number == 1) for number, written in keys.items()})

    def remaining(number: int, base_offset: int, offset: int, **producer: Any) -> bytes:
        record = Record(offset, 0, keys[number][0].encode(), b"v", ((HEADER_OP, str(number).encode()),))
        return encode_batch(base_offset=base_offset, records=[record], last_offset=offset, **producer)

    first, late = ({"producer_id": PRODUCER, "producer_epoch": number} for number in (1, epoch))
    replica_log = stored(remaining(4, 0, 2, **first), remaining(3, 3, 4, **late))
    truth = compare(log, {(1, TP): replica_log})
    assert ((TP, "k") in truth.unknown_keys, bool(truth.wrongs[1, TP])) == (is_late, not is_late)
    log.writes[1].client = log.writes[2].client = "another"
    assert compare(log, {(1, TP): replica_log}).diverged == {TP}, "the late request is not of k's client"


def test_what_no_client_knows_is_neither_right_nor_wrong() -> None:
    truth = compare(clients(UNKNOWN), {(1, TP): VALUE_ALONE})
    assert judge(truth, finding(1)) == EITHER
    assert tally(truth, audited([finding(1)])).counts["wrong accusations"] == 0
    # Of a transaction one replica has an entry of `.txnindex`, and no client was told an offset.
    truth = compare(clients(ABORTED), {(2, TP): stored(VALUE, aborted=((7, 9),))})
    assert judge(truth, finding(2, offset=7, key=None)) == EITHER
    assert judge(truth, finding(2, offset=7)) == WRONG, "the key is known"


def test_the_tally_has_findings_that_are_undecided_or_for_nothing_and_missed_partitions() -> None:
    done = tally(compare(clients(ABORTED), {(2, TP): CARRIED_OUT}), audited([finding(1, decided=False)]))
    assert (done.counts["found"], done.counts["undecided"], done.counts["wrong accusations"]) == (1, 1, 0)
    done = tally(compare(clients(ABORTED), {(1, TP): VALUE_ALONE}), audited([finding(1, decided=False)]))
    assert (done.counts["diverged"], done.counts["nothing wrong"]) == (0, 1)
    assert [accusation.broker for accusation in done.for_nothing] == [1]
    truth = compare(clients(ABORTED), {(2, TP): CARRIED_OUT})
    done = tally(truth, audited([], "clean"))
    assert (done.counts["found"], done.counts["called clean"]) == (0, 1)
    assert [(entry["partition"], entry["verdict"]) for entry in done.missed] == [("t-0", "clean")]
    assert tally(truth, audited([], "unknown")).counts["called clean"] == 0


def test_a_key_that_is_deleted_in_any_case_is_known_and_a_state_that_no_outcome_leads_to_is_wrong() -> None:
    """A further delete by a transaction of unknown outcome makes no difference."""
    log = clients(UNKNOWN)
    log.writes[3], log.writes[2].offset = wrote(3, "k", 2, deletes=True), 3
    truth = compare(log, {(1, TP): VALUE_ALONE, (2, TP): ReplicaLog()})
    assert truth.unknown_keys == set()
    assert judge(truth, finding(1)) == RIGHT
    assert judge(truth, finding(2)) == WRONG
    assert judge(truth, finding(2, offset=3)) == EITHER, "of the transaction nobody knows"
    log = clients(UNKNOWN)
    log.writes[3], log.writes[2].offset = wrote(3, "k", 5), 6
    truth = compare(log, {(1, TP): VALUE_ALONE, (2, TP): ReplicaLog()})
    assert truth.unknown_keys == {(TP, "k")}
    assert [wrong.truth for wrong in truth.wrongs[1, TP]] == ["no value or the value of write 3"]
    assert truth.wrongs[2, TP] == ()
    assert compare(plain((False, 0)), {(1, TP): stored(VALUE, data(1, 1, "k"))}).unknown_keys == {(TP, "k")}


def test_a_record_that_may_have_been_written_again_is_wrong_where_a_later_one_has_replaced_it() -> None:
    """Found by a soak on 4.4.0: the client of the value had a late request, which may have repeated it."""
    log = plain((False, 0), (True, 1))
    log.writes[2].client = "another"
    truth = compare(log, {(2, TP): replace(stored(VALUE), late_producers=frozenset({-1}))})
    assert truth.unknown_keys == {(TP, "k")}
    assert names_of(RoundEvidence(truth)) == [{"tombstone-divergence"}]


def test_a_replica_shows_what_no_broker_acknowledged() -> None:
    """Found by a soak on 4.4.0: one replica has the tombstone, another has removed it, the third has neither."""
    log, tombstone = plain((False, 0), (True, None)), data(2, 3, "k", deletes=True)
    truth = compare(log, {(1, TP): ReplicaLog(), (2, TP): stored(tombstone), (3, TP): VALUE_ALONE})
    assert not truth.unknown_keys
    assert names_of(RoundEvidence(truth)) == [{"tombstone-divergence"}]
    assert judge(truth, finding(3)) == RIGHT
    truth = compare(
        plain((False, 0), (False, 1), (True, None)), {(1, TP): VALUE_ALONE, (2, TP): stored(data(2, 1, "k"))}
    )
    assert names_of(RoundEvidence(truth)) == [{UNEXPLAINED}], "the last value has not been deleted"


def test_a_client_log_is_kept_whole(tmp_path: Path) -> None:
    log = clients(UNKNOWN)
    save_client_log(log, tmp_path / "clients.json")
    assert load_client_log(tmp_path / "clients.json") == log


def named_here(log: ClientLog, *batches: bytes, log_start: int = 0, **others: Any) -> set[str]:
    truth = compare(log, {(2, TP): stored(*batches, log_start=log_start)}, **others)
    return names_by_replica(RoundEvidence(truth)).get((2, TP), set())


def followed_by(outcome: str, log: ClientLog) -> ClientLog:
    """Have the client end another transaction in the same partition, of which no replica has a record."""
    log.writes[3], log.transactions[10] = wrote(3, "other", 5, 10, deletes=True), Transaction(10, "id", outcome)
    return log


AGAIN = data(2, 1, "k", deletes=True)
EMPTIED = encode_batch(base_offset=1, last_offset=1, **TRANSACTIONAL)


def plain(*writes: tuple[bool, int | None]) -> ClientLog:
    """Know of writes of k, by whether they delete it and their offset."""
    return ClientLog({n: wrote(n, "k", offset, deletes=deletes) for n, (deletes, offset) in enumerate(writes, 1)})


DELETED, UNANSWERED = plain((False, 0), (True, 1)), plain((False, 0), (True, 1), (False, None))
"""Clients know that k was deleted; in the second log, a write without an answer may have followed the delete."""


@pytest.mark.parametrize(("log", "batches", "names"), [
    (DELETED, [VALUE], {"tombstone-divergence"}),
    (DELETED, [VALUE, AGAIN], set()),
    (DELETED, [AGAIN], set()),
    (UNANSWERED, [VALUE], {"tombstone-divergence"}),
    (UNANSWERED, [data(3, 2, "k")], set()),
    (plain((False, 0), (False, 1), (True, None)), [VALUE], {"tombstone-divergence"}),
    # A value that is lost, unless a delete without an acknowledgement was written.
    (plain((False, 0)), [], {UNEXPLAINED}),
    (plain((False, 0), (True, None)), [], set()),
    (plain((False, 0)), [VALUE, data(77, 1, "x")], {UNEXPLAINED}),
    (clients(ABORTED), [VALUE, DELETE, end(2, commit=True)], {"aborted-to-committed"}),
    (clients(COMMITTED), [VALUE, DELETE], {"stuck-lso"}),
    (clients(ABORTED), [VALUE, EMPTIED], {"stuck-lso"}),
    (clients(UNKNOWN), [VALUE, EMPTIED], set()),
    (clients(ABORTED), [VALUE, EMPTIED, end(2, commit=False)], set()),
])  # fmt: skip
def test_errors_have_names(log: ClientLog, batches: list[bytes], names: set[str]) -> None:
    assert named_here(log, *batches) == names


@pytest.mark.parametrize(("before", "log_start", "names"), [(1, 1, set()), (2, 2, set()), (2, 0, {UNEXPLAINED})])
def test_records_below_the_log_start_are_served_by_nobody(before: int, log_start: int, names: set[str]) -> None:
    log = plain((False, 0), (False, 1))
    log.deleted_before[TP] = before
    assert named_here(log, *([VALUE, data(2, 1, "k")] if log_start else []), log_start=log_start) == names


def test_a_log_start_that_nobody_asked_for_is_unexplained_but_for_retention() -> None:
    log = plain((False, 0))
    assert named_here(log, VALUE, log_start=1) == {UNEXPLAINED}
    assert named_here(log, VALUE, log_start=1, with_retention={"t"}) == set()


def test_what_a_wrong_outcome_makes_of_a_key_is_named_although_its_record_was_cleaned_away() -> None:
    log = followed_by(COMMITTED, clients(ABORTED))
    assert named_here(log) == {"aborted-to-committed"}
    log.writes[2].offset = None
    assert named_here(log) == {"aborted-to-committed"}, "no client knows where it was written"
    assert named_here(clients(ABORTED)) == {UNEXPLAINED}, "no COMMIT can have covered it"
    log = clients(COMMITTED)
    log.writes[2].is_delete = False
    assert named_here(log, VALUE) == {UNEXPLAINED}, "no ABORT can have covered it"
    assert named_here(followed_by(ABORTED, log), VALUE) == {"committed-to-aborted"}
    log.writes[2].transaction = None
    assert named_here(log, VALUE) == {UNEXPLAINED}


def test_a_delete_that_certainly_failed_explains_no_loss() -> None:
    common = {"f": "produce", "process": "p", "topic": "t", "partition": 0, "key": "k", "time_ms": 0}
    fields = [
        {"type": "invoke", "op": 1, "tombstone": False},
        {"type": "ok", "op": 1, "tombstone": False, "offset": 0},
        {"type": "invoke", "op": 2, "tombstone": True},
        {"type": "fail", "op": 2, "tombstone": True},
    ]
    log = client_log_of([{**common, **event} for event in fields])
    truth = compare(log, {(1, TP): stored(data(1, 0, "k")), (2, TP): stored()})
    assert (truth.diverged, truth.unknown_keys) == ({TP}, frozenset())
    assert truth.wrongs[1, TP] == ()
