"""Spooled replicas are judged with the answers of brokers and coordinators, each case as a run of one job."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checker_cases.transactions import T1
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.served import listening
from literal import Entry, abort, commit, encode, put
from pyspark.sql import SparkSession

from checkers.evidence.tables import load_copies
from checkers.reduction.reduce import reduce_copies
from harness.audit.judge_copies import assemble, is_big, judge_copies, judge_reduced, judge_whole
from harness.audit.live.broker_reports import Span, TransactionDescriptions, replica_statuses
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.source import read_with_executors
from harness.audit.live.spool import copies_of, spool
from harness.broker_files.copies.copies import Copies
from harness.broker_files.segments.key_share import ALL_KEYS, KeyShare
from harness.json_codec import to_json
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription
from harness.run_folder.store import RunFolder
from harness.spark.stored_segment import STORED_SEGMENTS, StoredSegment

P = T1.producer_id


def has(end: int, *log: Entry, **more: Any) -> Held:
    return Held(end, **{"last_stable_offset": end, **more}, batches=tuple(encode([entry]) for entry in log))


OPEN = {"last_stable_offset": 0, "open": (OpenTransaction(P, 0, 0),)}
OPEN_AT_2 = {"last_stable_offset": 2, "open": (OpenTransaction(P, 0, 2),)}
FINISHED = TransactionDescription(1, "id", "CompleteCommit", P, 0, -1, frozenset())
WHOLE = (put(0, "K", T1), commit(1, T1), put(2, "L"))
TWICE = (put(0, "K", T1), commit(1, T1), put(2, "L", T1), commit(3, T1))
STUCK = (put(0, "K", T1), put(2, "L"))
TWO_ENDS = (put(0, "K", T1), commit(1, T1), put(2, "L", T1), abort(3, T1), put(4, "K"))


@dataclass(frozen=True)
class Case:
    """Two brokers' replicas: the state of each, or its states in turn while it is read."""

    replica_1: Held | list[Held]
    replica_2: Held | list[Held]
    verdict: str
    reason: str
    finding: tuple[str, int, int] | None = None
    words: tuple[TransactionDescription, ...] = ()
    spans: dict[tuple[str, int], Span] = field(default_factory=dict)
    effect: str = "visible"


def later(before: Held, after: Held) -> list[Held]:
    """Return a replica that changes once its broker has reported its state: at the third question for its log end."""
    return [before, before, after]


