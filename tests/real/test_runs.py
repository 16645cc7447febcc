"""Whole runs on real brokers: their findings, their leftovers, and the later use of their evidence."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest
from kept import kept_cluster
from sandbox import DATA, GONE_S, PAYLOADS, Ran, Run, Sandbox, long_timers, wait_until

from harness.broker_files.copies.copies import find_copies
from harness.broker_files.segments.batches import iter_batches, iter_records
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNKNOWN, EXIT_USAGE, UsageError
from harness.host import network
from harness.host.network import NAMESPACES
from harness.kafka_api.address import parse_bootstrap
from harness.kafka_api.admin import Admin
from harness.run_folder.history import read_lines
from harness.run_folder.manifest import Manifest
from harness.run_folder.store import RunFolder

TARGET, OTHER_TARGET = "kafka-3.9", "kafka-4.4"
ABSENT = 2
OTHER = 1
SNAPSHOTS = ("before-return", "after-rejoin")
NEEDS_NAMESPACES = pytest.mark.needs("namespaces")


@pytest.fixture(scope="session", params=[pytest.param(TARGET, marks=pytest.mark.commit), OTHER_TARGET])
def killed(request: pytest.FixtureRequest, run_of: Callable[[str, str], Run]) -> Run:
    return run_of(request.param, "kill")


@pytest.fixture(scope="session")
def killed_39(run_of: Callable[[str, str], Run]) -> Run:
    return run_of(TARGET, "kill")


@pytest.fixture(scope="session")
def healthy(run_of: Callable[[str, str], Run]) -> Run:
    return run_of("kafka-4.4", "none")


def list_anew(folder: Path) -> None:
    """Have the manifest list evidence that a test has changed, as if a run had left it so."""
    Manifest(RunFolder(folder), json.loads((folder / "manifest.json").read_text())).list_evidence()


# The findings of a run, and its files


@pytest.mark.parametrize(("target", "nemesis", "client", "transaction_version"), [
    ("kafka-3.9", "pause", "librdkafka", 1), ("kafka-3.9", "catch-up", "librdkafka", 1),
    ("kafka-3.9", "join", "java", 1), ("kafka-4.4", "kill", "java", 2), ("kafka-4.4", "join", "librdkafka", 1),
    pytest.param("kafka-4.4", "partition", "java", 2, marks=NEEDS_NAMESPACES),
])  # fmt: skip
def test_other_faults_and_clients_show_the_same(
    make_sandbox: Callable[[str], Sandbox], target: str, nemesis: str, client: str, transaction_version: int
) -> None:
    sandbox = make_sandbox(f"{target}-{nemesis}-{client}")
    options = ("--anomaly", DATA, "--nemesis", nemesis, "--client", client, "--format", "json")
    assert_every_payload_is_found(sandbox.run(target, *options).end())
    manifest = json.loads((sandbox.latest(target, DATA) / "manifest.json").read_text())
    assert (manifest["nemesis"], manifest["client"]) == (nemesis, client)
    assert manifest["transaction_version"] == transaction_version
    assert sandbox.left_behind() == []


def test_every_partition_and_every_absent_broker_is_judged(sandbox: Sandbox) -> None:
    shape = ("--brokers", "4", "--replication-factor", "3", "--partitions", "2", "--absent", "2")
    ran = sandbox.run("kafka-4.4", "--anomaly", "tombstone-divergence", *shape, "--format", "json").end(EXIT_ANOMALY)
    found = [(finding["anomaly"], finding["partition"], finding["broker"]) for finding in ran.verdict["findings"]]
    assert found == [("tombstone-divergence", p, broker) for p in (0, 1) for broker in (2, 3)]
    (scenario,) = ran.verdict["scenarios"]
    exposed = {(row["partition"], row["broker"]) for row in scenario["exposure"]["replicas"]}
    assert exposed == {(0, 1), (0, 2), (0, 3), (1, 4), (1, 2), (1, 3)}
    sandbox.wait_until_nothing_is_left()


def test_two_runs_at_once_do_not_disturb_each_other(make_sandbox: Callable[[str], Sandbox]) -> None:
    faults = {"kafka-3.9": "kill", "kafka-4.4": "join" if network.why_impossible() else "partition"}
    boxes = {target: make_sandbox(f"{target}-at-once") for target in faults}
    chosen = ("--anomaly", DATA, "--format", "json", "--nemesis")
    going = {target: boxes[target].run(target, *chosen, nemesis) for target, nemesis in faults.items()}
    for target, one in going.items():
        assert_every_payload_is_found(one.end())
        boxes[target].wait_until_nothing_is_left()


def assert_every_payload_is_found(ran: Ran) -> None:
    assert ran.code == EXIT_ANOMALY, ran.output
    verdict = ran.verdict
    assert verdict["verdict"] == "anomaly"
    findings = verdict["findings"]
    found = [(one["topic"], (one["anomaly"], one["effect"]), one["broker"], one["candidates"]) for one in findings]
    assert sorted(found) == sorted((topic, what, ABSENT, []) for topic, what in PAYLOADS.items())
    assert {s["topic"]: s["verdict"] for s in verdict["scenarios"]} == dict.fromkeys(PAYLOADS, "anomaly")
    assert verdict["doubts"] == [], verdict["doubts"]
    assert verdict["checker_errors"] == {}, verdict["checker_errors"]


def test_every_payload_is_found_with_a_witness_and_nothing_else(killed: Run) -> None:
    assert_every_payload_is_found(killed.ran)
    for finding in killed.ran.verdict["findings"]:
        assert finding["explanation"]
        assert finding["witness"]
        assert finding["offset"] >= 0
        assert finding["key"] is None or finding["key"]["text"]


def test_the_run_folder_is_complete_and_nothing_else_is_left(killed: Run) -> None:
    folder = killed.folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["failure"] is None
    assert manifest["jars"]
    assert manifest["owner"]["pid"]
    assert json.loads((folder / "verdict.json").read_text()) == killed.ran.verdict
    for scenario in manifest["scenarios"]:
        for broker in scenario["replicas"]["0"]:
            for snapshot in SNAPSHOTS:
                held = folder / "brokers" / str(broker) / snapshot / f"{scenario['topic']}-0"
                assert list(held.glob("*.log")), held
                assert (held.parent / "replication-offset-checkpoint").exists()
                served = folder / "fetched" / str(broker) / snapshot / f"{scenario['topic']}-0"
                is_away = broker == ABSENT and snapshot == "before-return"
                assert is_away or list(held.glob("*.snapshot")), held
                assert (served / "batches.bin").exists() is not is_away, served
                assert (served / "state.json").exists() is not is_away, served
    evidence = {p.relative_to(folder).as_posix() for top in ("brokers", "fetched") for p in (folder / top).rglob("*.*")}
    assert set(manifest["evidence"]) >= evidence | {"history.jsonl", "observations.jsonl"}
    for broker in manifest["brokers"]:
        assert (folder / "logs" / str(broker) / "server.log").stat().st_size > 0
    title = f"<title>anomaly: {len(killed.ran.verdict['findings'])} findings on broker 2, in "
    assert title in (folder / "report.html").read_text()
    outcomes = read_lines(folder / "outcomes.jsonl")
    assert {row["outcome"] for row in outcomes if row["topic"] == "stuck-lso" and row["broker"] == ABSENT} >= {"open"}
    assert (folder.parent / "latest").readlink() == Path(folder.name)
    killed.sandbox.wait_until_nothing_is_left()


def test_every_operation_was_invoked_and_completed(killed: Run) -> None:
    events = read_lines(killed.folder / "history.jsonl")
    assert [event["index"] for event in events] == list(range(len(events)))
    for op, of_op in groupby(sorted(events, key=lambda e: (e["op"], e["index"])), key=lambda e: e["op"]):
        first, *rest = of_op
        assert first["type"] == "invoke", op
        assert [event["type"] for event in rest] in (["ok"], ["fail"], ["info"]), op
    acts = [(event["f"], event["type"], event["brokers"]) for event in events if event["part"] == "nemesis"]
    assert acts == [(act, how, [ABSENT]) for act in ("leave", "come back") for how in ("invoke", "ok")]
    clients = [event for event in events if event["part"] != "nemesis"]
    assert {event["f"] for event in clients} == {"init", "produce", "begin", "commit", "abort", "poll"}
    assert {event["part"] for event in clients} == {"payload", "filler", "reader"}
    assert {event["phase"] for event in events} == {"before", "outage", "late", "after"}


def test_observations_show_every_broker_and_removals(killed: Run) -> None:
    observations = read_lines(killed.folder / "observations.jsonl")
    assert {line["broker"] for line in observations} == {1, 2, 3}
    assert {line["topic"] for line in observations} == {*PAYLOADS, "control"}
    for broker in (1, 3):
        lines = [line for line in observations if line["broker"] == broker]
        removed = {one["kind"] for line in lines for one in line["removed"]}
        assert {"tombstone", "commit", "abort"} <= removed


def test_stored_records_name_their_transaction(killed: Run) -> None:
    held = killed.folder / "brokers" / str(ABSENT) / "after-rejoin" / "aborted-to-committed-0"
    names = {
        (record.key, value)
        for path in held.glob("*.log")
        for batch in iter_batches(path.read_bytes(), source=str(path))
        if not batch.is_control
        for record in iter_records(batch, source=str(path))
        for name, value in record.headers
        if name == "txn"
    }
    assert {(b"poison", b"aborted-to-committed.tx/1"), (b"good", b"aborted-to-committed.tx/2")} <= names


def test_the_healthy_control_earns_clean(healthy: Run) -> None:
    assert healthy.ran.code == EXIT_CLEAN, healthy.ran.output
    assert json.loads((healthy.folder / "manifest.json").read_text())["accepted_requests"] == []
    verdict = healthy.ran.verdict
    assert verdict["verdict"] == "clean"
    assert verdict["findings"] == verdict["doubts"] == []
    assert {s["topic"] for s in verdict["scenarios"]} == set(PAYLOADS)
    for scenario in verdict["scenarios"]:
        assert scenario["verdict"] == "clean"
        assert scenario["reason"] == scenario["exposure"]["earned"] == "every replica had it and removed it"
    healthy.sandbox.wait_until_nothing_is_left()


# The same evidence, judged again


def but_timings(verdict: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in verdict.items() if name != "timings_s"}


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in place", "a copy elsewhere"])
def test_check_says_the_same_again(killed_39: Run, sandbox: Sandbox, *, elsewhere: bool) -> None:
    folder = killed_39.copy(sandbox.root / "sent by mail") if elsewhere else killed_39.folder
    (folder / "verdict.json").unlink()
    ran = sandbox.call("check", str(folder), "--format", "json", code=EXIT_ANOMALY)
    assert but_timings(ran.verdict) == but_timings(killed_39.ran.verdict)
    assert json.loads((folder / "verdict.json").read_text()) == ran.verdict
    sandbox.wait_until_nothing_is_left()


def test_copies_of_real_brokers_say_whose_they_are(killed: Run) -> None:
    folders = {broker: [killed.folder / "brokers" / str(broker) / "after-rejoin"] for broker in (1, 2, 3)}
    assert find_copies(folders, ["*"], "run").notes == ()
    with pytest.raises(UsageError, match=r"says node\.id=3 and was given for broker 2"):
        find_copies({1: folders[1], 2: folders[3]}, ["*"], "run")


@pytest.mark.parametrize("snapshots", [SNAPSHOTS[1:], SNAPSHOTS], ids=["after-rejoin", "both snapshots"])
def test_swapped_evidence_is_a_contradiction(killed_39: Run, sandbox: Sandbox, snapshots: tuple[str, ...]) -> None:
    folder = killed_39.copy(sandbox.root)
    for source in ("brokers", "fetched"):
        for snapshot in snapshots:
            top = folder / source
            for path in [path for path in (top / str(ABSENT) / snapshot).glob("*-0") if path.is_dir()]:
                shutil.rmtree(path)
                shutil.copytree(top / str(OTHER) / snapshot / path.name, path)
    list_anew(folder)
    ran = sandbox.call("check", str(folder), "--format", "json", code=EXIT_UNKNOWN)
    verdict = ran.verdict
    assert verdict["findings"] == []
    contradictions = [d for d in verdict["doubts"] if d["kind"] == "contradiction" and d["broker"] == ABSENT]
    contradicted = {doubt["topic"]: doubt["reason"] for doubt in contradictions}
    assert set(contradicted) == set(PAYLOADS)
    for scenario in verdict["scenarios"]:
        assert scenario["verdict"] == "unknown"
        assert f"broker {ABSENT}: {contradicted[scenario['topic']]}" in scenario["reason"]


@pytest.mark.parametrize(
    "damage", ["empty observations", "no observations", "no first snapshot", "observations without removals"]
)
def test_clean_is_not_earned_without_exposure_evidence(healthy: Run, sandbox: Sandbox, damage: str) -> None:
    folder = healthy.copy(sandbox.root)
    observations = folder / "observations.jsonl"
    match damage:
        case "empty observations":
            observations.write_text("")
        case "no observations":
            observations.unlink()
        case "no first snapshot":
            for path in folder.glob("*/*/before-return"):
                shutil.rmtree(path)
        case _:
            lines = [json.dumps({**line, "removed": []}) for line in read_lines(observations)]
            observations.write_text("\n".join(lines) + "\n")
    list_anew(folder)
    ran = sandbox.call("check", str(folder), "--format", "json", code=EXIT_UNKNOWN)
    assert ran.verdict["findings"] == []
    for scenario in ran.verdict["scenarios"]:
        assert scenario["verdict"] == "unknown"
        assert re.search(r"tombstone|marker", scenario["reason"]), scenario["reason"]


# Runs that do not come to a verdict


def test_a_tombstone_that_stays_earns_nothing(sandbox: Sandbox) -> None:
    setting = "topic.delete.retention.ms=600000"
    going = sandbox.run(TARGET, "--anomaly", "tombstone-divergence", "--set", setting, "--format", "json")
    ran = going.end(EXIT_UNKNOWN)
    lacking = r"tombstone at offset \d+: broker [13] (still held it|was not seen to remove it)"
    assert re.search(lacking, ran.verdict["reason"]), ran.output
    sandbox.wait_until_nothing_is_left()


@pytest.mark.commit
def test_the_time_limit_ends_in_unknown(sandbox: Sandbox) -> None:
    started_s = time.monotonic()
    ran = sandbox.run(TARGET, "--anomaly", "stuck-lso", "--time-limit", "3", "--format", "json").end()
    took_s = time.monotonic() - started_s
    assert ran.code == EXIT_UNKNOWN, ran.output
    assert "time limit of 3 s" in ran.verdict["reason"]
    assert took_s < 30
    manifest = json.loads((sandbox.latest(TARGET, "stuck-lso") / "manifest.json").read_text())
    assert manifest["status"] == "time-limit"
    sandbox.wait_until_nothing_is_left()


@pytest.mark.commit("refused")
@pytest.mark.parametrize(("setting", "expected"), [
    ("broker.replica.fetch.wait.max.ms=60000", r"broker [123].*replica\.fetch\.wait\.max\.ms"),
    ("broker.authorizer.class.name=no.such.Authorizer", r"broker [123].*no\.such\.Authorizer"),
    ("topic.min.compaction.lag.ms=9000", r".*min\.compaction\.lag\.ms"),
], ids=["refused by format", "refused at boot", "of a topic"])  # fmt: skip
def test_settings_that_brokers_refuse(sandbox: Sandbox, setting: str, expected: str) -> None:
    ran = sandbox.run(TARGET, "--anomaly", "stuck-lso", "--set", setting).end(EXIT_FAILED)
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""
    error = ran.stderr[ran.stderr.index("harness: ") :]
    assert re.match(f"harness: {expected}", error, re.DOTALL)
    sandbox.wait_until_nothing_is_left()


# Runs that are ended from outside


def send_interrupt_to_group(process: psutil.Process) -> None:
    """Interrupt like Ctrl-C in a terminal: every process of the group gets the signal."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize(("nemesis", "send", "code", "status", "checked"), [
    ("kill", psutil.Process.kill, -signal.SIGKILL, "running", EXIT_USAGE),
    ("kill", send_interrupt_to_group, EXIT_INTERRUPTED, "interrupted", EXIT_UNKNOWN),
    ("pause", psutil.Process.terminate, EXIT_INTERRUPTED, "interrupted", EXIT_UNKNOWN),
    pytest.param("partition", psutil.Process.kill, -signal.SIGKILL, "running", EXIT_USAGE, marks=NEEDS_NAMESPACES),
], ids=["kill -9", "Ctrl-C", "SIGTERM", "kill -9 in a partition"])  # fmt: skip
def test_ended_in_mid_outage(  # noqa: PLR0917  (a table's columns)
    sandbox: Sandbox, nemesis: str, send: Callable[[psutil.Process], None], code: int, status: str, checked: int
) -> None:
    going = sandbox.run(TARGET, "--anomaly", DATA, "--nemesis", nemesis)
    going.wait_for_stage("clean")
    folder = sandbox.latest(TARGET, DATA)
    assert marked(sandbox, folder.name), "no broker carries the run's marker"
    send(psutil.Process(going.process.pid))
    ran = going.end(code)
    assert "Traceback" not in ran.stderr
    sandbox.wait_until_nothing_is_left()
    assert namespaces(folder.name) == []
    assert json.loads((folder / "manifest.json").read_text())["status"] == status
    assert (folder / "history.jsonl").stat().st_size > 0
    assert not folder.with_name("latest").is_symlink()
    if status == "interrupted":
        assert f"/{folder.name}/, without a verdict" in ran.stderr
    judged = sandbox.call("check", str(folder), code=checked)
    assert ("half-written" in judged.stderr) == (checked == EXIT_USAGE)


