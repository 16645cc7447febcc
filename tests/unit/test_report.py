"""A run's page: the logs side by side, and content that never becomes markup."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import raise_if_raw
from literal import History, Txn, commit, delete, put, replica, write_run
from pages import FINDING, HOSTILE, LONG, MANIFEST, hostile_page, page, verdict
from stored_records import offset_key, offset_value

from harness.broker_files.segments.batches import Record
from harness.errors import UsageError
from harness.json_codec import from_json
from harness.judge.finding import Finding
from harness.report.logs import LogCell, SideBySide, _texts, side_by_side
from harness.report.pictures.story import Outage, StoryEvent, read_story
from harness.report.pictures.timeline import _labels, _last_change_s, _text, timeline, transactions
from harness.report.rendering import DOCS, commands
from harness.run_folder.history import key_fields
from harness.run_folder.store import RunFolder

T1 = Txn(5, "t/1")
FILLED = put(3, "filler.before.1")
FIRST, END, NEXT = put(0, "K", T1), commit(1, T1), put(2, "L")
AFTER = (replica(1, FIRST, END, NEXT, FILLED), replica(2, FIRST, NEXT, FILLED), replica(3, FIRST, END, FILLED))
STUCK = History("stuck", wrote=(FIRST, END, NEXT), after=AFTER)


def observation(at_ms: int, broker: int, appeared: dict[int, str], removed: dict[int, str]) -> dict[str, Any]:
    ends = dict.fromkeys(("log_start", "high_watermark", "last_stable_offset", "log_end"), 4)
    return {
        "time_ms": at_ms, "broker": broker, "topic": "t", "partition": 0, **ends,
        "appeared": [{"offset": o, "kind": kind, "producer_id": 5 if o < 2 else -1} for o, kind in appeared.items()],
        "removed": [{"offset": offset, "kind": kind} for offset, kind in removed.items()],
    }  # fmt: skip


def written(tmp_path: Path, history: History, *observed: dict[str, Any]) -> RunFolder:
    made = write_run(tmp_path, history)
    made.write_lines(made.observations_path, observed)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    everything = {0: "value", 1: "commit", 2: "value", 3: "value"}
    appeared = [observation(at_ms, broker, everything, {}) for at_ms, broker in ((500, 1), (600, 3))]
    made = written(tmp_path, STUCK, *appeared, observation(2500, 3, {}, {2: "value"}))
    made.write_lines(made.outcomes_path, [outcome(1, "committed", 1), outcome(2, "open"), outcome(3, "committed", 1)])
    return made


def outcome(broker: int, outcome: str, decided_by: int | None = None) -> dict[str, Any]:
    place = {"broker": broker, "topic": "t", "partition": 0, "base_offset": 0}
    return {**place, "outcome": outcome, "decided_by": decided_by}


def table(folder: RunFolder, *findings: dict[str, Any]) -> SideBySide:
    found = [from_json(Finding, entry) for entry in findings]
    (shown_table,) = side_by_side(folder, MANIFEST, found, read_story(folder))
    return shown_table


def test_a_row_is_an_offset_and_a_column_a_broker(folder: RunFolder) -> None:
    shown_table = table(folder, FINDING)
    rows = {row.offset: row for row in shown_table.rows}
    assert shown_table.brokers == (1, 2, 3)
    assert list(rows) == [0, 1, 2, 3]
    outcomes = {broker: (cell.outcome, cell.decided_by) for broker, cell in rows[0].cells.items()}
    assert outcomes == {1: ("committed", 1), 2: ("open", None), 3: ("committed", 1)}
    assert rows[0].findings == {2: [1]}
    assert rows[1].cells[1] == LogCell("commit", producer_id=5)
    assert rows[1].missing == {2: "never seen here"}
    assert rows[2].missing == {3: "value, removed at 2.5 s"}


def test_rows_that_differ_and_background_traffic_are_marked(folder: RunFolder) -> None:
    marked = [(row.offset, row.differs, row.background) for row in table(folder).rows]
    assert marked == [(0, True, False), (1, False, False), (2, False, False), (3, False, True)]
    rows = table(folder, {**FINDING, "offset": 3}).rows
    assert not any(row.background for row in rows), "a finding is never background"


def test_every_finding_has_its_row(folder: RunFolder) -> None:
    """Also two at one offset, and one at an offset that was never seen."""
    shown_table = table(folder, FINDING, {**FINDING, "anomaly": "aborted-to-committed"}, {**FINDING, "offset": 77})
    assert {row.offset: row.findings for row in shown_table.rows if row.findings} == {0: {2: [1, 2]}, 77: {2: [3]}}
    (row,) = (row for row in shown_table.rows if row.offset == 77)
    assert (row.cells, row.differs, set(row.missing)) == ({}, True, {1, 2, 3})


def test_a_log_that_cannot_be_read_is_reported_of_and_the_others_are_shown(folder: RunFolder) -> None:
    (segment,) = folder.path.glob("brokers/2/after-rejoin/t-0/*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[70] ^= 0xFF
    segment.write_bytes(damaged)
    shown_table = table(folder)
    assert shown_table.problem.startswith("broker 2: brokers/2/after-rejoin/t-0/")
    assert 1 in shown_table.rows[0].cells


def test_the_page_says_what_was_not_judged_and_has_findings_elsewhere(folder: RunFolder) -> None:
    folder.outcomes_path.unlink()
    partial = [{"path": "fetched/2", "problem": "is missing (4 files)"}]
    content = verdict({**FINDING, "topic": "elsewhere"})
    text = page(folder, MANIFEST, {**content, "partial": partial, "notes": ["<an older run>"]})
    assert "Not judged: fetched/2 is missing (4 files)" in text
    assert "Note: &lt;an older run&gt;" in text
    assert "<code>harness check</code> adds it" in text, "it was judged before there were outcomes"
    assert f'Finding 1: <a href="{DOCS}/anomalies.md#stuck-lso">stuck-lso</a> on broker 2, offset 0' in text


def test_the_page_says_what_is_what_links_findings_and_rows_and_needs_nothing_but_itself(folder: RunFolder) -> None:
    text = page(folder, MANIFEST, verdict(FINDING))
    words = ['<span class="verdict anomaly">anomaly</span>', "… open here", "✓ committed here, by the marker at 1"]
    words += ["never seen here", "kafka-dump-log.sh", "--seed 7"]
    assert [missing for missing in words if missing not in text] == []
    # Names of XML's vocabularies are not addresses.
    addresses = set(re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')\s>]+)", text))
    assert not [entry for entry in addresses if not entry.startswith(("#", "data:", f"{DOCS}/"))]
    (row,) = re.findall(r'<tr id="([^"]+)" class=" differs">', text)
    assert f'<a href="#{row}">offset 0</a>' in text
    assert '<a class="small anomaly" href="#finding-1">finding 1</a>' in text
    links, ids = (set(re.findall(pattern, text)) for pattern in (r'href="#([^"]+)"', r'\bid="([^"]+)"'))
    assert links <= ids
    served = page(folder, {**MANIFEST, "anomaly": "served"}, verdict(FINDING))
    assert "kafka-dump-log.sh" not in served, "there are no copies of disks"


def test_the_headline_and_the_explanation_stand_once_on_the_page(folder: RunFolder) -> None:
    """Also where the verdict's reason and its scenario's repeat the explanation; the page's title is not on it."""
    finding = {**FINDING, "explanation": "frozen at 0", "witness": {"high_watermark_here": 4}}
    content = verdict(finding)
    content["reason"] = content["scenarios"][0]["reason"] = "frozen at 0"
    head, _, body = page(folder, MANIFEST, content).partition("</head>")
    never = "broker 2 will never deliver t-0 past offset 0 to read_committed consumers"
    sentence = f"{never}; up to 4 records are invisible"
    assert f"<title>anomaly: {sentence} (kafka-3.9, nemesis kill)</title>" in head
    assert f'<h1><span class="verdict anomaly">anomaly</span>: {sentence}</h1>' in body
    assert (body.count(sentence), body.count("frozen at 0")) == (1, 1)


