"""The observations of an application on top, in sentences; also when the application showed nothing wrong."""

from typing import Any

import pytest
from findings import finding

from harness.json_codec import to_json
from harness.judge import consequences as module
from harness.judge.consequences import ApplicationView, with_consequences

FULL = {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}


def line(step: str, entries: dict[str, str] | None, **more: Any) -> dict[str, Any]:
    """Return a line of ``applications.jsonl``: what a table showed in a step."""
    return {
        "application": "streams", "version": "4.3.1", "step": step, "leader": 2 if step == "absent-leads" else 1,
        "absent": None if step == "staying-leads" else 2, "topic": "t", "view": "table", "state": "RUNNING",
        "running_s": 1.2, "watched_s": 9.0, "entries": entries, "error": None, **more,
    }  # fmt: skip


def consequences(lines: Any) -> list[dict[str, Any]]:
    views: list[dict[str, Any]] = to_json(module.application_views(lines))
    return views


def summary(*lines: dict[str, Any]) -> str:
    (view,) = consequences(lines)
    return str(view["summary"]).removeprefix("Kafka Streams 4.3.1: a table restored from t ")


def test_a_deleted_value_is_back_and_stays_with_the_local_state() -> None:
    wrong = {**FULL, "K": "deleted"}
    lines = [line("staying-leads", FULL), line("absent-leads", wrong), line("staying-leads-again", wrong)]
    (view,) = consequences(lines)
    assert view.pop("summary") == (
        "Kafka Streams 4.3.1: a table restored from t has K = deleted while broker 2 leads, and not"
        " while broker 1 leads; its local state keeps that when broker 1 leads again"
    )
    assert view == {
        "application": "streams", "version": "4.3.1", "topic": "t", "view": "table", "broker": 2, "differs": True,
        "lasts": True,
    }  # fmt: skip


@pytest.mark.parametrize(("shown", "wrong"), [
    ({**FULL, "b": "x"}, "has b = x and not 2"),
    ({key: value for key, value in FULL.items() if key != "b"}, "does not have b = 2"),
    ({"a": "1", "b": "2", "c": "x", "d": "y"}, "has c = x and not 3 and has d = y and not 4 and does not have e = 5"),
    ({"a": "1"}, "is RUNNING without an error, and has 1 of 5 entries"),
    ({}, "is RUNNING without an error, and has 0 of 5 entries"),
    ({**FULL, "long": "x" * 70}, f"has long = {'x' * 60}…"),
], ids=["another value", "a missing one", "three", "most are missing", "empty", "a long value"])  # fmt: skip
def test_what_differs(shown: dict[str, str], wrong: str) -> None:
    actual = summary(line("staying-leads", FULL), line("absent-leads", shown))
    assert actual == f"{wrong} while broker 2 leads, and not while broker 1 leads"


def test_an_application_that_never_gets_ready_or_refuses_a_query() -> None:
    stuck = line("absent-leads", None, state="REBALANCING", running_s=None, watched_s=20.1, error="not RUNNING")
    lines = [line("staying-leads", FULL), stuck, line("staying-leads-again", FULL)]
    (view,) = consequences(lines)
    assert view["lasts"] is False
    assert summary(*lines) == (
        "stays REBALANCING (watched for 20 s) while broker 2 leads, and not while broker 1 leads;"
        " it recovers when broker 1 leads again"
    )
    refused = line("absent-leads", None, state="ERROR", error="it is closed")
    assert summary(line("staying-leads", FULL), refused).startswith("cannot be queried (it is closed)")


def test_what_lasts_may_be_another_thing() -> None:
    steps = (line("staying-leads", FULL), line("absent-leads", {}), line("staying-leads-again", {**FULL, "K": "old"}))
    assert summary(*steps).endswith("with that local state it has K = old when broker 1 leads again")


@pytest.mark.parametrize(("view", "should_be", "is_there", "wrong"), [
    ("connectors", {}, {"c": "RUNNING"}, "has the connector c (RUNNING)"),
    ("connectors", {"c": "RUNNING"}, {}, "does not have the connector c"),
    ("connectors", {"c": "STOPPED"}, {"c": "RUNNING"}, "has the connector c RUNNING and not STOPPED"),
    ("offsets", {}, {"file": "71"}, "continues in file at 71 and not at its beginning"),
    ("offsets", {"file": "71"}, {}, "continues in file at its beginning and not at 71"),
    ("offsets", {"file": "14"}, {"file": "71"}, "continues in file at 71 and not at 14"),
])  # fmt: skip
def test_what_differs_in_connect(view: str, should_be: dict[str, str], is_there: dict[str, str], wrong: str) -> None:
    facts = {"application": "connect", "view": view}
    (shown,) = consequences([line("staying-leads", should_be, **facts), line("absent-leads", is_there, **facts)])
    assert f" {wrong} while broker 2 leads" in shown["summary"]


def test_what_does_not_happen_is_said_and_without_what_it_should_be_nothing_is_concluded() -> None:
    lines = [line("staying-leads", FULL), line("absent-leads", FULL), line("staying-leads-again", FULL)]
    (view,) = consequences(lines)
    assert (view["differs"], view["lasts"]) == (False, None)
    assert summary(*lines) == "shows the same 5 entries, whichever broker leads"
    never = line("staying-leads", None, state="REBALANCING", running_s=None)
    (view,) = consequences([never, line("absent-leads", None, state="REBALANCING", running_s=None)])
    assert (view["differs"], view["lasts"]) == (False, None)
    assert "could not be compared: it was REBALANCING while broker 1 led" in view["summary"]
    assert consequences([line("absent-leads", FULL)]) == []


def test_each_view_and_each_broker_is_compared_by_itself() -> None:
    lines = [
        line("staying-leads", FULL), line("staying-leads", FULL, view="global-table"),
        line("absent-leads", {}, view="global-table"), line("absent-leads", FULL),
        line("absent-leads", {}, leader=3, absent=3),
    ]  # fmt: skip
    views = [(view["view"], view["broker"], view["differs"]) for view in consequences(lines)]
    assert views == [("global-table", 2, True), ("table", 2, False), ("table", 3, True)]


def test_findings_get_what_was_seen_of_their_topic_and_broker() -> None:
    def seen(topic: str, summary: str, *, differs: bool = True) -> ApplicationView:
        facts: Any = {"application": "streams", "version": "4.3.1", "view": "table", "lasts": None}
        return ApplicationView(topic=topic, broker=2, differs=differs, summary=summary, **facts)

    u = finding(topic="u", consequence="group g reads nothing")
    findings = [finding(topic="t"), finding(topic="t", broker=3), u, finding(topic="v")]
    shown = [seen("t", "A"), seen("t", "B"), seen("u", "C"), seen("v", "D", differs=False)]
    actual = with_consequences(findings, shown)
    assert [view.consequence for view in actual] == ["A; B", None, "group g reads nothing; C", None]
