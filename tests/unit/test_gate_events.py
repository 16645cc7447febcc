"""The lines of gates in brokers' logs, and the events that a run reads from them; builds with the rules of the gate."""

import json
from pathlib import Path

import pytest

from harness.broker_files.side_files.server_logs import ServerLogs
from harness.play.protection import Gates
from harness.protect.gate.build import gate_options
from harness.protect.gate.events import is_held, parse_line

OF_A_GATE = b"[23:01:02.345] [INFO] compaction.gate - compaction-gate: %s topic=stuck-lso partition=0 time_ms=1000 %s\n"
HELD = OF_A_GATE % (b"held", b"reason=not-in-sync missing=[2]")
RELEASED = OF_A_GATE % (b"released", b"held_ms=70 grown_bytes=-5")
ANEW = b"compaction-gate: began-anew topic=a.b_c-1 partition=12 time_ms=5 leader=3 before=null dropped_up_to=400\n"
ANEW_BY_THE_PATCH = (
    b"23:01:02.345 [main] [INFO] kafka.server.ReplicaManager - Copying a.b_c-1-12 anew from leader 2, as this replica"
    b" is being added: dropping its log up to offset 400.\n"
)
WAITS = b"INFO Compaction of a.b_c-1-12 waits until all of its replicas are in sync (kafka.log.LogCleaner)\n"
GOES_ON = b"INFO Compaction of a.b_c-1-12 goes on, as all of its replicas are in sync (kafka.log.LogCleaner)\n"
HELD_ALL = b"compaction-gate: held-all time_ms=7 reason=old-image: compaction waits: the image is old (3600889 ms)\n"
RELEASED_ALL = b"compaction-gate: released-all time_ms=9: compaction goes on, where no replica is missing\n"
PLACE = {"broker": 3, "topic": "stuck-lso", "partition": 0, "time_ms": 1000}
A_12 = {"broker": 3, "topic": "a.b_c-1", "partition": 12}


@pytest.mark.parametrize(("line", "event"), [
    (HELD, {**PLACE, "event": "held", "reason": "not-in-sync"}),
    (RELEASED, {**PLACE, "event": "released", "held_ms": 70, "grown_bytes": -5}),
    (ANEW, {**A_12, "time_ms": 5, "event": "began-anew", "leader": 3, "dropped_up_to": 400}),
    (ANEW_BY_THE_PATCH, {**A_12, "event": "began-anew", "leader": 2, "dropped_up_to": 400}),
    (WAITS, {**A_12, "event": "held"}),
    (GOES_ON, {**A_12, "event": "released"}),
    (HELD_ALL, {"broker": 3, "time_ms": 7, "event": "held-all", "reason": "old-image"}),
    (RELEASED_ALL, {"broker": 3, "time_ms": 9, "event": "released-all"}),
    (b"compaction-gate: installed topics=orders-*\n", {"broker": 3, "event": "installed"}),
    (b"[INFO] LogCleaner - Beginning cleaning of log stuck-lso-0\n", None),
    (b"\xff\xfe\n", None),
])  # fmt: skip
def test_a_line_of_a_log(line: bytes, event: dict[str, object] | None) -> None:
    assert parse_line(line, 3) == event


def test_logs_are_followed_line_by_line(tmp_path: Path) -> None:
    paths = {broker: tmp_path / f"{broker}.log" for broker in (1, 3)}
    logs = ServerLogs(paths, parse_line)
    gates = Gates(logs, tmp_path / "gate.jsonl")

    def holds(broker: int, partition: int) -> bool:
        return gates.holds(broker, ("stuck-lso", partition))

    assert logs.events() == []
    paths[3].write_bytes(b"first line\n" + HELD[:40])
    assert not holds(3, 0)
    with paths[3].open("ab") as log:
        log.write(HELD[40:] + b"compaction-gate: released-all time_ms=9: compaction goes on\n")
    assert [holds(3, 0), holds(1, 0), holds(3, 1)] == [True, False, False]
    with paths[3].open("ab") as log:
        log.write(ANEW.replace(b"a.b_c-1 partition=12", b"stuck-lso partition=0"))
    assert holds(3, 0), "a copy that begins anew says nothing of cleaners"
    with paths[3].open("ab") as log:
        log.write(RELEASED)
    assert not holds(3, 0)
    gates.write()
    events = [json.loads(line) for line in (tmp_path / "gate.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["held", "released-all", "began-anew", "released"]


@pytest.mark.parametrize(("given", "retention_ms", "options"), [
    (None, "300", "max-unsynced-ms=0"),
    ("hold=markers", "300", "hold=markers,max-unsynced-ms=0"),
    ("max-unsynced-ms=500", "300", "max-unsynced-ms=500"),
    (None, "60000", ""),
    ("topics=a", "86400000", "topics=a"),
])  # fmt: skip
def test_with_a_short_retention_last_high_watermarks_count(given: str | None, retention_ms: str, options: str) -> None:
    assert gate_options(given, {"delete.retention.ms": retention_ms}) == options


@pytest.mark.parametrize(
    ("is_build", "log", "is_written"), [(True, b"", False), (True, WAITS, True), (False, b"", True)]
)
def test_only_of_gates_no_events_are_evidence(tmp_path: Path, *, is_build: bool, log: bytes, is_written: bool) -> None:
    (tmp_path / "1.log").write_bytes(b"INFO started\n" + log)
    gates = Gates(ServerLogs({1: tmp_path / "1.log"}, parse_line), tmp_path / "gate.jsonl", is_build=is_build)
    assert gates.holds(1, ("a.b_c-1", 12)) is bool(log)
    gates.write()
    assert (tmp_path / "gate.jsonl").exists() is is_written


def test_a_gate_that_starts_holds_nothing_yet() -> None:
    held = {"broker": 1, "event": "held", "topic": "t", "partition": 0}
    assert is_held([held, {"broker": 2, "event": "installed"}], 1, ("t", 0))
    assert not is_held([held, {"broker": 1, "event": "installed"}], 1, ("t", 0))
    assert is_held([held, {"broker": 1, "event": "installed"}, held], 1, ("t", 0))