def test_several_findings_have_one_headline_and_each_its_impact(folder: RunFolder) -> None:
    other = {**FINDING, "anomaly": "tombstone-divergence", "explanation": "it is back", "offset": 2}
    text = page(folder, MANIFEST, verdict(FINDING, other))
    assert "</span>: 2 findings on broker 2, in 2 kinds</h1>" in text
    impacts = re.findall(r'<a href="#finding-(\d)">finding \d</a> \(visible\): ([^<]+)', text)
    assert [number for number, _ in impacts] == ["1", "2"]
    assert impacts[1][1].startswith("broker 2 still serves deleted key")
    assert text.index("it is back") < text.rindex('<details class="folded"><summary>Raw witness')


@pytest.mark.parametrize(("at_ms", "brokers", "diverges_s"), [
    (2500, (1, 3), 2.5), (2500, (1,), None), (6000, (1, 3), None),
], ids=["removed everywhere else", "still on a broker", "after the return"])  # fmt: skip
def test_the_divergence(tmp_path: Path, at_ms: int, brokers: tuple[int, ...], diverges_s: float | None) -> None:
    appeared = [observation(600, broker, {0: "value", 1: "commit"}, {}) for broker in (1, 3)]
    removed = [observation(at_ms, broker, {}, {1: "commit"}) for broker in brokers]
    made = written(tmp_path, STUCK, *appeared, *removed)
    story = replace(read_story(made), outages=[Outage(1.0, 5.0, (2,))])
    assert story.diverges_s(("t", 0)) == (diverges_s and pytest.approx(diverges_s, abs=0.01))
    assert ("stroke-dasharray" in timeline(story, "t", 0)) is (diverges_s is not None)


