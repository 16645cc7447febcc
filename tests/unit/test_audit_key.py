"""One key on a few replicas, by literal logs: what is served, why, when cleaning may remove it, and who differs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_cases import CASES
from audit_cases.case import Case
from checker_cases.transactions import T1, T2
from click.testing import CliRunner
from copied import Copy, copy, write_copies
from fakes.brokers import TP, FakeBroker, Held, audited
from literal import TOPIC, abort, commit, delete, emptied, emptied_marker, encode, put

from harness.audit.key.read import Comparison, KeyPartition, read_copies, read_live, usual_partitions
from harness.audit.key.show import exit_code, key_json, show_key
from harness.cli.main import cli
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN
from harness.escape import escape, unescape
from harness.kafka_api.transactions import OpenTransaction
from harness.terminal import stdout

END = put(20, "other")
GONE = "broker 2: no record, and nothing at offset 0; broker 1: the value of offset 0"
STUCK = (
    "broker 2 still has the transaction of producer 5 open from offset 0 on, and shows read_committed consumers nothing"
    " from there on; it ended on broker 1"
)


def copies(top: Path, *replicas: Copy) -> KeyPartition:
    ((partition,), _) = read_copies(write_copies(top, *replicas), TOPIC, b"K", [])
    return partition


def shown(partition: KeyPartition) -> list[dict[str, Any]]:
    return [replica for one in key_json([partition]) for replica in one["replicas"]]


def test_records_have_the_outcome_of_the_next_marker_of_their_producer_on_that_replica(tmp_path: Path) -> None:
    log = (put(0, "K"), put(1, "K", T1), emptied_marker(2, T1), abort(3, T1), put(4, "K", T2), commit(5, T2), END)
    (one, _) = shown(copies(tmp_path, copy(1, *log), copy(2, *log)))
    records = [(r["offset"], r["outcome"], r.get("ended_at")) for r in one["records"]]
    assert records == [(0, "committed", None), (1, "aborted", 3), (4, "committed", 5)]
    assert one["served"] == "the value (offset 4)"
    assert [r["cleaning"] for r in one["records"]] == [
        "superseded: goes with the first pass beyond 4",
        "goes with the first pass beyond its marker",
        "stays: the newest value of its key",
    ]


def test_an_emptied_batch_opens_a_transaction_that_holds_the_cleaner(tmp_path: Path) -> None:
    log = (put(0, "K"), emptied(1, T1), delete(2, "K"), END)
    one, _ = shown(copies(tmp_path, copy(1, *log), copy(2, *log)))
    assert one["served"] == (
        "the value (offset 0); not the record at 2: read_committed consumers stop at 1, where the transaction of"
        " producer 5 is open from 1 on"
    )
    assert one["records"][1]["cleaning"].endswith(". It is held: the last stable offset is 1")
    assert one["cleaner"][0].startswith("no pass goes beyond 1, where the transaction of producer 5 is open from 1 on")


@pytest.mark.parametrize(("replicas", "differences", "doubts"), [
    # Legal: a tombstone, or what it deleted, is removed earlier on one replica; a record is beyond another's end.
    (((put(0, "K"), delete(1, "K"), END), (delete(1, "K"), END), (END,)), [], []),
    (((put(0, "K"), put(3, "K"), END), (put(3, "K"), END)), [], []),
    (((put(0, "K"), put(2, "x"), delete(3, "K")), (put(0, "K"), put(2, "x"))), [], []),
    # A deleted value is back.
    (((put(0, "K"), END), (delete(1, "K"), END)),
     ["broker 1: the value of offset 0, and nothing at offset 1; broker 2: a delete of offset 1"], []),
    (((put(0, "K"), END), (END,), (END,)),
     ["brokers 2, 3: no record, and nothing at offset 0; broker 1: the value of offset 0"], []),
    # The outcome of a transaction.
    (((put(0, "K", T1), commit(1, T1), END), (put(0, "K", T1), abort(1, T1), END)),
     ["offset 0: aborted on broker 2 and committed on broker 1"], []),
    # Open, and ended elsewhere, where its record may have been superseded and removed.
    (((put(2, "K"), END), (put(0, "x", T1), put(2, "K"), END)), [STUCK], []),
    (((put(0, "K", T1), commit(1, T1), END), (put(0, "K", T1), END)),
     ["offset 0: committed on broker 1 and open on broker 2", STUCK], []),
    # Its marker may be on its way.
    (((put(0, "K", T1), commit(1, T1)), (put(0, "K", T1),)), [],
     ["offset 0: committed on broker 1 and open on broker 2, and the marker at 1 is beyond offset 1",
      f"{STUCK}, maybe beyond offset 1, or they begin after it"]),
    # A replica that has cleaned beyond the bound may have removed the record that superseded this.
    (((put(0, "K"), put(2, "x")), (put(2, "x"), put(9, "y"))), [],
     [f"{GONE}; that log was cleaned beyond offset 3, to which all replicas were read"]),
    (((put(0, "K"), put(2, "x")), (put(2, "x"), delete(3, "K"))), [],
     [f"{GONE}; newer records of the key are beyond offset 3, to which all replicas were read"]),
])  # fmt: skip
def test_only_what_no_cleaner_may_cause_is_a_difference(
    tmp_path: Path, replicas: tuple[Any, ...], differences: list[str], doubts: list[str]
) -> None:
    read = copies(tmp_path, *(copy(broker, *log) for broker, log in enumerate(replicas, 1)))
    assert read.comparison == Comparison(differences, doubts)
    assert exit_code([read]) == (1 if differences else 2 if doubts else 0)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_difference_of_a_key_is_a_finding_of_the_checkers(case: Case, tmp_path: Path) -> None:
    brokers = write_copies(tmp_path, *case.copies)
    case.spoil(tmp_path)
    records = (record for copied in case.copies for entry in copied.log for record in entry.records)
    codes = {}
    for key in {record.key for record in records if record.key is not None}:
        partitions, _ = read_copies(brokers, TOPIC, key.encode(), [])
        codes[key] = exit_code(partitions)
    assert EXIT_ANOMALY not in codes.values() or case.findings
    # The epochs of producers are not compared: replicas that missed the same marker serve the same.
    wrong = {finding.key for finding in case.findings if "overtaken" not in case.name}
    assert not wrong & {key for key, code in codes.items() if code == EXIT_CLEAN}


def test_a_horizon_and_the_disk_tell_when_a_delete_goes(tmp_path: Path) -> None:
    stamped = delete(3, "K", at_ms=1000, horizon_ms=90_000)
    log = (stamped, put(5, "a", at_ms=2000), put(7, "b", at_ms=100_000), delete(8, "K", at_ms=100_000))
    folders = write_copies(tmp_path, copy(1, *log, rolled_at=(0, 7)), copy(2, *log, rolled_at=(0, 7)))
    (tmp_path / "1" / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 5\n")
    ((partition,), _) = read_copies(folders, TOPIC, b"K", [0])
    one, two = shown(partition)
    (text,) = one["cleaner"]
    assert text == (
        "dirty from 5 on, a pass may go up to 7 (the active segment); dirty ratio 0.50; a pass begins above"
        " min.cleanable.dirty.ratio (unknown)"
    )
    assert one["records"][1]["cleaning"] == (
        "no pass has reached this delete: the first pass sets its horizon, a pass delete.retention.ms later removes it."
        " It is held: the active segment begins at 7"
    )
    assert two["cleaner"] == [
        "a pass begins above min.cleanable.dirty.ratio (unknown)",
        "a pass has reached offset 3, as it has a delete horizon",
        "no pass has mapped offset 8, as 3 is still there",
    ]
    alone = copies(tmp_path / "alone", copy(1, stamped, END), copy(2, stamped, END))
    assert shown(alone)[0]["records"][0]["cleaning"].startswith("a pass has set the delete horizon 1970-01-01 00:01:30")


def test_a_single_copy_a_damaged_copy_a_partition_without_the_key_and_a_later_log_start(tmp_path: Path) -> None:
    read = copies(tmp_path / "one", copy(1, put(0, "K"), END))
    assert read.comparison.doubts == ["only the replica of broker 1 was read"]
    folders = write_copies(tmp_path / "two", copy(1, put(0, "K"), END), copy(2, put(0, "K"), END))
    path = tmp_path / "two" / "2" / "t-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes().replace(b"value of 0", b"value of 1"))
    ((damaged,), _) = read_copies(folders, TOPIC, b"K", [])
    assert any("CRC is" in doubt for doubt in damaged.comparison.doubts)
    assert copies(tmp_path / "none", copy(1, END), copy(2, END)).comparison == Comparison()
    assert copies(tmp_path / "start", copy(1, put(0, "K"), END), copy(2, END, log_start=20)).comparison == Comparison()


def held(*log: Any, stable: int = 21, **fields: Any) -> Held:
    return Held(21, stable, batches=tuple(encode([entry]) for entry in log), **fields)


def live(*looks: list[Held], settings: dict[str, str] | None = None) -> KeyPartition:
    brokers = {number: FakeBroker({TP: stages}) for number, stages in enumerate(looks, 1)}
    (partition,) = read_live(audited(brokers, settings=settings), b"K", [TP])
    return partition


def test_a_running_cluster_is_read_replica_by_replica() -> None:
    log = (put(0, "K", T1), commit(1, T1), put(2, "K", T2), END)
    replica = held(*log, stable=2, open=(OpenTransaction(5, 0, 2),))
    read = live([replica], [replica], settings={"delete.retention.ms": "1000", "max.compaction.lag.ms": str(2**63 - 1)})
    assert (read.comparison, read.leader) == (Comparison(), 1)
    one, _ = shown(read)
    assert one["served"] == (
        "the value (offset 0); not the record at 2: the transaction of producer 5 is open on this replica"
    )
    assert one["records"][1]["cleaning"] == "stays while its transaction is open"
    assert one["cleaner"] == [
        "no pass goes beyond 2, where the transaction of producer 5 is open from 2 on",
        "a pass begins above min.cleanable.dirty.ratio (unknown)",
    ]


def test_a_difference_of_a_running_cluster_is_reported_and_a_broker_that_does_not_answer_is_a_doubt() -> None:
    assert live([held(put(0, "K"), END)], [held(END)]).comparison.differences == [GONE]
    brokers = {number: FakeBroker({TP: [held(put(0, "K"), END)]}) for number in (1, 2)}
    (partition,) = read_live(audited(brokers, absent=(3,)), b"K", [TP])
    assert [doubt[:38] for doubt in partition.comparison.doubts] == ["the replica of broker 3 was not read: "]
    assert exit_code([partition]) == EXIT_UNKNOWN


@pytest.mark.parametrize(("leader", "text"), [
    (1, "; consumers read broker 1, its leader"), (-1, "; no consumer reads it, as it has no leader"), (None, ""),
])  # fmt: skip
def test_the_first_line_of_a_partition_names_its_leader(
    leader: int | None, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_key(stdout(), b"K", [replace(live([held(put(0, "K"), END)]), leader=leader)], "")
    assert capsys.readouterr().out.startswith(f"t-0: key K{text}\n")


def test_usual_partitions_are_those_of_the_java_client_and_of_librdkafka() -> None:
    # Of Kafka's own test of murmur2 (UtilsTest), and the usual CRC-32.
    murmur2, crc = -790332482 & 0x7FFFFFFF, 0x9EF61F95
    assert usual_partitions(b"foobar", 1000) == sorted({murmur2 % 1000, crc % 1000})
    assert usual_partitions(b"foobar", 1) == [0]


@pytest.mark.parametrize("key", [b"a", "é\\x".encode(), b"\xff\x00ab\\\\", "\u202e\U000e0041fff".encode(), b"\xc3\xa9"])
def test_a_key_is_read_as_it_is_printed(key: bytes) -> None:
    assert unescape(escape(key)) == key


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["audit", "key", *words], standalone_mode=False)


@pytest.mark.parametrize(("words", "message"), [
    (["--key", "K"], "Missing parameter: topics"),
    (["--topic", "t", "--key", r"a\b"], r"write a backslash as"),
    (["--topic", "t", "--key", "base64:?"], "base64"),
    (["--topic", "t", "--key", "K"], "give --bootstrap-server, or --broker"),
    (["--topic", "t*", "--key", "K", "--broker", "1=x"], "the name of one topic"),
    (["--topic", "t", "--key", "K", "--partition", "0", "--all-partitions", "--broker", "1=x"], "leave out --part"),
    (["--topic", "t", "--key", "K", "--partition", "x"], "a partition's number"),
    (["--topic", "t", "--key", "K", "--broker", "1=x", "--bootstrap-server", "h:1"], "leave out --bootstrap"),
])  # fmt: skip
def test_an_unusable_argument_is_one_sentence(words: list[str], message: str) -> None:
    assert message in str(run(*words).exception)


def test_the_command_prints_text_and_json(tmp_path: Path) -> None:
    folders = write_copies(tmp_path, copy(1, put(0, "K"), END), copy(2, delete(1, "K"), END))
    words = ["--topic", TOPIC, "--key", r"\x4b", *(f"--broker={b}={paths[0]}" for b, paths in folders.items())]
    text = run(*words)
    assert text.return_value == 1
    assert "t-0: key K\nbroker 1: log start 0, last stable 21, high watermark 21, log end 21\n" in text.stdout
    difference = "broker 1: the value of offset 0, and nothing at offset 1; broker 2: a delete of offset 1"
    assert f"DIFFERENT: {difference}\n" in text.stdout
    assert f"next: harness audit disk --broker=1={tmp_path}/1 --broker=2={tmp_path}/2 --topic t" in text.stdout
    content = json.loads(run(*words, "--format", "json").stdout)
    assert (content["key"], content["exit_code"], content["partitions"][0]["partition"]) == ({"text": "K"}, 1, 0)
    assert content["partitions"][0]["replicas"][1]["records"][0]["offset"] == 1
    assert "no folder has a replica of t-7" in str(run(*words, "--partition", "7").exception)
    missing = run("--topic", TOPIC, "--key", "M", *words[4:])
    assert (missing.return_value, missing.stdout.splitlines()[0]) == (0, "t-0: no replica has a record of the key")
