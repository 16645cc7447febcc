"""Every other fault by which a broker misses records, on real local brokers: the findings, and that it was in force."""

import os
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sandbox import DATA, GONE_S, PAYLOADS, Going, Sandbox, events_of, wait_until

from harness.broker_files.segments.batches import iter_batches
from harness.broker_files.segments.folder import live_segments
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE
from harness.host import network
from harness.host.leftovers import processes_of
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from nemesis import SCRIPTS

pytestmark = pytest.mark.needs("iptables")

FIVE = ("--brokers", "5", "--replication-factor", "4", "--absent", "2")
FOUR = ("--brokers", "4")
AWAY = (
    ("kafka-3.9", "one-way", (), {2}), ("kafka-4.4", "split", FIVE, {2, 3}), ("kafka-3.9", "bridge", FIVE, {2, 3}),
    ("kafka-4.4", "ring", FIVE, {2, 3}), ("kafka-3.9", "rolling", (), {2}),
    ("kafka-4.4", "controller-kill", FOUR, {2}),
    pytest.param("kafka-3.9", "disk-full", (), {2}, marks=pytest.mark.needs("mount")),
    ("kafka-4.4", "relay", ("--client", "java"), {2}), ("kafka-3.9", "reassigned", (), {2}),
)  # fmt: skip
STARTS = 2
EARNED_BY = {
    "relay": "the copy began from a replica that still held it, and continued from a leader that had removed it",
    "reassigned": "the others removed it while the replica was absent",
}
"""The evidence with which a run of a nemesis would be clean if it found nothing."""


@pytest.fixture(autouse=True)
def _nothing_is_left(sandbox: Sandbox) -> Any:
    yield
    sandbox.wait_until_nothing_is_left()
    for run_dir in sandbox.results.glob("*/*/2*"):
        assert left_on_host(run_dir.name) == []


def left_on_host(run_id: str) -> list[str]:
    """Describe what of a run is left outside of its folders: namespaces, links, disks, rules, processes."""
    bridge = network._bridge(run_id)
    listings = (("ip", "netns"), ("ip", "-oneline", "link"), ("mount",), ("iptables", "-S", "FORWARD"))
    lines = [line for words in listings for line in output_lines(*words)]
    return [line for line in lines if run_id in line or bridge in line] + [str(p) for p in processes_of(run_id)]


def output_lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def start(sandbox: Sandbox, target: str, nemesis: str, *more: str) -> Going:
    return sandbox.run(target, "--anomaly", DATA, "--nemesis", nemesis, *more, "--format", "json")


@pytest.mark.parametrize(("target", "nemesis", "shape", "absent"), AWAY)
def test_every_payload_is_found_on_who_was_away(
    sandbox: Sandbox, target: str, nemesis: str, shape: tuple[str, ...], absent: set[int]
) -> None:
    ran = start(sandbox, target, nemesis, *shape).end(EXIT_ANOMALY)
    has_shape = SCRIPTS[nemesis].shape is not None
    assert any(sandbox.results.glob(f"*/{DATA}/2*/topology.svg")) is has_shape
    found = {(finding["broker"], finding["topic"]) for finding in ran.verdict["findings"]}
    assert found == {(broker, topic) for broker in absent for topic in PAYLOADS}, ran.output
    if nemesis in EARNED_BY:
        assert {one["exposure"]["earned"] for one in ran.verdict["scenarios"]} == {EARNED_BY[nemesis]}, ran.output


def test_what_a_power_failure_cuts_is_in_the_history_and_copied_again(sandbox: Sandbox) -> None:
    ran = start(sandbox, "kafka-4.4", "power-failure").end()
    assert {(one["broker"], one["topic"]) for one in ran.verdict["findings"]} == {(2, topic) for topic in PAYLOADS}
    folder = sandbox.latest("kafka-4.4", DATA)
    (event,) = events_of(folder, "power failure")
    segments = [one for one in event["cut"] if "records" in one]
    assert {one["topic"] for one in segments} == set(PAYLOADS)
    assert all(one["isr"] == [1, 2, 3] and one["first_offset"] > 0 for one in segments)
    for one in segments:
        partition = f"{one['topic']}-{one['partition']}"
        ends = {when: log_end(folder / "brokers" / "2" / when / partition) for when in (BEFORE_RETURN, AFTER_REJOIN)}
        assert ends[BEFORE_RETURN] <= one["first_offset"] <= one["last_offset"] < ends[AFTER_REJOIN], one
    server_log = (folder / "logs" / "2" / "server.log").read_text()
    assert "sync-notes" not in server_log
    assert server_log.count("KafkaRaftServer nodeId=2] Kafka Server started") == STARTS


