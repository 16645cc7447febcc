"""Hostile keys, values, topics, transactional ids and messages through every command that prints: text, JSON, XML, …

What is shown is never raw (`hostile.raise_if_raw`), markup in it is text, and JSON gives back what was written.
"""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pytest
from copied import copy, write_copies
from fakes.brokers import FakeBroker, Held, audited_cluster
from findings import verdict
from hostile import HOSTILE, LITERAL, NAME, raise_if_forged, raise_if_raw
from in_process import exit_code
from literal import History, Txn, abort, commit, delete, put, replica, write_run
from pages import MANIFEST, write_night
from pyspark.sql import SparkSession
from test_nightly_night import ended, failed, plan_of
from test_site import stored

from harness import console
from harness.audit import judge_copies
from harness.audit.live import cluster as clusters
from harness.audit.live import compare as live
from harness.audit.live import exposure
from harness.audit.live.prefilter import prefilter
from harness.cli.develop import _show_outcomes as show_conformance
from harness.cli.develop import _show_walks as show_walks
from harness.cli.main import cli as commands
from harness.console import JSON, TEXT, ConsoleProgress
from harness.errors import EXIT_ANOMALY, EXIT_UNKNOWN, EXIT_USAGE, HarnessError
from harness.json_codec import to_json
from harness.judge import check
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, RunResult
from harness.kafka_api.address import Address
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.kafka_api.transactions import OpenTransaction, TransactionDescription
from harness.nightly.ledger import ScenarioResult
from harness.nightly.reports import markdown, results_of, summary, write_junit
from harness.nightly.reports import show as show_night
from harness.report.site import index_page, write_site
from harness.report.stored import RunningRun, read_contents
from harness.run_folder.store import RunFolder
from harness.terminal import stdout

Capture = pytest.CaptureFixture[str]
TP = (NAME, 0)
T1, T2 = (Txn(5, f"{HOSTILE}/{number}") for number in (1, 2))
END = put(9, "end")


def checked(text: str) -> str:
    raise_if_raw(text)
    raise_if_forged(text)
    return text


@pytest.mark.parametrize("output", [TEXT, JSON])
def test_audit_disk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, output: str
) -> None:
    first = (delete(1, HOSTILE), put(2, "s", T1), commit(3, T1), END)
    second = (replace(put(0, HOSTILE), value=HOSTILE), put(2, "s", T1), END)
    write_copies(tmp_path, copy(1, *first, epochs={0: 0}), copy(2, *second, epochs={0: 0}))
    monkeypatch.setattr(judge_copies, "session_of", lambda *_: nullcontext(spark))
    monkeypatch.chdir(tmp_path)
    arguments = ["audit", "disk", "--topic", "t", "--broker", "1=1", "--broker", "2=2", "--format", output]
    assert commands.main(arguments, prog_name="harness", standalone_mode=False) == EXIT_ANOMALY
    text = checked(capsys.readouterr().out)
    if output == JSON:
        content = json.loads(text)
        assert {"text": HOSTILE} in [finding["key"] for finding in content["findings"]]
        assert any(finding["witness"].get("transaction") == T1.name for finding in content["findings"])
    else:
        assert "deleted key \\x00\\x07\\x1b]0;mine\\x07\\x1b[2J\\u009b31m" in text
        assert "transaction \\x00\\x07\\x1b]0;mine" in text


def test_what_checkers_say_of_runs(spark: SparkSession, tmp_path: Path) -> None:
    data, later = put(0, HOSTILE, T1), put(2, "L", T2)
    missed = {
        "stuck": ((data, commit(1, T1), put(2, "L")), (data, put(2, "L"))),
        "poison": ((data, abort(1, T1), later, commit(3, T2)), (data, later, commit(3, T2))),
        "hidden": ((data, commit(1, T1), later, abort(3, T2)), (data, later, abort(3, T2))),
    }
    histories = [
        History(name, wrote=whole, after=(replica(1, *whole), replica(2, *less), replica(3, *whole)))
        for name, (whole, less) in missed.items()
    ]
    other = replica(3, put(0, "other", T1), *histories[0].wrote[1:])
    histories.append(replace(histories[0], name="other", after=(*histories[0].after[:2], other)))
    found = check.run_checkers(check.prepare(spark, [write_run(tmp_path, one) for one in histories]))
    assert found.raised == {}
    lines = [str(finding) for finding in found.findings]
    lines += [row["explanation"] for row in found.guarantees or [] if row["violated"]]
    names = {line.partition(":")[0] for line in lines}
    assert {"stuck-lso", "aborted-to-committed", "committed-to-aborted"} <= names
    assert any("key other" in line for line in lines)
    for line in lines:
        assert "\\x00\\x07\\x1b]0;mine" in checked(line)