def test_labels_of_the_timeline_stay_in_their_frame_and_apart_and_name_a_transaction_once() -> None:
    events = [StoryEvent(at_s, f"c.{process}", "writes a record " * 3) for process in "ab" for at_s in (0, 2, 4.5, 9.9)]
    labels = _labels(events, 10.0, 7.0)
    assert [label.lane for label in labels] == [0, 1, 0, 2, 3, 4, 3, 5]
    assert [label.is_left for label in labels] == [False, False, False, True] * 2
    begins, writes = StoryEvent(0.0, "tx", "begins transaction 1", 1, True), StoryEvent(0.0, "tx", "writes K at 2", 1)
    plain, next_one = StoryEvent(0.0, "tx", "writes L"), StoryEvent(0.0, "tx", "writes M", 2)
    assert _text([begins, writes]) == "begins transaction 1, writes K at 2"
    assert _text([StoryEvent(0.0, "tx", "writes transaction 1", 1)]) == "writes transaction 1 in transaction 1"
    several = "writes K at 2 in transaction 1, writes K at 2, writes L, writes M in transaction 2"
    assert _text([writes, writes, plain, next_one]) == several


def test_a_run_without_a_finding_says_why_once(folder: RunFolder) -> None:
    content = verdict()
    content["reason"] = content["scenarios"][0]["reason"] = "every replica had it and removed it"
    text = page(folder, MANIFEST, content)
    assert text.count("every replica had it and removed it") == 1
    assert "</span>: the replicas agree, and the run shows that they had every reason not to</h1>" in text


def test_the_worst_findings_timeline_comes_first_and_folds_with_findings_are_open(folder: RunFolder) -> None:
    other = {"topic": "u", "summary": "Nothing is wrong.", "replicas": {"0": [1, 3, 2]}}
    manifest = {**MANIFEST, "scenarios": [other, *MANIFEST["scenarios"]]}
    text = page(folder, manifest, verdict(FINDING))
    marks = ["</h1>", 'aria-label="Timeline of t-0"', 'aria-label="Contents"', 'id="verdicts"', "<details open>", "t-0"]
    marks += ["<details>", "u-0", 'aria-label="Timeline of u-0"', 'id="setup"']
    assert re.search(".*?".join(map(re.escape, marks)), text, re.DOTALL)
    assert text.count('aria-label="Timeline of t-0"') == text.count("<details open>") == 1


def test_commands_to_copy_quote_the_names_of_topics() -> None:
    text = commands(2, "t; rm -rf ~", 0)
    assert """--files "$(printf %s, './brokers/2/after-rejoin/t; rm -rf ~-0'/*.log)"\n""" in text
    assert "--topic 't; rm -rf ~' --partition 0" in text


def test_the_timeline_ends_soon_after_the_last_change(tmp_path: Path) -> None:
    changed = observation(30_000, 1, {}, {}) | {"last_stable_offset": 7}
    made = written(tmp_path, STUCK, observation(500, 1, {}, {}), changed, changed | {"time_ms": 60_000})
    story = read_story(made)
    (replica,) = story.replicas["t", 0].values()
    changed_s = replica.at_s[1]
    assert _last_change_s(story.events["t", 0], story.outages, [replica], ()) == changed_s == pytest.approx(30, abs=1)
    shown = timeline(story, "t", 0)
    assert f"nothing changes from {changed_s:.1f} to {story.ends_s:.1f}" in shown
    assert "broker 1: log end 4, high watermark 4, last stable offset 7" in shown


def test_a_partition_of_groups_shows_what_was_done_to_it_alone(tmp_path: Path) -> None:
    def act(process: str, f: str, **more: Any) -> dict[str, Any]:
        return {"time_ms": 1000, "part": "payload", "type": "ok", "process": process, "f": f, **more}

    def produce(process: str, partition: int, **more: Any) -> dict[str, Any]:
        key = key_fields(offset_key("g", "in", 3))
        return act(process, "produce", topic="__consumer_offsets", partition=partition, **{**key, **more})

    made = written(tmp_path, STUCK)
    made.write_lines(made.history_path, [
        act("a.tx", "init"), act("a.tx", "begin", txn=1),
        produce("a.tx", 0, txn=1, offset=4, value="60", tombstone=False), act("a.tx", "commit", txn=1),
        produce("b.plain", 1, offset=7, tombstone=True),
        produce("b.plain", 1, tombstone=True, key_base64="AGM="),
    ])  # fmt: skip
    events = read_story(made).events
    texts = {place[1]: [event.text for event in there] for place, there in events.items()}
    assert texts == {
        0: ["begins transaction 1", "commits offset 60 of partition 3 at 4", "commits transaction 1"],
        1: ["deletes the offset of partition 3 at 7", r"deletes key \x00c"],
    }