def marked(sandbox: Sandbox, run_id: str) -> list[psutil.Process]:
    """Return the processes that carry a run's marker on their command line."""
    return [p for p in sandbox.processes() if f"-Dharness.run={run_id}" in p.cmdline()]


def namespaces(run_id: str) -> list[str]:
    return [path.name for path in NAMESPACES.glob(f"ch-{run_id}-*")]


@pytest.mark.parametrize("nemesis", ["kill", pytest.param("partition", marks=NEEDS_NAMESPACES)])
def test_clean_removes_what_a_crash_left_and_spares_a_live_run(sandbox: Sandbox, nemesis: str) -> None:
    dying = sandbox.run(TARGET, "--anomaly", "stuck-lso", "--nemesis", nemesis)
    dying.wait_for_stage("clean")
    dead = sandbox.latest(TARGET, "stuck-lso").name
    (keeper,) = (process for process in sandbox.processes() if "harness.host.workspace" in process.cmdline())
    keeper.kill()
    dying.kill()
    assert len(marked(sandbox, dead)) >= 2
    assert len(namespaces(dead)) == (3 if nemesis == "partition" else 0)
    assert (sandbox.work_root / dead).is_dir()

    living = sandbox.run(TARGET, "--anomaly", "stuck-lso", "--time-limit", "8")
    living.wait_for_stage("boot")
    alive = sandbox.latest(TARGET, "stuck-lso").name
    ran = sandbox.call("clean", code=EXIT_CLEAN)
    assert f"removed {dead}" in ran.stdout
    assert f"spared {alive}" in ran.stdout
    wait_until(lambda: not marked(sandbox, dead), GONE_S, "the dead run's processes to end")
    assert not (sandbox.work_root / dead).exists()
    assert namespaces(dead) == []
    assert (sandbox.work_root / alive).is_dir()
    assert living.process.poll() is None

    ran = living.end(EXIT_UNKNOWN)
    assert "time limit" in ran.stdout
    sandbox.wait_until_nothing_is_left()