PUTS = (put(0, "K"), put(2, "L"))
THREE_PUTS = (put(0, "K"), put(1, "N"), put(2, "L"))
IS_BACK = ("anomaly", "is back", ("tombstone-divergence", 1, 0))
HAS_OPEN = "the broker says that producer 5 has an open"
ABORTED_LATER = later(has(3, *STUCK, **OPEN), has(4, *STUCK, abort(3, T1), last_stable_offset=4, aborted=((P, 0),)))
RAISED = has(3, put(2, "L"), log_start=2, last_stable_offset=2, open=OPEN["open"])
BEGUN = [has(3, *WHOLE), has(4, *WHOLE, put(3, "M", T1), last_stable_offset=3, open=(OpenTransaction(P, 0, 3),))]
COMMITTED_LATER = later(has(3, *STUCK, **OPEN), has(4, *STUCK, commit(3, T1)))
ABORTED = has(5, put(0, "K", T1), abort(1, T1), put(2, "L", T1), abort(3, T1), put(4, "K"), aborted=((P, 0), (P, 2)))
CASES = {
    "same": Case(has(3, *WHOLE), has(3, *WHOLE), "clean", "agree"),
    "stuck": Case(has(3, *WHOLE), has(3, *STUCK, **OPEN), "anomaly", "frozen at 0", ("stuck-lso", 2, 0)),
    "open-is-not-open": Case(has(3, *WHOLE), has(3, *WHOLE, **OPEN), "unknown", f"broker 2: {HAS_OPEN}"),
    "open-is-not-there-and-goes-on-beyond-the-bound": Case(
        has(3, put(2, "L")), later(has(3, put(2, "L"), **OPEN), has(4, put(2, "L"), put(3, "M", T1), **OPEN)),
        "unknown", f"broker 2: {HAS_OPEN}"),
    "open-before-the-log-start": Case(RAISED, RAISED, "clean", "agree"),
    "stable-past-open": Case(
        has(3, *STUCK), has(3, *STUCK, **OPEN), "unknown", "broker 1: the broker says that producer 5 has no open"),
    "behind": Case(
        has(3, *WHOLE), has(3, *WHOLE, log_end=4), "unknown", "broker 2 was read to offset 3 only: removed records"),
    "ended-after-the-report": Case(COMMITTED_LATER, COMMITTED_LATER, "clean", "offset 3"),
    "ended-before-the-report": Case(
        has(4, *TWICE), later(has(4, *TWICE, **OPEN_AT_2), has(5, *TWICE, commit(4, T1), **OPEN_AT_2)), "unknown",
        f"broker 2: {HAS_OPEN}"),
    "begun-after-the-report": Case(
        has(3, *WHOLE), later(has(3, *WHOLE), has(4, *WHOLE, put(3, "M", T1), last_stable_offset=3)), "clean",
        "offset 3"),
    "begun-at-the-bound": Case(BEGUN, BEGUN, "clean", "offset 3"),
    "superseded-beyond-the-bound-and-cleaned": Case(
        [has(3, *PUTS), has(4, *PUTS, put(3, "K"))], has(4, put(2, "L"), put(3, "K")), "clean", "offset 3"),
    "deleted-beyond-the-bound-and-all-of-it-cleaned": Case(
        [has(3, *PUTS), has(5, put(2, "L"), put(4, "M"))], has(5, put(2, "L"), put(4, "M")), *IS_BACK),
    "retention-while-it-was-read": Case(
        has(3, *WHOLE), later(has(3, *WHOLE), has(3, *WHOLE[2:], log_start=2)), "clean", "offset 3"),
    "deleted-records-of-one-replica-so-far": Case(
        has(3, *PUTS), has(3, put(2, "L"), log_start=2), "clean", "offset 3"),
    "a-fenced-producer": Case(ABORTED_LATER, ABORTED_LATER, "clean", "offset 3"),
    "hidden-by-the-aborted-list": Case(
        has(5, *TWO_ENDS, aborted=((P, 2),)), has(5, *TWO_ENDS[2:], aborted=((P, 0),)), "anomaly", "hidden as aborted",
        ("committed-to-aborted", 2, 0), effect="latent"),
    "other-beliefs-in-the-same-log": Case(
        has(5, *TWO_ENDS[2:], aborted=((P, 2),)), has(5, *TWO_ENDS[2:], aborted=((P, 0),)), "unknown",
        "broker 2: it counts the records of producer 5 from offset 0 to 3 as aborted, broker 1 only from 2 on"),
    "aborted-and-not-listed": Case(
        has(5, *TWO_ENDS, aborted=((P, 2),)), has(5, *TWO_ENDS), "unknown",
        "the broker does not have the batch at offset 2 among aborted transactions"),
    "aborted-and-not-yet-to-be-listed": Case(
        has(5, *TWO_ENDS, aborted=((P, 2),)), has(5, *TWO_ENDS, last_stable_offset=2), "clean", "agree"),
    "aborted-twice": Case(ABORTED, ABORTED, "clean", "agree"),
    "hanging-unless-a-replica-was-not-read": Case(
        has(3, *STUCK, **OPEN), has(3, *STUCK, **OPEN), "anomaly", "CompleteCommit", ("stuck-lso", 1, 0),
        words=(FINISHED,)),
    "going-on": Case(
        has(3, *STUCK, **OPEN), has(3, *STUCK, **OPEN), "clean", "agree", words=(replace(FINISHED, state="Ongoing"),)),
    "alive": Case(has(3, *PUTS), has(3, put(2, "L")), *IS_BACK),
    "alive-as-far-as-was-read": Case(
        has(3, *THREE_PUTS), has(3, *THREE_PUTS[1:]), "unknown", "was read to offset 2 only", spans={TP: Span(0, 2)}),
    "before-what-was-read": Case(
        has(3, *THREE_PUTS), has(3, *THREE_PUTS[1:]), "clean", "agree", spans={TP: Span(1)}),
    "alive-and-not-yet-served": Case(
        has(3, *PUTS, last_stable_offset=0), has(3, put(2, "L")), *IS_BACK, effect="latent"),
    "poison-and-not-yet-served": Case(
        has(4, put(0, "K"), put(1, "K", T1), commit(3, T1), last_stable_offset=1), has(4, put(0, "K"), commit(3, T1)),
        "anomaly", "as after an abort", ("aborted-to-committed", 1, 1), effect="latent"),
    "nothing-there": Case(has(0), has(0), "clean", "offset 0"),
}  # fmt: skip