def of_a_run(folder: Path) -> RunResult:
    finding = {
        "anomaly": HOSTILE, "candidates": [HOSTILE], "broker": 2, "topic": NAME, "partition": 0, "offset": 0,
        "key": {"text": HOSTILE}, "producer_id": 5, "effect": HOSTILE, "explanation": HOSTILE,
        "witness": {HOSTILE: HOSTILE},
    }  # fmt: skip
    actual = verdict(
        verdict=ANOMALY, findings=[finding],
        scenarios=[{
            "scenario": NAME, "anomaly": NAME, "payload": NAME, "topic": NAME, "partitions": [0], "verdict": UNKNOWN,
            "reason": HOSTILE, "exposure": {"replicas": []},
        }],
        guarantees=[{"guarantee": HOSTILE, "holds": True, "reason": HOSTILE, "compared": 1, "violations": []}],
        partial=[{"path": HOSTILE, "problem": HOSTILE}],
        notes=[HOSTILE],
    )  # fmt: skip
    return RunResult(RunFolder(folder / NAME), actual, {1: HOSTILE})


@pytest.mark.parametrize("output", [TEXT, JSON])
def test_run_and_check(tmp_path: Path, capsys: Capture, output: str) -> None:
    result = of_a_run(tmp_path)
    console.show(result, output)
    captured = capsys.readouterr()
    checked(captured.out + captured.err)
    if output == JSON:
        assert json.loads(captured.out) == to_json(result.verdict)
    else:
        assert captured.out.count(LITERAL) >= 6
        assert "t[red]\\x1b[31m\\u202e[/red]:x:-0" in captured.out
        ConsoleProgress().stage(HOSTILE)
        assert LITERAL in checked(capsys.readouterr().err)


