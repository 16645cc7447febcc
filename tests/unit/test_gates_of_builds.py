"""The gates of a run, and builds of the user's own with the rules of the gate, with some of them, or without them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from harness.broker_files.side_files.server_logs import ServerLogs
from harness.play.protection import Gates
from harness.protect.gate.events import parse_line

if TYPE_CHECKING:
    from pathlib import Path

WAITS = "INFO Compaction of orders-0 waits until all of its replicas are in sync\n"
GOES_ON = "INFO Compaction of orders-0 goes on, as all of its replicas are in sync\n"


def gates(folder: Path, *lines: str, is_build: bool) -> Gates:
    (folder / "1.log").write_text("INFO started\n" + "".join(lines))
    return Gates(ServerLogs({1: folder / "1.log"}, parse_line), folder / "gate.jsonl", is_build=is_build)


def test_a_build_with_the_rules_holds_what_it_says(tmp_path: Path) -> None:
    build = gates(tmp_path, WAITS, is_build=True)
    assert build.holds(1, ("orders", 0))
    assert not build.holds(1, ("orders", 1))
    with (tmp_path / "1.log").open("a") as log:
        log.write(GOES_ON)
    assert not build.holds(1, ("orders", 0))
    build.write()
    events = [json.loads(line) for line in (tmp_path / "gate.jsonl").read_text().splitlines()]
    assert [(one["event"], one["topic"], one["partition"]) for one in events] == [
        ("held", "orders", 0),
        ("released", "orders", 0),
    ]


@pytest.mark.parametrize(("is_build", "is_written"), [(True, False), (False, True)])
def test_only_of_gates_no_events_are_evidence(tmp_path: Path, is_build: bool, is_written: bool) -> None:  # noqa: FBT001
    silent = gates(tmp_path, is_build=is_build)
    assert not silent.holds(1, ("orders", 0))
    silent.write()
    assert (tmp_path / "gate.jsonl").exists() is is_written
