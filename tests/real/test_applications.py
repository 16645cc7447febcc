"""Real applications on a real cluster whose replicas have diverged: what their users see and do not see."""

import json
from typing import Any

from sandbox import DATA, Sandbox

from harness.errors import EXIT_ANOMALY

TARGET = "kafka-4.4"
BACK_IN_STORES = {
    "tombstone-divergence": "has K = value-before-delete while broker 2 leads",
    "aborted-to-committed": "has poison = SHOULD_NOT_SEE_THIS while broker 2 leads",
    "aborted-to-committed-delete": "does not have K = never-deleted while broker 2 leads",
    "committed-to-aborted-delete": "has K = v0-deleted-later while broker 2 leads",
}
"""The entries of a table of that topic while the broker that was down leads it; it keeps them in its local state."""


def views_of(verdict: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["topic"], one["view"]): one for one in verdict["applications"]}


def test_tables_of_kafka_streams(sandbox: Sandbox) -> None:
    ran = sandbox.run(TARGET, "--anomaly", DATA, "--application", "streams", "--format", "json").end(EXIT_ANOMALY)
    views = views_of(ran.verdict)
    for view in ("table", "global-table"):
        for topic, text in BACK_IN_STORES.items():
            shown = views[topic, view]
            assert (shown["broker"], shown["differs"], shown["lasts"]) == (2, True, True), shown
            assert text in shown["summary"]
        assert not views["committed-to-aborted-value", view]["differs"]
        assert views["stuck-lso", view]["differs"]
        assert views["stuck-lso", view]["lasts"] is False
    assert "stays REBALANCING (watched for 2" in views["stuck-lso", "table"]["summary"]
    assert "is RUNNING without an error, and has " in views["stuck-lso", "global-table"]["summary"]
    with_consequence = {finding["topic"] for finding in ran.verdict["findings"] if "consequence" in finding}
    assert with_consequence == {*BACK_IN_STORES, "stuck-lso"}
    folder = sandbox.latest(TARGET, DATA)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {"applications.jsonl", "application-history.jsonl"} < manifest["evidence"].keys()
    assert (manifest["application"]["name"], manifest["application"]["version"]) == ("streams", "4.3.1")
    again = sandbox.call("check", str(folder), "--format", "json")
    assert again.verdict["applications"] == ran.verdict["applications"]
    sandbox.wait_until_nothing_is_left()


def test_workers_of_kafka_connect(sandbox: Sandbox) -> None:
    chosen = ("--anomaly", "tombstone-divergence", "--application", "connect", "--format", "json")
    ran = sandbox.run(TARGET, *chosen).end(EXIT_ANOMALY)
    views = views_of(ran.verdict)
    expected = {
        ("connect-configs", "connectors"): "has the connector deleted (RUNNING, task 0 RUNNING) while broker 2 leads",
        ("connect-configs-stuck", "connectors"): "does not have the connector newer",
        ("connect-offsets-reset", "offsets"): '"lines.txt"} at {"position":71} and not at its b',
        ("connect-offsets-aborted", "offsets"): 'at {"position":71} and not at {"position":14} while broker 2 leads',
        ("connect-offsets-stuck", "offsets"): "cannot be queried (no answer within 10 s) while broker 2 leads",
    }
    for name, text in expected.items():
        assert text in views[name]["summary"], views[name]
        assert (views[name]["broker"], views[name]["lasts"]) == (2, False)
    sandbox.wait_until_nothing_is_left()
