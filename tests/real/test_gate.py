"""Real brokers with the gate or the guard: clean under faults that make every payload diverge without it."""

import json
from pathlib import Path
from typing import Any

import click
import late_image
import lost_segment
import lost_tail
import pytest
from click.testing import CliRunner
from sandbox import DATA, PAYLOADS, STAGE_S, Sandbox, command_line, earned, events_of, protected_run, wait_until

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE
from harness.run_folder.guard_events import GuardEventKind

GATE, GUARD = "gate", "guard"
HELD = "the {} held it while the replica was absent, cleaners passed others, and every replica removed it afterwards"
REMOVED = "the others removed it while the replica was absent"
RELAYED = "the copy began from a replica that still held it, and continued from a leader that had removed it"
HOLDS = {GATE: "held", GUARD: GuardEventKind.PAUSED}
TARGETS = pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
BOTH = pytest.mark.parametrize("by", [GATE, GUARD])


def events(folder: Path, by: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{by}.jsonl").read_text().splitlines()]


def events_of_topics(folder: Path, by: str) -> set[tuple[str, int, str]]:
    """Return what was done to which topic, by the gate of which broker; whole brokers' events name no topic."""
    of_topics = [one for one in events(folder, by) if "topic" in one]
    return {(one["event"], one["broker"] if by == GATE else 0, one["topic"]) for one in of_topics}


@pytest.mark.commit("gate-kafka-3.9-kill")
@pytest.mark.parametrize("nemesis", ["kill", "pause", "join"])
@TARGETS
@BOTH
def test_what_is_away_is_waited_for(sandbox: Sandbox, by: str, target: str, nemesis: str) -> None:
    ran = protected_run(sandbox, f"--{by}", target, nemesis)
    assert earned(ran) == {HELD.format(by)}, ran.output
    folder = sandbox.latest(target, DATA)
    actual = events_of_topics(folder, by)
    brokers = (1, 3) if by == GATE else (0,)
    assert {(event, b, topic) for event in (HOLDS[by], "released") for b in brokers for topic in PAYLOADS} <= actual
    manifest = json.loads((folder / "manifest.json").read_text())
    if by == GUARD:
        assert manifest["guard"]["interval_s"] > 0
        return
    assert len(manifest["gate"]["sha256"]) == 64
    # On a busy machine a replica of the control may leave the ISR for a moment: then it is held, and released.
    of_control = {(event, broker) for event, broker, topic in actual if topic == "control"}
    assert {("released", broker) for event, broker in of_control if event == "held"} <= of_control


@pytest.mark.parametrize(("nemesis", "way"), [("reassigned", REMOVED), ("relay", RELAYED)])
@TARGETS
def test_a_replica_that_is_added_begins_anew(sandbox: Sandbox, target: str, nemesis: str, way: str) -> None:
    ran = protected_run(sandbox, "--gate", target, nemesis)
    assert earned(ran) == {way}, ran.output
    assert {("began-anew", 2, topic) for topic in PAYLOADS} <= events_of_topics(sandbox.latest(target, DATA), GATE)


def test_a_power_failure_leaves_nothing_wrong(sandbox: Sandbox) -> None:
    """On 3.9, where a class that syncs is loaded by the gate: the agent that notes syncs has to see it all the same."""
    # Syncing each message takes time, and what the control partition has of it has to be seen before it is removed.
    ran = protected_run(sandbox, "--gate", "kafka-3.9", "power-failure", "--set", "topic.delete.retention.ms=2000")
    assert earned(ran) == {HELD.format(GATE)}, ran.output
    folder = sandbox.latest("kafka-3.9", DATA)
    (event,) = events_of(folder, "power failure")
    cut = {(one["topic"], one["partition"]) for one in event["cut"] if "records" in one}
    assert {topic for topic, _ in cut} >= set(PAYLOADS)
    # The last write may be lost: whether the high watermark on disk has it already is a matter of chance.
    anew = {(one["broker"], one["reason"]) for one in events(folder, GATE) if one["event"] == "began-anew"}
    assert anew <= {(2, "lost")}


@pytest.mark.parametrize("way", [lost_tail.main, lost_segment.main], ids=["tail", "segment"])
@pytest.mark.parametrize(("options", "code"), [((), EXIT_ANOMALY), (("--gate",), EXIT_CLEAN)], ids=["without", "with"])
def test_a_log_that_lost_records_is_copied_anew(way: click.Command, options: tuple[str, ...], code: int) -> None:
    ran = CliRunner().invoke(way, ["--version", "3.9.2", *options])
    assert ran.exit_code == code, ran.output
    assert ("begun anew: 1" in ran.output) is (code == EXIT_CLEAN), ran.output


@pytest.mark.parametrize(
    ("max_age_ms", "code"), [(600_000, EXIT_ANOMALY), (2_000, EXIT_CLEAN)], ids=["without", "with"]
)
def test_a_broker_whose_metadata_are_late_removes_nothing(max_age_ms: int, code: int) -> None:
    options = ["--gate", "--gate-options", f"max-image-age-ms={max_age_ms}"]
    ran = CliRunner().invoke(late_image.main, ["--version", "4.4.0", *options])
    assert ran.exit_code == code, ran.output


@BOTH
def test_groups_are_protected(sandbox: Sandbox, by: str) -> None:
    protected_run(sandbox, f"--{by}", "kafka-4.4", "kill", "--anomaly", "groups")


def test_a_topic_that_the_gate_does_not_cover_diverges(sandbox: Sandbox) -> None:
    ran = protected_run(sandbox, "--gate", "kafka-4.4", "kill", "--gate-options", "except=stuck-lso", code=EXIT_ANOMALY)
    assert {finding["topic"] for finding in ran.verdict["findings"]} == {"stuck-lso"}


def test_a_stored_run_is_judged_by_what_its_gates_did(sandbox: Sandbox) -> None:
    ran = protected_run(sandbox, "--gate", "kafka-4.4", "kill", "--anomaly", "stuck-lso")
    folder = sandbox.latest("kafka-4.4", "stuck-lso")
    again = sandbox.call("check", str(folder), "--format", "json")
    assert (again.code, again.verdict["reason"]) == (EXIT_CLEAN, ran.verdict["reason"])
    (folder / "gate.jsonl").unlink()
    assert sandbox.call("check", str(folder)).code == EXIT_USAGE
    sandbox.call("check", str(folder), "--partial", "--format", "json", code=EXIT_UNKNOWN)


@TARGETS
def test_a_guard_that_is_killed_in_mid_outage_and_started_again(sandbox: Sandbox, target: str) -> None:
    going = sandbox.run(target, "--anomaly", DATA, "--nemesis", "kill", "--guard", "--format", "json")

    def paused() -> bool:
        assert going.process.poll() is None, going.end().output
        folders = [path.parent for path in sandbox.results.glob("*/*/*/guard.jsonl")]
        done = {(event, topic) for folder in folders for event, _, topic in events_of_topics(folder, GUARD)}
        return any((GuardEventKind.PAUSED, topic) in done for topic in PAYLOADS)

    wait_until(paused, STAGE_S, "the guard to pause a topic")
    (guard,) = [process for process in sandbox.processes() if "guard" in command_line(process)]
    guard.kill()
    ran = going.end(EXIT_CLEAN)
    assert earned(ran) == {HELD.format(GUARD)}, ran.output
    lines = events(sandbox.latest(target, DATA), GUARD)
    assert [one["event"] for one in lines].count(GuardEventKind.READY) == 2


@pytest.mark.parametrize("nemesis", ["relay", "reassigned"])
def test_a_guard_changes_nothing_about_how_replicas_are_copied(sandbox: Sandbox, nemesis: str) -> None:
    protected_run(sandbox, "--guard", "kafka-4.4", nemesis, "--anomaly", "stuck-lso", code=EXIT_ANOMALY)


@pytest.mark.commit
def test_wrong_options_are_refused_before_a_start(sandbox: Sandbox) -> None:
    ran = protected_run(sandbox, "--gate", "kafka-4.4", "kill", "--gate-options", "hold=some", code=EXIT_USAGE)
    assert "hold=some: give all or markers" in ran.stderr