def test_a_key_that_is_not_valid_is_damage(tmp_path: Path) -> None:
    made = written(tmp_path, STUCK)
    lines = made.history_path.read_text().splitlines()
    made.history_path.write_text("".join(line.replace('"key"', '"key_base64"') + "\n" for line in lines))
    with pytest.raises(UsageError, match=r"history\.jsonl: a record.s key is invalid"):
        read_story(made)


def test_what_is_reported_is_text(tmp_path: Path) -> None:
    text = hostile_page(tmp_path)
    assert text.count("<script") == text.count("<script>// Adds a button") == 1
    raise_if_raw(text)
    assert r"&lt;script&gt;alert(1)&lt;/script&gt;\x00\u202e\x1b[31m&amp;" in text
    assert "… (1,048,576 bytes)" in text
    assert len(text) < len(LONG)


def test_guarantees_are_reported_and_their_absence_is_borne(folder: RunFolder) -> None:
    actual: list[dict[str, Any]] = [
        {"guarantee": name, "holds": holds, "reason": f"{name} {HOSTILE}", "compared": 1, "violations": []}
        for name, holds in (("order", True), ("offsets", False), ("tombstones", None))
    ]
    text = page(folder, MANIFEST, {**verdict(), "guarantees": actual})
    rows = re.findall(r'<tr><th scope="row"><a href="[^"]+">(\w+)</a></th><td><span class="\w+">([^<]*)</span>', text)
    shown = {"order": "✓ yes", "offsets": "✗ no", "tombstones": "not judged"}
    assert [row for row in rows if row[0] != "t"] == list(shown.items())
    assert "<script>alert" not in text
    assert "Guarantees of compaction" not in page(folder, MANIFEST, verdict())


def test_who_was_away_and_when(folder: RunFolder) -> None:
    events = [json.loads(line) for line in folder.history_path.read_text().splitlines()]
    begins_ms = min(event["time_ms"] for event in events)
    for f, kind, at_ms in (("leave", "invoke", 1000), ("leave", "ok", 1500),
                           ("come back", "invoke", 4000), ("come back", "ok", 5000)):  # fmt: skip
        events.append({"time_ms": begins_ms + at_ms, "part": "nemesis", "f": f, "type": kind, "brokers": [2]})
    folder.write_lines(folder.history_path, events)
    assert read_story(folder).outages == [Outage(1.0, 5.0, (2,))]


def test_a_delete_is_a_delete(tmp_path: Path) -> None:
    entry = History("one", wrote=(delete(0, "K"),), after=(replica(1, delete(0, "K")),))
    manifest = {**MANIFEST, "scenarios": [{"topic": "t", "summary": "", "replicas": {"0": [1]}}]}
    assert 'delete <span class="key">K</span>' in page(written(tmp_path, entry), manifest, verdict())


def edges(folder: RunFolder) -> set[tuple[str, str, str, tuple[int, ...]]]:
    story = read_story(folder)
    (shown_table,) = side_by_side(folder, MANIFEST, [], story)
    graph = transactions(shown_table, story.entries["t", 0])
    return {(*edge, tuple(brokers)) for edge, brokers in graph.items()}


def test_the_transaction_graph_shows_who_takes_what_for_the_end(folder: RunFolder, tmp_path: Path) -> None:
    assert edges(folder) == {("t/1", "COMMIT at 1", "true", ()), ("t/1", "no marker: open", "wrong", (2,))}
    everywhere = History("open", wrote=(put(0, "K", T1),), after=tuple(replica(b, put(0, "K", T1)) for b in (1, 2, 3)))
    (tmp_path / "open").mkdir()
    made = written(tmp_path / "open", everywhere, observation(500, 1, {0: "value"}, {}))
    made.write_lines(made.outcomes_path, [outcome(broker, "open") for broker in (1, 2, 3)])
    assert edges(made) == {("t/1", "no marker: open", "true", ())}, "it is open everywhere"


def test_records_of_groups_are_decoded() -> None:
    committed = Record(0, 0, offset_key("g", "data", 0), offset_value(60))
    assert _texts("__consumer_offsets", committed) == ("group g, data-0", "committed offset 60")
    assert _texts("__consumer_offsets", replace(committed, value=None)) == ("group g, data-0", None)
    assert _texts("__consumer_offsets", Record(0, 0, b"\0\x63", b"v")) == ("\\x00c", "v")
    assert _texts("orders", Record(0, 0, b"K", b"v")) == ("K", "v")