def log_end(partition: Path) -> int:
    """Return the offset after the last record that the files of a partition hold."""
    segments = [(partition / segment.log).read_bytes() for segment in live_segments(partition).segments]
    return max(batch.last_offset for content in segments for batch in iter_batches(content, source="log")) + 1


def test_a_broker_is_killed_while_its_cleaner_has_files_and_comes_back_without_them(sandbox: Sandbox) -> None:
    ran = start(sandbox, "kafka-3.9", "crash-in-cleaning").end()
    assert {(one["broker"], one["topic"]) for one in ran.verdict["findings"]} == {(2, topic) for topic in PAYLOADS}
    (event,) = events_of(sandbox.latest("kafka-3.9", DATA), "crash in cleaning")
    assert event["broker"] == 2
    assert event["files"]
    assert all(one["file"].endswith((".cleaned", ".swap")) for one in event["files"])


def test_a_lossy_link_loses_packets(sandbox: Sandbox) -> None:
    going = start(sandbox, "kafka-4.4", "lossy")
    going.wait_for_stage("clean")
    namespace = network._namespace(sandbox.latest("kafka-4.4", DATA).name, 2)

    def dropped() -> list[int]:
        """Packets that each rule has dropped so far."""
        rules = [
            line.split() for chain in ("INPUT", "OUTPUT")
            for line in output_lines("ip", "netns", "exec", namespace, "iptables", "-vnxL", chain)
        ]  # fmt: skip
        return [int(words[0]) for words in rules if words[2:3] == ["DROP"]]

    wait_until(lambda: len(dropped()) == 2 and all(dropped()), GONE_S, "packets to be lost in both directions")
    ran = going.end()
    # Nobody is away. But TCP may take longer than the retention to bring something across: what was deleted on the
    # others meanwhile is then alive on this broker, and on no other.
    # And what takes longer than a wait is given ends the run: then it says so, and judges nothing.
    assert ran.code in {EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNKNOWN}, ran.output
    assert ran.verdict["reason"], ran.output
    assert {finding["broker"] for finding in ran.verdict["findings"]} <= {2}, ran.output


@pytest.mark.needs("faketime")
def test_a_clock_that_is_ahead_for_a_while_harms_nobody(sandbox: Sandbox) -> None:
    start(sandbox, "kafka-3.9", "clock-skew").end(EXIT_CLEAN)
    folder = sandbox.latest("kafka-3.9", DATA)
    jumps = {broker: jumps_of_clock(folder / "logs" / str(broker) / "server.log") for broker in (1, 2, 3)}
    assert jumps == {1: set(), 2: {1, 23}, 3: set()}, "an hour ahead, and an hour back"


def jumps_of_clock(server_log: Path) -> set[int]:
    """By how many hours, on the face of a clock, a line of a broker's log is later than the one before."""
    times = re.findall(r"^(\d\d):(\d\d):(\d\d)\.", server_log.read_text(), re.MULTILINE)
    seconds = [int(hours) * 3600 + int(minutes) * 60 + int(seconds) for hours, minutes, seconds in times]
    return {round((after - before) / 3600) % 24 for before, after in pairwise(seconds)} - {0}


def has_netem() -> bool:
    """Ask the kernel, on a link of our own."""
    name = f"t-{os.getpid()}"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    try:
        emulator = ("tc", "qdisc", "add", "dev", name, "root", "netem", "delay", "1ms")
        return subprocess.run(emulator, capture_output=True, check=False).returncode == 0
    finally:
        subprocess.run(["ip", "link", "delete", name], check=True)


def test_a_slow_link_is_had_where_the_kernel_has_it(sandbox: Sandbox) -> None:
    ran = start(sandbox, "kafka-4.4", "slow").end()
    if has_netem():
        assert ran.code == EXIT_CLEAN, ran.output
    else:
        assert ran.code == EXIT_USAGE, ran.output
        assert "this run needs the kernel's network emulator: this kernel does not have it:" in ran.stderr
        assert not sandbox.results.exists()