def test_a_run_that_is_cut_off_in_its_window_goes_on(sandbox: Sandbox) -> None:
    going = sandbox.run(TARGET, "--anomaly", DATA, *long_timers())
    going.wait_for_stage("clean")
    folder = sandbox.latest(TARGET, DATA)
    going.kill()
    wait_until(lambda: not sandbox.processes(), GONE_S, "the run's processes to end")

    judged = sandbox.call("check", str(folder), code=EXIT_USAGE)
    assert f"harness run --resume {folder}" in judged.stderr
    spared = sandbox.call("clean")
    assert f"spared {folder.name}: resume it with `harness run --resume {folder}`" in spared.stdout
    events = read_lines(folder / "history.jsonl")
    assert {event["phase"] for event in events} == {"before", "outage"}

    resumed = sandbox.call("run", "--resume", str(folder), "--format", "json")
    assert_every_payload_is_found(resumed)
    assert read_lines(folder / "history.jsonl")[: len(events)] == events
    assert len(json.loads((folder / "manifest.json").read_text())["resumed_at"]) == 1
    sandbox.wait_until_nothing_is_left()

    again = sandbox.call("run", "--resume", str(folder), code=EXIT_USAGE)
    assert "went to its end" in again.stderr


def test_a_kept_cluster_answers_until_it_is_removed(sandbox: Sandbox) -> None:
    with kept_cluster(sandbox, TARGET, "stuck-lso") as kept:
        for address in parse_bootstrap(kept.bootstrap):
            assert Admin([address].copy).brokers() == {1, 2, 3}
        assert f"spared {kept.run.name}: kept" in sandbox.call("clean", code=EXIT_CLEAN).stdout
        wait_until(lambda: len(marked(sandbox, kept.run.name)) == 3, GONE_S, "only the brokers to be left")
