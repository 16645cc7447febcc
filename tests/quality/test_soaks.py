"""Whole soaks of simulated clusters: kept, cut off, resumed, and judged together."""

import itertools
import json
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from fakes.progress import FakeProgress
from pyspark.sql import SparkSession
from soaked import KILL, START, P, play_steps, put

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, HarnessError
from harness.json_codec import to_json
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, EXIT_CODES, UNKNOWN, RoundLine
from harness.run_folder.store import RunFolder
from harness.soak import campaign
from harness.soak.campaign import MOST_BOOTS, Soak, SoakOptions, resume, soak
from harness.soak.draw.plan import Shape
from harness.soak.judge.judge_rounds import truth_of
from harness.soak.judge_queue import JudgeQueue
from harness.soak.play.rig import booted
from harness.soak.play.round import PlayedRound
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import has_ended

SMALL = Shape(partitions=4, clients=6, play_s=12.0, rate_hz=30.0)


@pytest.fixture(autouse=True)
def _one_session(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Have the soak judge in the session of all tests: there is one in a process."""
    monkeypatch.setattr(campaign, "session_of", lambda *_, **__: nullcontext(spark))


def ends(*_: object, **__: object) -> None:
    raise MemoryError


def timeless(line: RoundLine) -> RoundLine:
    return replace(line, took_s={})


def run_soak(results: Path, report: Callable[[RoundLine], None] = lambda _: None, **more: Any) -> Soak:
    options = SoakOptions("sim-kafka", 10.0, 1, results, SparkOptions(), **{"shape": SMALL, "rounds": 2, **more})
    return soak(options, FakeProgress(), report)


def resume_soak(folder: Path) -> Soak:
    return resume(folder, SparkOptions(), FakeProgress(), lambda _: None)


def test_a_soak_is_kept_and_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    lines: list[RoundLine] = []
    first = run_soak(tmp_path, lines.append)
    assert [(line.name, line.seed) for line in lines] == [("soak-1", 1), ("soak-2", 2)]
    folder = first.folder.path
    assert folder.parent == tmp_path / "sim-kafka" / "soak"
    stored = json.loads((folder / "soak.json").read_text())
    assert stored == json.loads(json.dumps(to_json(first.result())))
    assert stored["not_drawn"]["ring"] == "takes five brokers"
    for line in lines:
        round_folder = RunFolder(folder / line.name)
        assert json.loads(round_folder.verdict_path.read_text())["verdict"] == line.verdict
        assert (round_folder.path / "brokers").exists() == (line.verdict != CLEAN)
    # Cut off after one round: another process plays the second one again, the same way.
    cut_off = {**stored, "rounds": stored["rounds"][:1], "minutes": stored["took_s"] / 60 + 0.002}
    (folder / "soak.json").write_text(json.dumps(cut_off))
    again = resume_soak(folder)
    assert timeless(again.rounds[1]) == timeless(first.rounds[1])
    assert again.took_s > stored["took_s"]


def test_a_soak_cut_off_before_its_first_verdict_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a soak whose process librdkafka ended in the second round, before the first one was judged."""
    monkeypatch.setattr(campaign, "session_of", ends)
    with pytest.raises(MemoryError):
        run_soak(tmp_path)
    (folder,) = (tmp_path / "sim-kafka" / "soak").iterdir()
    with pytest.raises(MemoryError):
        resume_soak(folder)


def test_a_resumed_soak_judges_what_was_played_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a soak whose process librdkafka ended: rounds that waited for their verdicts were played again."""
    with monkeypatch.context() as cut_off:
        cut_off.setattr(JudgeQueue, "finish", ends)
        with pytest.raises(MemoryError):
            run_soak(tmp_path / "cut-off")
    (stored,) = (tmp_path / "cut-off" / "sim-kafka" / "soak").glob("*/soak.json")
    state = json.loads(stored.read_text())
    assert state["rounds"] == []
    # No time is left, so that no round can be played.
    stored.write_text(json.dumps({**state, "minutes": 0.0}))
    judged = resume_soak(stored.parent).rounds
    whole = run_soak(tmp_path / "whole").rounds
    assert [timeless(line) for line in judged] == [timeless(line) for line in whole]
    assert judged[0].took_s.keys() == whole[0].took_s.keys()


def failing_boots(monkeypatch: pytest.MonkeyPatch, failing: range) -> None:
    """Have these boots of a soak fail, counted from 1."""
    boots = itertools.count(1)

    def boot(*arguments: Any) -> Any:
        if next(boots) in failing:
            raise HarnessError("no broker registers")
        return booted(*arguments)

    monkeypatch.setattr(campaign, "booted", boot)


@pytest.mark.commit
def test_a_cluster_that_does_not_come_up_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_boots(monkeypatch, range(2, 2 + MOST_BOOTS - 1))
    assert [line.name for line in run_soak(tmp_path).rounds] == ["soak-1", "soak-2"]


def test_played_rounds_are_judged_before_a_soak_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_boots(monkeypatch, range(2, 2 + MOST_BOOTS))
    lines: list[RoundLine] = []
    with pytest.raises(HarnessError, match="no broker registers"):
        run_soak(tmp_path, lines.append)
    (stored,) = (tmp_path / "sim-kafka" / "soak").glob("*/soak.json")
    assert [line["name"] for line in json.loads(stored.read_text())["rounds"]] == ["soak-1"]
    assert len(lines) == 1


def test_a_round_that_cannot_be_judged_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_first(folder: RunFolder, played: PlayedRound) -> Any:
        if folder.run_id == "soak-2":
            raise ValueError("a batch ends too soon")
        return truth_of(folder, played)

    monkeypatch.setattr("harness.soak.judge.judge_rounds.truth_of", only_the_first)
    first, second = run_soak(tmp_path).rounds
    assert "cannot be judged" not in first.reason
    assert (second.verdict, second.reason) == (UNKNOWN, "it cannot be judged: ValueError: a batch ends too soon")


def test_nothing_is_said_of_rounds_whose_spark_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disconnected = Mock(side_effect=ConnectionError("answer from Java side is empty"))
    monkeypatch.setattr("harness.soak.judge.judge_rounds.truth_of", disconnected)
    monkeypatch.setattr("harness.soak.judge_queue.has_ended", lambda _: True)
    lines: list[RoundLine] = []
    with pytest.raises(HarnessError, match="Spark's JVM ended while rounds were judged: answer from Java"):
        run_soak(tmp_path, lines.append)
    assert not lines
    assert not list(tmp_path.glob("sim-kafka/soak/*/*/verdict.json"))


def test_a_jvm_that_ended_is_noticed(spark: SparkSession) -> None:
    assert not has_ended(spark)
    with subprocess.Popen(["true"]) as ended:
        gone = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=ended)))
        assert has_ended(cast("SparkSession", gone))


def test_a_stored_round_is_played_again_with_one_seed_after_the_other(tmp_path: Path) -> None:
    schedule = play_steps(tmp_path / "round", (1, put(P)), (3, KILL), (8, put(P, deletes=True)), (15, START)).schedule
    lines: list[RoundLine] = []
    result = run_soak(tmp_path / "results", lines.append, schedule=schedule)
    assert [(line.seed, line.findings) for line in lines] == [(seed, {"tombstone-divergence": 1}) for seed in (1, 2)]
    assert (result.verdict, EXIT_CODES[result.verdict]) == (ANOMALY, EXIT_ANOMALY)
    assert result.result().shown is None, "of a round that was not shrunk"
    known = {"tombstone-divergence": "known"}
    tolerated = run_soak(tmp_path / "more", schedule=schedule, rounds=1, expected=known)
    assert (tolerated.verdict, EXIT_CODES[tolerated.verdict]) == (AS_EXPECTED, EXIT_CLEAN)
    assert tolerated.result().reason.startswith("1 as-expected; soak-1: ")
    for finding, shown in (("tombstone-divergence", 1), ("stuck-lso", 0)):
        again = run_soak(tmp_path / finding, schedule=replace(schedule, finding=finding), rounds=1)
        assert to_json(again.result())["shown"] == {"finding": finding, "in": shown, "of": 1}
    assert tolerated.result().findings == {"tombstone-divergence": 1}
    assert (tolerated.folder.path / "soak-1" / "brokers").is_dir(), "its evidence is kept all the same"
