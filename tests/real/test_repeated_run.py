"""A run again, by the command that it wrote down; and lists of settings against the brokers' own classes."""

import json
import shlex
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pin import read_from_jars
from sandbox import Sandbox

from harness.errors import EXIT_ANOMALY
from harness.targets import find_target

DECIDES = (
    "anomaly", "nemesis", "client", "timers", "seed", "topic_settings", "broker_settings", "brokers", "absent_brokers",
    "replication_factor", "partitions", "scenarios", "command",
)  # fmt: skip
"""The fields of a manifest that decide a run."""


def manifest_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return content


def test_a_run_again_by_its_own_command(sandbox: Sandbox) -> None:
    settings = ("--set", "topic.delete.retention.ms=250", "--set", "broker.listener.name.client.x=it's $HOME; a b")
    first = sandbox.run("kafka-3.9", "--anomaly", "stuck-lso", *settings, "--format", "json").end(EXIT_ANOMALY)
    began_with = manifest_of(sandbox.latest("kafka-3.9", "stuck-lso"))
    command = began_with["command"]
    assert first.verdict["command"] == command
    assert command in unescape((sandbox.latest("kafka-3.9", "stuck-lso") / "report.html").read_text())

    again = sandbox.call(*shlex.split(command)[1:], "--format", "json", code=EXIT_ANOMALY)
    manifest = manifest_of(sandbox.latest("kafka-3.9.2", "stuck-lso"))
    assert {name: manifest[name] for name in DECIDES} == {name: began_with[name] for name in DECIDES}
    assert manifest["target"]["version"] == began_with["target"]["version"]
    assert manifest["runtime"] == began_with["runtime"]
    for ran in (first, again):
        assert {(f["topic"], f["partition"], f["broker"]) for f in ran.verdict["findings"]} == {("stuck-lso", 0, 2)}


@pytest.mark.commit
@pytest.mark.parametrize("name", ["kafka-3.9", "kafka-4.4"])
def test_a_list_of_settings_is_what_the_jars_have(name: str) -> None:
    target = find_target(name)
    path = files("harness.targets") / "locks" / f"kafka-{target.version}.settings"
    assert path.read_text(encoding="utf-8").splitlines() == read_from_jars(target)
