"""Real brokers with a guard: clean under faults that make every payload diverge without it."""

import json
from pathlib import Path

import pytest
from sandbox import ALL_TOPICS, DATA, STAGE_S, Sandbox, command_line, earned, protected_run, wait_until

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_USAGE
from harness.run_folder.guard_events import GuardEventKind

HELD = "the guard held it while the replica was absent, cleaners passed others, and every replica removed it afterwards"


def events(folder: Path) -> set[tuple[str, str]]:
    """Return what the guard did to which topic."""
    lines = [json.loads(line) for line in (folder / "guard.jsonl").read_text().splitlines()]
    return {(one["event"], one["topic"]) for one in lines}


@pytest.mark.parametrize("nemesis", ["kill", "pause", "join"])
@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_what_is_away_is_waited_for(sandbox: Sandbox, target: str, nemesis: str) -> None:
    ran = protected_run(sandbox, "--guard", target, nemesis)
    assert earned(ran) == {HELD}, ran.output
    folder = sandbox.latest(target, DATA)
    assert {
        (kind, topic) for kind in (GuardEventKind.PAUSED, GuardEventKind.RELEASED) for topic in ALL_TOPICS
    } <= events(folder)
    assert json.loads((folder / "manifest.json").read_text())["guard"]["interval_s"] > 0


def test_groups_are_protected(sandbox: Sandbox) -> None:
    protected_run(sandbox, "--guard", "kafka-4.4", "kill", "--anomaly", "groups")


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_a_guard_that_is_killed_in_mid_outage_and_started_again(sandbox: Sandbox, target: str) -> None:
    going = sandbox.run(target, "--anomaly", DATA, "--nemesis", "kill", "--guard", "--format", "json")

    def paused() -> bool:
        assert going.process.poll() is None, going.end().output
        folders = [path.parent for path in sandbox.results.glob("*/*/*/guard.jsonl")]
        return any((GuardEventKind.PAUSED, topic) in events(folder) for folder in folders for topic in ALL_TOPICS)

    wait_until(paused, STAGE_S, "the guard to pause a topic")
    (guard,) = [process for process in sandbox.processes() if "guard" in command_line(process)]
    guard.kill()
    ran = going.end(EXIT_CLEAN)
    assert earned(ran) == {HELD}, ran.output
    lines = [json.loads(line) for line in (sandbox.latest(target, DATA) / "guard.jsonl").read_text().splitlines()]
    assert [one["event"] for one in lines].count(GuardEventKind.READY) == 2


@pytest.mark.parametrize("nemesis", ["relay", "reassigned"])
def test_it_changes_nothing_about_how_replicas_are_copied(sandbox: Sandbox, nemesis: str) -> None:
    protected_run(sandbox, "--guard", "kafka-4.4", nemesis, "--anomaly", "stuck-lso", code=EXIT_ANOMALY)


@pytest.mark.commit
def test_a_gate_and_a_guard_are_refused_together(sandbox: Sandbox) -> None:
    ran = protected_run(sandbox, "--guard", "kafka-4.4", "kill", "--gate", code=EXIT_USAGE)
    assert "--gate and --guard" in ran.stderr
