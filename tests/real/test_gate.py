"""Real brokers with the gate: clean under faults that make every payload diverge without it."""

import json
from pathlib import Path

import click
import late_image
import lost_segment
import lost_tail
import pytest
from click.testing import CliRunner
from sandbox import ALL_TOPICS, DATA, Sandbox, earned, events_of, protected_run

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE

HELD = "the gate held it while the replica was absent, cleaners passed others, and every replica removed it afterwards"
REMOVED = "the others removed it while the replica was absent"
RELAYED = "the copy began from a replica that still held it, and continued from a leader that had removed it"


def events(folder: Path) -> set[tuple[str, int, str]]:
    """Return what each gate did to which topic, without the events of whole brokers, which name no topic."""
    lines = [json.loads(line) for line in (folder / "gate.jsonl").read_text().splitlines()]
    return {(one["event"], one["broker"], one["topic"]) for one in lines if "topic" in one}


@pytest.mark.commit("kafka-3.9-kill")
@pytest.mark.parametrize("nemesis", ["kill", "pause", "join"])
@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_what_is_away_is_waited_for(sandbox: Sandbox, target: str, nemesis: str) -> None:
    ran = protected_run(sandbox, "--gate", target, nemesis)
    assert earned(ran) == {HELD}, ran.output
    folder = sandbox.latest(target, DATA)
    assert {(event, b, topic) for event in ("held", "released") for b in (1, 3) for topic in ALL_TOPICS} <= events(
        folder
    )
    # On a busy machine a replica of the control may leave the ISR for a moment: then it is held, and released.
    of_control = {(event, broker) for event, broker, topic in events(folder) if topic == "control"}
    assert {broker for event, broker in of_control if event == "held"} <= {
        broker for event, broker in of_control if event == "released"
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["gate"]["sha256"]) == 64


@pytest.mark.parametrize(("nemesis", "way"), [("reassigned", REMOVED), ("relay", RELAYED)])
@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_a_replica_that_is_added_begins_anew(sandbox: Sandbox, target: str, nemesis: str, way: str) -> None:
    ran = protected_run(sandbox, "--gate", target, nemesis)
    assert earned(ran) == {way}, ran.output
    assert {("began-anew", 2, topic) for topic in ALL_TOPICS} <= events(sandbox.latest(target, DATA))


def test_a_power_failure_leaves_nothing_wrong(sandbox: Sandbox) -> None:
    """On 3.9, where a class that syncs is loaded by the gate: the agent that notes syncs has to see it all the same."""
    # Syncing each message takes time, and what the control partition has of it has to be seen before it is removed.
    ran = protected_run(sandbox, "--gate", "kafka-3.9", "power-failure", "--set", "topic.delete.retention.ms=2000")
    assert earned(ran) == {HELD}, ran.output
    folder = sandbox.latest("kafka-3.9", DATA)
    (event,) = events_of(folder, "power failure")
    cut = {(one["topic"], one["partition"]) for one in event["cut"] if "records" in one}
    assert {topic for topic, _ in cut} >= set(ALL_TOPICS)
    # The last write may be lost: whether the high watermark on disk has it already is a matter of chance.
    lines = [json.loads(line) for line in (folder / "gate.jsonl").read_text().splitlines()]
    anew = {(one["broker"], one["reason"]) for one in lines if one["event"] == "began-anew"}
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


def test_groups_are_protected(sandbox: Sandbox) -> None:
    protected_run(sandbox, "--gate", "kafka-4.4", "kill", "--anomaly", "groups")


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


@pytest.mark.commit
def test_wrong_options_are_refused_before_anything_starts(sandbox: Sandbox) -> None:
    ran = protected_run(sandbox, "--gate", "kafka-4.4", "kill", "--gate-options", "hold=some", code=EXIT_USAGE)
    assert "hold=some: give all or markers" in ran.stderr
