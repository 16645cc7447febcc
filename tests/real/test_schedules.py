"""Schedules that a model found, on real brokers."""

import json
from pathlib import Path

from sandbox import Sandbox

from harness.errors import EXIT_ANOMALY

SCHEDULES = Path(__file__).parents[2] / "results" / "schedules"


def test_a_published_schedule_is_what_real_brokers_do(sandbox: Sandbox) -> None:
    ran = sandbox.start(
        "run", "--target", "kafka-4.4", "--schedule", str(SCHEDULES / "aborted-delete.json"), "--format", "json"
    ).end(EXIT_ANOMALY)
    (finding,) = ran.verdict["findings"]
    assert (finding["anomaly"], finding["broker"], finding["effect"]) == ("aborted-to-committed", 2, "visible")
    assert "aborted delete of K is carried out" in finding["explanation"]
    manifest = json.loads((sandbox.latest("kafka-4.4", "schedule") / "manifest.json").read_text())
    assert manifest["schedule"]["steps"] == json.loads((SCHEDULES / "aborted-delete.json").read_text())["steps"]
    sandbox.wait_until_nothing_is_left()
