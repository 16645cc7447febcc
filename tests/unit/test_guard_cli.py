"""`harness guard` from its start to a signal, on a simulated cluster; its output and exit codes."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from fakes.guarded import FakeChannel, FakeCluster, FakeLeadership, start

from harness.cli.main import cli
from harness.errors import EXIT_CLEAN, EXIT_UNKNOWN, HarnessError, UsageError
from harness.protect.guard.cluster import DIRTY_RATIO
from harness.protect.guard.journal import HOLD, Entry
from harness.protect.guard.run import Observation

SERVER = ("--bootstrap-server", "b:1")
RUNNING = (*SERVER, "--port", "0", "--interval", "0.2")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster({"t": {DIRTY_RATIO: "0.2"}, "u": {}})
    monkeypatch.setattr(FakeChannel, "close", lambda _: None, raising=False)
    fakes = {"LiveCluster": fake, "GuardObserver": Mock(latest=Observation()), "KafkaChannel": FakeChannel(fake)}
    for name, stand_in in fakes.items():
        monkeypatch.setattr(f"harness.protect.guard.run.{name}", Mock(return_value=stand_in))
    monkeypatch.setattr("harness.protect.guard.run.GroupLeadership", lambda *_: FakeLeadership(fake))
    monkeypatch.setattr("harness.protect.guard.run.LEAD_S", 0.3)
    return fake


def in_round_4(cluster: FakeCluster, act: Callable[[], object]) -> None:
    def before(asked: str) -> None:
        if asked == "view" and cluster.asked.count("view") == 4:
            act()

    cluster.before = before


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["guard", *words], standalone_mode=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_everything_put_back(cluster: FakeCluster, tmp_path: Path, number: int) -> None:
    cluster.away = {"t": {2}}

    def end() -> None:
        assert cluster.is_paused("t")
        cluster.away.clear()
        os.kill(os.getpid(), number)

    in_round_4(cluster, end)
    done = run(*RUNNING, "--events", str(tmp_path / "events"))
    assert done.return_value == EXIT_CLEAN, done.output
    assert cluster.explicit == {"t": {DIRTY_RATIO: "0.2"}, "u": {}}
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    names = ["listens", "leads", "exposed", "paused", "ready", "released", "ended"]
    assert [event["event"] for event in events] == names
    types = {"time_ms": int, "event": str, "topic": str, "what": str}
    assert {name: type(value) for name, value in events[3].items()} == types
    assert "guard: paused t: min.cleanable.dirty.ratio=1" in done.stderr
    assert cluster.members == []


def test_a_full_disk_and_a_closed_terminal_do_not_end_it(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.away = {"t": {2}}
    monkeypatch.setattr("harness.cli.protect.print_progress", Mock(side_effect=BrokenPipeError))
    in_round_4(cluster, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run(*RUNNING, "--events", "/dev/full").return_value == EXIT_UNKNOWN
    assert cluster.is_paused("t")


@pytest.mark.parametrize("signals", [1, 2, 0], ids=["a last round", "at once", "it fails beyond repair"])
def test_exposed_topics_stay_paused_at_the_end_and_it_says_how_to_release(cluster: FakeCluster, signals: int) -> None:
    cluster.away = {"t": {2}}

    def end() -> None:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
        if not signals:
            raise RuntimeError("a bug")

    in_round_4(cluster, end)
    done = run(*RUNNING)
    assert (done.return_value, str(done.exception)) == ((EXIT_UNKNOWN, "None") if signals else (None, "a bug"))
    assert cluster.is_paused("t")
    assert "1 topics stay paused" in done.stderr
    assert "harness guard release --bootstrap-server b:1" in done.stderr


@pytest.mark.parametrize(("away", "changed", "code"), [({"t": {2}}, 1, EXIT_UNKNOWN), ({}, 0, EXIT_CLEAN)])
def test_a_dry_run(cluster: FakeCluster, away: dict[str, set[int]], changed: int, code: int) -> None:
    cluster.away = away
    done = run(*RUNNING, "--dry-run")
    assert (done.return_value, cluster.log) == (code, [])
    assert ("would pause it" in done.stderr) is bool(changed)
    assert f"a guard would change {changed} of " in done.stdout


@pytest.mark.parametrize(("words", "message"), [
    ((), "Missing option '--bootstrap-server'"),
    ((*SERVER, "status", *SERVER), "options of `harness guard` come after `status`"),
    ((*SERVER, "--events", "/nowhere/x"), "--events /nowhere/x: No such file"),
    ((*RUNNING, "--topic", "typo"), "topic typo does not exist"),
    ((*RUNNING, "--interval", "0"), "is not a number from 0.2 to 3600"),
    ((*SERVER, "--listen", "256.0.0.1"), "--listen 256.0.0.1:9464: it cannot listen there"),
    ((*SERVER, "--listen", "2001:db8::1"), "--listen [2001:db8::1]:9464: it cannot listen there"),
])  # fmt: skip
@pytest.mark.usefixtures("cluster")
def test_wrong_options_are_one_sentence(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert message in str(getattr(done.exception, "message", done.exception))


def test_the_status_shows_what_a_guard_that_crashed_left(cluster: FakeCluster) -> None:
    assert run("status", *SERVER).return_value == EXIT_CLEAN
    cluster.away = {"t": {2}}
    start(cluster).guard.attempt()
    cluster.log.append(Entry(HOLD, "t", 1, "w", {"by": "repair 7c1f"}).to_json().encode())
    shown = run("status", *SERVER)
    assert shown.return_value == EXIT_UNKNOWN
    for part in ("paused", "min.cleanable.dirty.ratio=0.2, max.compaction.lag.ms=(inherited)", "repair 7c1f"):
        assert part in shown.stdout
    content = json.loads(run("status", *SERVER, "--format", "json").stdout)
    assert content["paused"][0]["found"] == {DIRTY_RATIO: "0.2", "max.compaction.lag.ms": None}
    assert content["holds"] == {"t": ["repair 7c1f"]}


def test_another_machine_puts_back_what_is_no_longer_exposed_once_no_guard_runs(cluster: FakeCluster) -> None:
    cluster.away = {"t": {2}, "u": {2}}
    start(cluster).guard.attempt()
    beside = run("release", *SERVER).exception
    assert isinstance(beside, HarnessError)
    assert not isinstance(beside, UsageError)
    assert "a guard runs on this cluster" in str(beside)
    cluster.members.clear()
    cluster.away["u"].clear()
    assert run("release", *SERVER).return_value == EXIT_UNKNOWN
    assert (cluster.is_paused("t"), cluster.explicit["u"]) == (True, {})
    done = run("release", *SERVER, "--exposed")
    assert (done.return_value, cluster.explicit) == (EXIT_CLEAN, {"t": {DIRTY_RATIO: "0.2"}, "u": {}}), done.output
    assert "0 topics are paused" in done.stdout
    assert run("release", *SERVER).return_value == EXIT_CLEAN
    assert cluster.explicit["t"] == {DIRTY_RATIO: "0.2"}, "a release pauses nothing, although it is exposed"
