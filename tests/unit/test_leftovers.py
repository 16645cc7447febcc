"""Everything of a run is found again by its marker, and ends with whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from harness import leftovers
from harness.errors import HarnessError
from harness.keeper import Keeper
from harness.leftovers import Leftover, Owner

BOUND_S = 20.0


@pytest.fixture(autouse=True)
def _private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def start_marked(run_id: str) -> subprocess.Popen[bytes]:
    """Start a process that carries the run's marker, as brokers do."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", leftovers.process_marker(run_id)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    deadline_s = time.monotonic() + BOUND_S
    while not leftovers.processes_of(run_id):
        assert time.monotonic() < deadline_s
    return process


def test_processes_are_found_by_their_run_and_ended() -> None:
    start_marked("run-a")
    other = start_marked("run-b")
    try:
        assert leftovers.end_processes("run-a") == 1
        assert not leftovers.processes_of("run-a")
        assert [p.pid for p in leftovers.processes_of("run-b")] == [other.pid]
    finally:
        leftovers.end_processes("run-b")
        other.wait(BOUND_S)


def test_the_keeper_takes_a_run_apart_when_the_pipe_ends() -> None:
    directory = leftovers.claim_work_dir("run-c", Path("results"))
    process = start_marked("run-c")
    Keeper("run-c", directory).close(keep=False)
    assert process.wait(BOUND_S) != 0
    assert not directory.exists()


def test_the_directory_stays_while_a_network_cannot_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run_id: str) -> int:
        raise HarnessError(f"the network of {run_id} stays")

    directory = leftovers.claim_work_dir("run-g", Path("results"))
    process = start_marked("run-g")
    monkeypatch.setattr(leftovers, "remove_network", refuse)
    with pytest.raises(HarnessError, match="the network of run-g stays"):
        leftovers.remove("run-g", directory)
    assert process.wait(BOUND_S) != 0, "processes end before their network"
    assert directory.exists()


def test_the_keeper_leaves_a_kept_run_alone() -> None:
    directory = leftovers.claim_work_dir("run-d", Path("results"))
    Keeper("run-d", directory).close(keep=True)
    assert directory.exists()


def test_a_run_is_abandoned_only_when_its_owner_is_gone() -> None:
    directory = leftovers.claim_work_dir("run-e", Path("results"))
    owner = leftovers.read_owner(directory)
    assert owner is not None
    assert owner.pid == os.getpid()
    assert not leftovers.is_abandoned(Leftover(directory, owner))
    started_s = psutil.Process().create_time()
    same_id_later = Owner(os.getpid(), started_s - 1000, "run-e", "results")
    assert leftovers.is_abandoned(Leftover(directory, same_id_later)), "a later process with that id is not the owner"
    kept = Owner(os.getpid(), started_s - 1000, "run-e", "results", kept=True)
    assert not leftovers.is_abandoned(Leftover(directory, kept))


def test_a_directory_without_an_owner_is_left_alone_while_it_is_young() -> None:
    directory = leftovers.work_root() / "run-f"
    directory.mkdir(parents=True)
    assert not leftovers.is_abandoned(Leftover(directory, None))
    old = time.time() - leftovers.UNOWNED_GRACE_S - 1
    os.utime(directory, (old, old))
    assert leftovers.is_abandoned(Leftover(directory, None))
