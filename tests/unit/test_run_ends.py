"""The end of a run: its records, and ends that leave nothing to judge."""

import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from fakes.clock import TickingClock
from fakes.progress import FakeManifest

from harness.errors import EXIT_INTERRUPTED, HarnessError, InterruptError, TimeLimitError, interruptible
from harness.host import leftovers
from harness.host.clock import Stages
from harness.judge import sessions
from harness.play import run
from harness.play.run_player import RunPlayer
from harness.run_folder.store import RunFolder, create_run_folder

FAILURE = HarnessError("broker 3 ended by itself")


@pytest.mark.parametrize(
    ("error", "is_observing", "end", "is_raised"),
    [
        (None, True, ("complete", None), False),
        (TimeLimitError("the limit"), True, ("time-limit", "the limit"), False),
        (TimeLimitError("the limit"), False, ("time-limit", "the limit"), False),
        (FAILURE, True, ("failed", str(FAILURE)), False),
        (ValueError("no"), True, ("failed", "ValueError: no"), False),
        (FAILURE, False, ("failed", str(FAILURE)), True),
        (KeyboardInterrupt(), True, ("interrupted", "interrupted"), True),
        (KeyboardInterrupt(), False, ("interrupted", "interrupted"), True),
    ],
)
def test_the_end_of_a_run_is_written_down(
    error: BaseException | None, end: tuple[str, str | None], *, is_observing: bool, is_raised: bool
) -> None:
    manifest = FakeManifest()
    player = SimpleNamespace(run=Mock(side_effect=error), is_observing=is_observing, stall="a stalled replica")
    with pytest.raises(type(error)) if error is not None and is_raised else nullcontext():
        run._carry_out(cast("RunPlayer", player), manifest, Stages(TickingClock().now_s))
    assert manifest.ends == [end]
    assert manifest.content == ({"stall": "a stalled replica"} if end[0] == "failed" else {})


@pytest.mark.parametrize("status", ["interrupted", "complete", None])
def test_an_interrupt_says_what_is_kept_and_where(tmp_path: Path, status: str | None) -> None:
    folder = RunFolder(tmp_path)
    if status is not None:
        folder.write_json(folder.manifest_path, {"status": status})
    kept = f"the collected evidence is kept in {tmp_path}/, without a verdict"
    judged = f"the run is kept in {tmp_path}/, and `harness check {tmp_path}` judges it"
    with pytest.raises(InterruptError) as raised, interruptible(lambda: run._interruption_message(folder)):
        raise KeyboardInterrupt
    assert str(raised.value) == f"interrupted; {judged if status == 'complete' else kept}"
    assert raised.value.exit_code == EXIT_INTERRUPTED


def test_latest_points_at_a_run_only_once_it_has_a_verdict(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = (create_run_folder(tmp_path, "kafka-4.4", "all", name) for name in ("first", "second"))
    latest = first.path.with_name("latest")
    assert not latest.is_symlink()
    for folder in (first, second):
        run._point_latest_here(folder)
        assert latest.resolve() == folder.path
    latest.unlink()
    latest.mkdir()
    run._point_latest_here(first)
    assert "latest does not point at" in caplog.text, "a verdict holds where no link can be made"


def test_seconds_are_added_up_by_stage() -> None:
    clock, reported = TickingClock(), list[str]()
    subject = Stages(clock.now_s, reported.append)
    for text, seconds in (("boot", 2), ("clean", 5), ("boot", 1)):
        subject.begin(text)
        clock.now += seconds
    subject.end()
    subject.end()
    assert run._timings_s(subject) == {"boot": 3, "clean": 5, "total": 8}
    assert reported == ["boot", "clean", "boot"]


@pytest.mark.parametrize("error", [HarnessError("the restart failed"), FileExistsError("applications.jsonl")])
def test_an_application_that_fails_is_reported_and_takes_nothing_away(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.play.applications.follow", Mock(side_effect=error))
    manifest: Any = FakeManifest(content={"status": "complete"})
    prepared: Any = SimpleNamespace(plan=None, installed="Kafka Streams")
    nothing: Any = None
    run._follow_up(prepared, nothing, nothing, manifest, lambda _: None)
    assert manifest.content == {"status": "complete", "application_failure": str(error), "evidence": {}}


@pytest.mark.parametrize(("meanwhile", "asked", "times"), [(True, 0, 1), (False, 0, 0), (True, 2, 1), (False, 2, 1)])
def test_checkers_are_planned_once_meanwhile_or_only_where_there_is_something_to_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, meanwhile: bool, asked: int, times: int
) -> None:
    """A run of days has no Spark before its end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    monkeypatch.setattr(leftovers, "end_processes", lambda *_args, **_named: 0)
    planned, nothing = cast("Any", "planned"), cast("Any", None)
    prepare = Mock(return_value=planned)
    monkeypatch.setattr(sessions, "prepare_beside", prepare)
    prepared_run: Any = SimpleNamespace(plan=SimpleNamespace(options=SimpleNamespace(spark=None)),
                                        equipment=SimpleNamespace(java=None))  # fmt: skip
    workspace: Any = SimpleNamespace(run_id="r")
    with run._checkers(workspace, nothing, prepared_run, meanwhile=meanwhile) as prepared:
        assert [prepared() for _ in range(asked)] == [planned] * asked
    assert prepare.call_count == times