WORD = TransactionDescription(1, HOSTILE, "CompleteCommit", 7, 3, 0, frozenset({TP}), timeout_ms=1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the cluster by two brokers of which the second is frozen, and one that is down."""
    frozen = Held(20, 10, open=(OpenTransaction(7, 3, 10),))
    brokers = {1: FakeBroker({TP: [Held(20, 20)]}, words=[WORD]), 2: FakeBroker({TP: [frozen]})}
    addresses = {broker: Address(HOSTILE, 9000 + broker) for broker in brokers}
    state = PartitionState(leader=1, replicas=(1, 2, 3), isr=(1, 2))
    described = ClusterState(HOSTILE, addresses, {NAME: TopicState(NAME, {0: state})})
    cluster = replace(audited_cluster(described, brokers, {NAME: {"cleanup.policy": "compact"}}), notes=(HOSTILE,))
    actual, seen = prefilter(cluster), exposure.exposure(cluster)
    for module in (live, clusters):
        monkeypatch.setattr(module, "describe", lambda *_: cluster)
    monkeypatch.setattr(live, "prefilter", lambda *_: actual)
    monkeypatch.setattr(exposure, "exposure", lambda *_: seen)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("output", [TEXT, JSON])
@pytest.mark.parametrize(("command", "code"), [(("live", "--quick"), EXIT_ANOMALY), (("exposure",), EXIT_UNKNOWN)])
def test_audits_of_a_cluster(capsys: Capture, command: tuple[str, ...], code: int, output: str) -> None:
    arguments = ["audit", *command, "--topic", "t", "--bootstrap-server", "h:1", "--format", output]
    assert commands.main(arguments, prog_name="harness", standalone_mode=False) == code
    captured = capsys.readouterr()
    checked(captured.out + captured.err)
    if output == JSON:
        content = json.loads(captured.out)
        assert NAME in {one["topic"] for one in content.get("findings") or content["topics"]}
    else:
        assert "the coordinator of \\x00\\x07\\x1b]0;mine" in captured.out
        # Its own backslash is distinguished from an escape.
        assert "\\\\x1b | `x` é says CompleteCommit" in captured.out
        assert "t[red]\\x1b[31m\\u202e[/red]:x:-0" in captured.out
        assert re.search(r"note:? +\\x00\\x07", captured.out)


def test_nightly(tmp_path: Path, capsys: Capture) -> None:
    plan = plan_of(nemeses=["kill", "none"])
    result = ScenarioResult("stuck-lso", ANOMALY, HOSTILE, (HOSTILE,), HOSTILE)
    stray = replace(ended(0, 2, result), strays=(HOSTILE,), run_dir=HOSTILE)
    attempts = [failed(0, why=HOSTILE), stray, failed(1, why=HOSTILE), failed(1, 2, why=HOSTILE)]
    plan = replace(plan, details={**plan.details, "command": HOSTILE})
    results = results_of(plan, attempts)
    show_night(stdout(), results, [HOSTILE])
    assert checked(capsys.readouterr().out).count(LITERAL) >= 4
    assert "&lt;script&gt;" not in checked(markdown(plan, results, [HOSTILE]))
    write_junit(tmp_path / "junit.xml", results, [HOSTILE])
    actual = checked((tmp_path / "junit.xml").read_text().expandtabs())
    suite = ET.fromstring(actual)  # noqa: S314  (written one line above)
    texts = [text for element in suite.iter() for text in (element.text or "", *element.attrib.values())]
    assert sum(LITERAL in text for text in texts) >= 4
    assert sum("<script>alert(1)</script> ]]>" in text for text in texts) >= 4
    assert summary(plan, results, [HOSTILE])["strays"] == [HOSTILE]


def shows_no_markup(page: str) -> None:
    raise_if_raw(page)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_site_over_runs_whose_manifests_and_logs_are_hostile(tmp_path: Path, capsys: Capture) -> None:
    results, out = tmp_path / "results", tmp_path / "site"
    path = stored(results, 1, ANOMALY, nemesis=HOSTILE, client=HOSTILE, failure=HOSTILE)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest |= {"target": {"name": HOSTILE, "version": HOSTILE}, "anomaly": HOSTILE}
    folder = RunFolder(path)
    folder.write_json(folder.manifest_path, manifest)
    data = put(0, HOSTILE, T1)
    other = write_run(tmp_path, History("other", wrote=(data,), after=(replica(1, data),)))
    lines = [json.loads(line) for line in other.history_path.read_text().splitlines()]
    # TeX markup must not become a formula.
    events = [{**line, "process": HOSTILE.replace(".", ""), "topic": "t"} for line in lines]
    folder.write_lines(folder.history_path, events)
    second = stored(results, 2, CLEAN)
    (second / "verdict.json").write_text("[]")
    (results / "2026-11-22-words.md").write_text(f"# {HOSTILE}\n\nText\twith \x1b[31m\n")
    write_site(results, out, ConsoleProgress().stage)
    pages = {page.name: page.read_text() for page in out.rglob("*.html")}
    for page in pages.values():
        raise_if_raw(page)
        assert "<script>alert" not in page
    assert "$\\frac{$" in pages[f"{path.name}.html"]
    assert "has no page" not in pages["index.html"], pages["index.html"]
    assert commands.main(["report", "--results", str(results), "--out", str(out)], standalone_mode=False) == 0
    checked("".join(capsys.readouterr()))


def test_nights_and_differences_between_runs(tmp_path: Path) -> None:
    results, out = tmp_path / "results", tmp_path / "site"
    for day in (1, 2):
        stored(results, day, ANOMALY, nemesis=HOSTILE, client=HOSTILE, seed=f"{HOSTILE}{day}")
    texts = dict.fromkeys(("version", "expected", "status", "why"), HOSTILE)
    write_night(results, "nightly/one", HOSTILE, **texts, flaky=[HOSTILE])
    write_site(results, out, ConsoleProgress().stage)
    (night,), (difference,) = ((out / folder).rglob("*.html") for folder in ("nights", "differences"))
    for page in (night, difference, out / "index.html"):
        shows_no_markup(page.read_text())


def test_the_index_of_runs_that_go_on(tmp_path: Path) -> None:
    stored(tmp_path, 1, CLEAN)
    running = RunningRun(HOSTILE, {**MANIFEST, "nemesis": HOSTILE}, ((HOSTILE, HOSTILE),))
    shows_no_markup(index_page(replace(read_contents(tmp_path), left_out=[HOSTILE]), (), [running], update_s=2))


def test_explore_and_conform(capsys: Capture) -> None:
    case = {"case": HOSTILE, "states": 1, "transitions": 1, "depth": 1, "verdict": ANOMALY}
    ways: Any = {HOSTILE: (SimpleNamespace(), (HOSTILE,))}
    content = {"cases": [{**case, "ways": {HOSTILE: [HOSTILE]}}]}
    for of_each_case in (True, False):
        show_walks(content, ways, of_each_case=of_each_case)
    show_conformance([], HOSTILE, UNKNOWN)
    assert checked(capsys.readouterr().out).count(LITERAL) >= 8


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", f"/nowhere/{NAME}"),
        ("clean", HOSTILE),
        (HOSTILE,),
        ("run", "--target", HOSTILE, "--anomaly", "all"),
        ("--debug", "run", "--target", "kafka-3.9", "--anomaly", HOSTILE),
        ("audit", "disk", "--topic", NAME, "--broker", f"1={NAME}"),
        ("audit", "live", "--topic", NAME, "--bootstrap-server", HOSTILE),
        ("report", "--results", NAME, "--out", NAME),
        ("nightly", "--targets", HOSTILE),
        ("explore", "--target", HOSTILE),
        ("conform", "--target", HOSTILE),
        ("doctor", "--fetch", HOSTILE),
    ],
    ids=lambda arguments: arguments[0] if arguments[0].isalpha() else "other",
)
def test_errors(monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, *[argument.replace("\x00", "") for argument in arguments]) == EXIT_USAGE
    captured = capsys.readouterr()
    assert "harness: " in captured.err
    checked(captured.out + captured.err)


def test_what_brokers_logged_is_quoted_in_lines_of_their_own(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(commands, "main", Mock(side_effect=HarnessError(f"broker 1 ended:\n{HOSTILE}")))
    assert exit_code(monkeypatch, "targets") != 0
    assert LITERAL in checked(capsys.readouterr().err)
