"""Everything of a run is found again by its marker, and ends with whoever started it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from harness.cli import main as cli
from harness.errors import EXIT_CLEAN, HarnessError, UsageError
from harness.host import leftovers
from harness.host.node_runs import MAKE_PRIVATE, WORK_ROOT
from harness.host.workspace import KEEP, Workspace, start_keeper

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


@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("release", [leftovers.release, lambda path: start_keeper(path).communicate(timeout=BOUND_S)])
def test_a_release_ends_processes_and_keeps_the_data_of_a_run_that_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, release: Callable[[Path], object], *, resumable: bool
) -> None:
    """By the harness, or by the keeper when the pipe ends; the keeper does not remove a run that is to be kept."""
    networks: list[str] = []
    monkeypatch.setattr(leftovers, "remove_network", networks.append)
    directory = leftovers.claim_work_dir("run-c", Path("results"))
    leftovers.change_owner(directory, resumable=resumable)
    (directory / "data").mkdir()
    process = start_marked("run-c")
    start_keeper(directory).communicate(KEEP, timeout=BOUND_S)
    assert directory.exists()
    ended = release(directory)
    assert process.wait(BOUND_S) != 0
    assert (directory / "data").is_dir() == directory.exists() == resumable
    if release is leftovers.release:
        assert (ended, networks) == (1, ["run-c"])


def test_the_directory_stays_while_a_network_cannot_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = leftovers.claim_work_dir("run-g", Path("results"))
    process = start_marked("run-g")
    monkeypatch.setattr(leftovers, "remove_network", Mock(side_effect=HarnessError("the network of run-g stays")))
    with pytest.raises(HarnessError, match="the network of run-g stays"):
        leftovers.remove(directory)
    assert process.wait(BOUND_S) != 0, "processes end before their network"
    assert directory.exists()


@pytest.mark.parametrize(
    ("changes", "is_abandoned"),
    [
        ({}, False),
        ({"started_s": 0.0, "started": None}, True),
        ({"started_s": 0.0, "started": None, "kept": True}, False),
        ({"started_s": 0.0, "started": None, "resumable": True}, False),
    ],
    ids=["alive", "a later process with that id", "kept", "resumable"],
)
def test_a_run_is_abandoned_if_its_owner_has_ended(*, changes: dict[str, Any], is_abandoned: bool) -> None:
    directory = leftovers.claim_work_dir("run-e", Path("results"))
    leftovers.change_owner(directory, **changes)
    assert leftovers.is_abandoned(directory, leftovers.read_owner(directory)) is is_abandoned
    if not changes:
        assert not leftovers.is_abandoned(directory, None), "it is young"
        os.utime(directory, (0, time.time() - leftovers.UNOWNED_GRACE_S - 1))
        assert leftovers.is_abandoned(directory, None)


@pytest.mark.skipif(not leftovers.BOOT_ID.exists(), reason="there is no other record of a start")
def test_an_owner_lives_whatever_the_wall_clock_is_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = leftovers.claim_work_dir("run-x", Path("results"))
    owner = leftovers.read_owner(directory)
    assert owner is not None
    created_s = owner.started_s
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: created_s + 3600.0)
    assert owner.lives()
    assert not replace(owner, started=f"another boot {owner.started}").lives()


def cut_off(run_id: str, **fields: bool) -> Path:
    directory = leftovers.claim_work_dir(run_id, Path("results") / run_id)
    leftovers.change_owner(directory, started_s=0.0, started=None, **fields)
    return directory


def clean(*run_ids: str) -> int:
    code: int = cli.cli.main(["clean", *run_ids], standalone_mode=False)
    return code


def test_a_change_of_an_owner_keeps_the_other_fields() -> None:
    directory = leftovers.claim_work_dir("run-i", Path("results"))
    before = leftovers.read_owner(directory)
    leftovers.change_owner(directory, resumable=True)
    assert before is not None
    assert leftovers.read_owner(directory) == replace(before, resumable=True)
    (directory / "owner.json").write_text('{"pid": ')
    leftovers.change_owner(directory, resumable=True)
    assert (directory / "owner.json").read_text() == '{"pid": ', "an unreadable owner is not changed"


def test_clean_spares_an_unnamed_resumable_run_and_tells_how_to_resume_it(capsys: pytest.CaptureFixture[str]) -> None:
    directory = cut_off("run-n", resumable=True)
    abandoned = cut_off("run-o")
    assert clean() == EXIT_CLEAN
    result = capsys.readouterr().out.splitlines()
    run_dir = Path("results/run-n").absolute()
    assert result == [
        f"spared run-n: resume it with `harness run --resume {run_dir}`; remove it with `harness clean run-n`",
        f"removed run-o: 0 processes and {abandoned}",
    ]
    assert directory.exists()
    assert not abandoned.exists()
    other = cut_off("run-q", resumable=True)
    assert clean("run-n") == EXIT_CLEAN
    assert capsys.readouterr().out == f"removed run-n: 0 processes and {directory}\n"
    assert (directory.exists(), other.exists()) == (False, True)


def test_clean_rejects_a_run_of_a_live_process() -> None:
    directory = leftovers.claim_work_dir("run-r", Path("results"))
    leftovers.change_owner(directory, resumable=True)
    with pytest.raises(UsageError, match=f"run-r is still in progress \\(process {os.getpid()}\\)"):
        clean("run-r")
    assert directory.exists()


def test_a_resumed_run_belongs_to_this_process_unless_its_data_are_missing() -> None:
    directory = cut_off("run-s", resumable=True)
    (directory / "data").mkdir()
    with Workspace("run-s", Path("results"), again=True) as workspace:
        assert workspace.path == directory
        owner = leftovers.read_owner(directory)
        assert owner is not None
        assert owner.lives()
        assert owner.pid == os.getpid()
        assert owner.resumable, "it may be cut off again"
    assert (directory / "data").is_dir()
    with pytest.raises(UsageError, match=r"the run's data are gone from .*there is no .*run-w; start a new run"):
        Workspace("run-w", Path("results"), again=True)
    assert not (leftovers.work_root() / "run-w").exists()


@pytest.mark.parametrize(
    ("resumable", "is_interrupted", "remains"),
    [((True,), True, True), ((False,), True, False), ((True, False), False, False)],
    ids=["interrupted in its window", "before", "complete"],
)
def test_an_interrupted_run_keeps_its_data_if_it_is_resumable(
    *, resumable: tuple[bool, ...], is_interrupted: bool, remains: bool
) -> None:
    with suppress(KeyboardInterrupt), Workspace("run-u", Path("results")) as workspace:
        for value in resumable:
            leftovers.change_owner(workspace.path, resumable=value)
        assert workspace.path.is_dir()
        if is_interrupted:
            raise KeyboardInterrupt
    assert workspace.path.is_dir() == remains


def test_a_keeper_that_takes_long_does_not_end_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Mock(pid=7, communicate=Mock(side_effect=subprocess.TimeoutExpired("keeper", 15.0)))
    monkeypatch.setattr("harness.host.workspace.start_keeper", lambda _: slow)
    with Workspace("run-y", Path("results")) as workspace:
        pass
    assert not workspace.path.exists()


@pytest.mark.parametrize(("spoil", "why"), [
    pytest.param(lambda root: root.symlink_to(root.parent), "is a link", id="a link"),
    pytest.param(lambda root: root.mkdir() or root.chmod(0o755), r"is open to other .* \(mode 0755\)", id="open"),
    pytest.param(
        lambda root: root.mkdir(mode=0o700), f"belongs to user {os.getuid()}, not to user 7", id="another"
    ),
])  # fmt: skip
def test_a_directory_of_runs_that_is_not_private_is_refused(
    spoil: Callable[[Path], object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = leftovers.work_root()
    spoil(root)
    if "belongs" in why:
        monkeypatch.setattr(leftovers, "work_root", lambda: root)
        monkeypatch.setattr(os, "getuid", lambda: 7)
    for use in (leftovers.find_leftovers, lambda: leftovers.claim_work_dir("run-h", Path("results"))):
        with pytest.raises(UsageError, match=f"{why}: remove it, or set TMPDIR"):
            use()


@pytest.mark.parametrize("name", ["missing", "file"])
def test_an_unusable_tmpdir_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "file").touch(mode=0o777)
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    with pytest.raises(UsageError, match=f"TMPDIR is {tmp_path / name}, where no file can be created"):
        leftovers.work_root()


def test_a_node_makes_and_accepts_a_private_directory_of_runs_alone(tmp_path: Path) -> None:
    made, link = tmp_path / "made", tmp_path / "link"

    def refusal(root: Path) -> str:
        script = MAKE_PRIVATE.replace(WORK_ROOT, str(root))
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == bool(done.stderr)
        return done.stderr

    for _ in range(2):
        assert refusal(made) == ""
        assert made.stat().st_mode & 0o777 == 0o700
    link.symlink_to(made)
    assert refusal(link)
    made.chmod(0o755)
    assert "is open to other users: remove it" in refusal(made)