def judged_whole(spark: SparkSession, copies: Sequence[Copies]) -> dict[str, Any]:
    return judge_whole(load_copies(spark, copies))


def reduced(spark: SparkSession, copies: Sequence[Copies]) -> dict[str, Any]:
    return judge_reduced(reduce_copies(spark, copies, 2))


def stored(spark: SparkSession, copies: Sequence[Copies]) -> dict[str, Any]:
    """Judge the logs from a table of the session instead of files."""
    logs = [(copy, path) for run in copies for copy in run.replicas for path in copy.logs]
    rows = [(number, path.read_bytes()) for number, (_, path) in enumerate(logs)]
    spark.createDataFrame(rows, "number int, data binary").createOrReplaceTempView(STORED_SEGMENTS)
    paths: dict[Path, list[Any]] = {}
    for (number, data), (copy, path) in zip(rows, logs, strict=True):
        paths.setdefault(copy.folder, []).append(StoredSegment(number, path.name, len(data)))
        path.unlink()
    with_paths = [
        replace(run, replicas=tuple(replace(copy, stored=tuple(paths.get(copy.folder, ()))) for copy in run.replicas))
        for run in copies
    ]
    assert is_big(with_paths)
    return reduced(spark, with_paths)


@pytest.fixture(scope="module", params=[judged_whole, reduced, stored])
def verdicts(request: Any, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    top = tmp_path_factory.mktemp("spooled")
    copies = [spooled(name, case, RunFolder(top / name)) for name, case in CASES.items()]
    rows = request.param(spark, copies)
    return {case.run_id: to_json(assemble(case, rows, timings_s={})) for case in copies}


def brokers_of(case: Case) -> dict[int, FakeBroker]:
    replicas = [states if isinstance(states, list) else [states] for states in (case.replica_1, case.replica_2)]
    return {number: FakeBroker({TP: list(states)}) for number, states in enumerate(replicas, 1)}


def spooled(name: str, case: Case, folder: RunFolder, cluster: AuditedCluster | None = None, **how: Any) -> Copies:
    cluster = cluster or audited(brokers_of(case))
    read = spool(cluster, replica_statuses(cluster), folder, spans=case.spans, **how)
    assert read.failures == {}
    return copies_of(folder, name, read, TransactionDescriptions({word.producer_id: word for word in case.words}))


@pytest.mark.parametrize("share", [ALL_KEYS, *ALL_KEYS.halves()], ids=str)
@pytest.mark.parametrize("name", ["same", "stuck"])
def test_what_executors_read_is_judged(spark: SparkSession, tmp_path: Path, name: str, share: KeyShare) -> None:
    case, steps = CASES[name], list[str]()
    brokers = brokers_of(case)
    how: dict[str, Any] = {"session": spark, "rate_bytes_s": None, "report": lambda step, *_: steps.append(step)}
    executors = partial(read_with_executors, **how)
    with listening(brokers) as addresses:
        cluster = audited(brokers, addresses=addresses)
        copies = spooled(name, case, RunFolder(tmp_path / "run"), cluster, executors=executors, share=share)
    assert not list(tmp_path.glob("**/*.log"))
    rows = judge_copies(spark, [copies])
    assert to_json(assemble(copies, rows, timings_s={}))["verdict"] == case.verdict
    assert set(steps) <= {"read 2 replicas to their bounds", "read 2 replicas to their ends"}


@pytest.mark.parametrize("name", CASES)
def test_what_was_read_is_judged(verdicts: dict[str, Any], name: str) -> None:
    case, actual = CASES[name], verdicts[name]
    assert actual["checker_errors"] == {}
    assert (actual["verdict"], case.reason in actual["reason"]) == (case.verdict, True), actual["reason"]
    names = ("anomaly", "broker", "offset", "effect")
    accused = [tuple(finding[name] for name in names) for finding in actual["findings"]]
    assert accused[:1] == ([] if case.finding is None else [(*case.finding, case.effect)])
