"""Rounds on simulated brokers: ends, repetition, planted findings, timed offsets, and the command `harness soak`."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import soaked
from click.testing import CliRunner
from fakes.connections import StallingReader
from fakes.progress import FakeProgress
from findings import soak_json
from simulated import digest
from soaked import ABORTS, COMMITS, KILL, PAUSE, RESUME, START, TOPIC, P, T, play_steps, put

from harness.cli.main import cli
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, HarnessError, UsageError
from harness.host.cache import alone_in
from harness.json_codec import from_json
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, EXIT_CODES, UNKNOWN, RoundLine
from harness.kafka_api import TopicPartition
from harness.kafka_api.fetch import ReplicaEnds, ReplicaReader
from harness.models.clock import VirtualClock
from harness.run_folder.history import read_lines
from harness.run_folder.store import AFTER_REJOIN, ROUND, VERDICT, RunFolder
from harness.schedules.generators import fixed
from harness.schedules.operations import AlterTopic, DeleteRecords, Inject, Operation, RecreateTopic
from harness.schedules.schedule import Schedule, Step
from harness.soak import campaign
from harness.soak.campaign import Soak, SoakOptions, _unjudged, resume
from harness.soak.causes import read_expected
from harness.soak.causes.cause import RoundEvidence
from harness.soak.draw.plan import Shape
from harness.soak.evidence.client_log import ABORTED, client_log_of
from harness.soak.evidence.offsets import PERIOD_S, open_again, sampled_offsets
from harness.soak.judge.judge_rounds import replicas_of, truth_of
from harness.soak.play.rig import find_setup
from harness.soak.play.round import PlayedRound, read_played, read_round, write_round
from harness.spark.options import SparkOptions


def wrong_names(folder: Path, played: PlayedRound) -> dict[int, set[str]]:
    assert played.failure is None
    names = soaked.names_by_replica(RoundEvidence(truth_of(RunFolder(folder), played)))
    return {broker: of_replica for (broker, _), of_replica in names.items()}


def wrong_after(folder: Path, *steps: tuple[float, Operation]) -> dict[int, set[str]]:
    return wrong_names(folder, play_steps(folder, *steps))


def test_a_drawn_round_goes_to_its_end_and_is_repeated_exactly(tmp_path: Path) -> None:
    first, again = (soaked.play_drawn(tmp_path / name, seed=3) for name in ("first", "again"))
    assert first.failure is None
    assert first == again
    assert digest(tmp_path / "first") == digest(tmp_path / "again")
    assert len({operation.process for operation in first.schedule.operations}) > 8


def test_a_round_that_is_written_down_is_a_schedule_and_can_be_judged_later(tmp_path: Path) -> None:
    played, path = soaked.play_drawn(tmp_path / "first", seed=4), tmp_path / "round.json"
    write_round(path, played)
    schedule = read_round(path)
    assert (schedule, schedule.target) == (played.schedule, "sim-kafka")
    again = soaked.play(tmp_path / "again", fixed(*schedule.steps), schedule.plan, seed=schedule.plan.seed)
    assert again.schedule.operations == played.schedule.operations
    for failure in (None, "no broker answers"):
        stored = replace(
            played, failure=failure, stall={"broker": 1} if failure else None, took_s={"play": 1.25, "heal": 0.5}
        )
        write_round(path, stored)
        assert (read_played(path), read_played(path).took_s) == (stored, stored.took_s)
    path.write_text(path.read_text().replace('"took_s"', '"took"'))
    with pytest.raises(UsageError, match="does not say how its round was played"):
        read_played(path)


@pytest.mark.parametrize(("name", "steps"), [
    ("tombstone-divergence", [(1, put(P)), (3, KILL), (8, put(P, deletes=True)), (15, START)]),
    ("stuck-lso", [(1, put(T)), (3, KILL), (8, ABORTS), (15, START)]),
    ("aborted-to-committed",
     [(1, put(T)), (3, KILL), (8, ABORTS), (13, put(T, "other")), (13.5, COMMITS), (15, START)]),
    # A committed delete that broker 2 takes as aborted, and soon cleans away: a deleted value is alive.
    ("tombstone-divergence",
     [(1, put(P)), (2, put(T, deletes=True)), (3, PAUSE), (8, COMMITS), (13, put(T, "other")), (13.3, ABORTS),
      (13.4, RESUME)]),
    (None, [(1, put(P)), (2, put(T, deletes=True)), (3, COMMITS), (4, put(T)), (5, ABORTS), (6, put(T, "x")),
            (7, soaked.DIES)]),
])  # fmt: skip
def test_clients_know_of_anomalies(tmp_path: Path, name: str | None, steps: list[tuple[float, Operation]]) -> None:
    assert wrong_after(tmp_path / "round", *steps) == ({} if name is None else {2: {name}})


def test_what_is_broken_at_the_end_is_healed(tmp_path: Path) -> None:
    faults = [Inject("partition", 2), Inject("throttle", 3), Inject("lossy", 1), Inject("unassign", 3)]
    folder = RunFolder(tmp_path / "round")
    timed: list[tuple[float, Operation]] = [(3.0 + at, fault) for at, fault in enumerate(faults)]
    assert wrong_after(folder.path, (1, put(P)), *timed) == {}
    events = read_lines(folder.history_path)
    healed = [event["f"] for event in events if event["f"].startswith("heal") and event["type"] == "ok"]
    assert healed == ["heal lossy", "heal partition", "heal unassign", "heal throttle"]
    assert {broker for broker, _ in replicas_of(folder)} == {1, 2, 3}


def test_a_client_that_dies_leaves_a_transaction_that_its_next_start_aborts(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "round")
    assert wrong_after(folder.path, (1, put(T)), (2, soaked.DIES), (8, put(T, "x")), (9, COMMITS)) == {}
    log = client_log_of(read_lines(folder.history_path))
    assert [transaction.outcome for transaction in log.transactions.values()] == [ABORTED, "committed"]


def test_of_two_clients_with_one_id_the_later_one_fences_the_other(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "round")
    assert wrong_after(folder.path, (1, put(T)), (2, put(soaked.TWIN, "x")), (4, COMMITS)) == {}
    events = read_lines(folder.history_path)
    assert [event["type"] for event in events if event["f"] == "commit"] == ["invoke", "fail"]
    assert next(iter(client_log_of(events).transactions.values())).outcome == ABORTED


def test_administrators_delete_records_change_settings_and_create_a_topic_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "round")
    assert wrong_after(
        folder.path, (1, put(P, "old")), (5, DeleteRecords(2, TOPIC)), (6, AlterTopic(TOPIC, "segment.ms", "300")),
        (8, put(P, "lost")), (11, RecreateTopic(TOPIC)), (14, put(P, "new")), (17, DeleteRecords(4, TOPIC)),
    ) == {}  # fmt: skip
    ended = {event["f"]: event["type"] for event in read_lines(folder.history_path)}
    assert (ended["delete records"], ended["alter topic"], ended["recreate topic"]) == ("ok", "ok", "ok")
    replicas = replicas_of(folder).values()
    (log_start,) = {log.log_start for log in replicas}
    assert log_start > 0
    assert "lost" not in {record.key for log in replicas for record in log.records}


def test_what_was_lost_is_found(tmp_path: Path) -> None:
    """The power of the judge: a log that loses a record or a marker, and a key's value, after everything."""
    folder = RunFolder(tmp_path / "round")
    played = play_steps(folder.path, (1, put(P)), (2, put(T, "x")), (3, COMMITS))
    assert wrong_names(folder.path, played) == {}
    for log in (folder.broker_snapshot(3, AFTER_REJOIN) / f"{TOPIC}-0").glob("*.log"):
        log.write_bytes(b"")
    assert wrong_names(folder.path, played) == {3: {"unexplained"}}
    shutil.rmtree(folder.path / "brokers" / "2")
    with pytest.raises(UsageError, match=f"no copy of the replicas of broker 2 of {TOPIC}-0"):
        truth_of(folder, played)


@pytest.mark.parametrize(("change", "message"), [
    ({"plan": {}}, "step 1: the plan has no client p"),
    ({"steps": [{"at_s": 0, "do": "die", "process": "nobody"}]}, "the plan has no client nobody"),
])  # fmt: skip
def test_what_is_no_round_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "round.json"
    write_round(path, play_steps(tmp_path / "round", (1, put(P))))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UsageError, match=message):
        read_round(path)


def test_steps_are_begun_in_their_order_and_no_sooner_than_they_say(tmp_path: Path) -> None:
    wanted = [Step(2.0, put(P)), Step(1.0, put(P, "x")), Step(4.0, put(T))]
    played = soaked.play(tmp_path / "round", fixed(*wanted))
    assert list(played.schedule.operations) == [step.operation for step in wanted]
    assert all(step.at_s >= asked.at_s for step, asked in zip(played.schedule.steps, wanted, strict=True))
    assert played.plan == soaked.SMALL


def test_topics_that_are_not_created_fail_their_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = "soak-1-0 was not created within 30 s"
    refuse = Mock(side_effect=HarnessError(why))
    monkeypatch.setattr("harness.soak.play.round.Administrators.create_topics", refuse)
    played = play_steps(tmp_path / "round", (1, put(P)))
    assert played.failure == why
    assert played.schedule.steps == ()


A, B = ("t", 0), ("t", 1)


class ScriptedReader(StallingReader):
    """Answers each poll with the next of its answers, and notes the positions that it was asked from."""

    def __init__(self, *answers: Mapping[TopicPartition, ReplicaEnds | str]) -> None:
        super().__init__(stalls=0)
        self.answers = list(answers)
        self.asked: list[dict[TopicPartition, int]] = []

    def ends(self, positions: Any) -> dict[TopicPartition, ReplicaEnds | str]:
        self.asked.append(dict(positions))
        return dict(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


def sampled(
    folder: Path, reader: Callable[[int], ReplicaReader], polls: int, *, is_up: bool = True
) -> list[dict[str, Any]]:
    """Return the lines after so many polls of one broker."""
    clock: Any = VirtualClock()
    runtime = SimpleNamespace(brokers=(1,), is_up=lambda _: is_up)
    cluster: Any = SimpleNamespace(brokers=(1,), runtime=runtime, clock=clock, control=SimpleNamespace(reader=reader))
    path = folder / "offsets.jsonl"
    with sampled_offsets(cluster, (A, B), path):
        ends_s = clock.now_s() + PERIOD_S * (polls - 0.5)
        clock.wait_until(lambda: clock.now_s() >= ends_s, 60, "the polls")
    return read_lines(path)


def test_only_replicas_that_changed_are_written_and_none_is_read_twice(tmp_path: Path) -> None:
    reader = ScriptedReader(
        {A: ReplicaEnds(5, 4, 3), B: ReplicaEnds(1, 1, 1)}, {A: ReplicaEnds(9, 9, 3), B: ReplicaEnds(1, 1, 1)}
    )
    lines = sampled(tmp_path, reader.reader, 3)
    assert {line["broker"] for line in lines} == {1}
    assert [line["replicas"] for line in lines] == [{"t-0": [5, 4, 3], "t-1": [1, 1, 1]}, {"t-0": [9, 9, 3]}]
    assert reader.asked[:3] == [{A: 0, B: 0}, {A: 5, B: 1}, {A: 9, B: 1}]


def test_a_transaction_is_open_again_where_the_last_stable_offset_goes_back(tmp_path: Path) -> None:
    path, stable, again = tmp_path / "offsets.jsonl", [56, 56, 56], [57, 57, 52]
    # A broker that has just started does not know its high watermark. After a truncation, it is another transaction.
    for polls, offsets in (([], {}), ([stable, again], {(1, A): {52}}), ([stable, [57, 52, 52]], {}),
                           ([stable, [40, 40, 40], again], {}), ([[56, 56, 52], again], {})):  # fmt: skip
        assert open_again(path) == {}
        path.write_text("".join(json.dumps({"broker": 1, "replicas": {"t-0": poll}}) + "\n" for poll in polls))
        assert open_again(path) == offsets
        path.unlink()


def test_a_replica_that_was_truncated_is_read_from_its_start_again(tmp_path: Path) -> None:
    reader = ScriptedReader(
        {A: ReplicaEnds(5, 5, 5), B: ReplicaEnds(1, 1, 1)},
        {A: "OffsetOutOfRangeError", B: ReplicaEnds(1, 1, 1)},
        {A: ReplicaEnds(2, 2, 2), B: ReplicaEnds(1, 1, 1)},
    )
    assert [line["replicas"].get("t-0") for line in sampled(tmp_path, reader.reader, 3)] == [[5, 5, 5], [2, 2, 2]]
    assert reader.asked[2][A] == 0


def test_a_broker_that_does_not_answer_is_connected_to_again(tmp_path: Path) -> None:
    stalling = StallingReader(stalls=2)
    assert len(sampled(tmp_path, stalling.reader, 4)) == 1
    assert (stalling.opened, stalling.closed >= 2) == (3, True)


def test_a_broker_that_is_away_is_not_asked(tmp_path: Path) -> None:
    reader = StallingReader(stalls=0)
    assert sampled(tmp_path, reader.reader, 3, is_up=False) == []
    assert reader.opened == 0


@pytest.mark.parametrize(("verdicts", "code"), [
    ([], EXIT_UNKNOWN),
    ([CLEAN, CLEAN], EXIT_CLEAN),
    ([CLEAN, UNKNOWN], EXIT_UNKNOWN),
    ([ANOMALY, UNKNOWN, CLEAN], EXIT_ANOMALY),
    ([CLEAN, AS_EXPECTED], EXIT_CLEAN),
    ([AS_EXPECTED, UNKNOWN], EXIT_UNKNOWN),
])  # fmt: skip
def test_the_worst_round_decides(tmp_path: Path, verdicts: list[str], code: int) -> None:
    options = SoakOptions("sim-kafka", 10.0, 1, tmp_path, SparkOptions())
    rounds = [from_json(RoundLine, line) for line in soak_json(*({"verdict": name} for name in verdicts))["rounds"]]
    result = Soak(RunFolder(tmp_path), options, find_setup("sim-kafka", Shape(), FakeProgress()), rounds)
    assert EXIT_CODES[result.verdict] == code
    assert result.result().verdict == result.verdict


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "give --target"),
    (["--target", "kafka-9.9"], "unknown target"),
    (["--target", "redpanda-26.2"], "soak is for Kafka and sim-kafka"),
    (["--target", "sim-kafka", "--gate", "--expect", "{known}"], "leave out --expect"),
    (["--target", "sim-kafka", "--gate"], "--gate is for brokers of this host"),
    (["--target", "sim-kafka", "--expect", "{nowhere}"], "is not a file"),
    (["--target", "sim-kafka", "--schedule", "{known}"], "is not JSON"),
    (["--target", "sim-kafka", "--schedule", "{round}", "--rate", "5"], "leave out --rate"),
    (["--target", "sim-kafka", "--shrink", "stuck-lso"], "--shrink NAME also needs --schedule FILE"),
    (["--target", "kafka-4.4", "--shrink", "stuck-lso", "--schedule", "{round}"], "give --target sim-kafka"),
    (["--target", "sim-kafka", "--shrink", "x", "--schedule", "{round}", "--rounds", "2"], "leave out --rounds"),
    (["--target", "kafka-4.4", "--patch", "{folder}"], "has no classes of Kafka"),
    (["--resume", "{folder}"], "is not the folder of a soak"),
    (["--resume", "{folder}", "--seed", "2"], "leave out --seed"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    known, path = tmp_path / "known.toml", tmp_path / "round.json"
    known.write_text('[[expect]]\nfindings = ["stuck-lso"]\nwhy = "known"\n')
    write_round(path, play_steps(tmp_path / "played", (1, put(P))))
    names = {"known": known, "nowhere": tmp_path / "nowhere", "round": path, "folder": tmp_path}
    words = [word.format(**names) for word in arguments]
    results = [] if {"--resume", "--shrink"} & {*words} else ["--results", str(tmp_path / "results")]
    done = CliRunner().invoke(cli, ["soak", *results, *words])
    assert done.exit_code != 0
    assert message in f"{done.output}{done.stderr}{done.exception}"
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("text", "message"), [
    ("expect = 1", "must consist of [[expect]] entries"),
    ("[[expect]]\nfindings = ['stuck-lso']", "entry 1: give findings"),
    ("[[expect]]\nfindings = ['stuck-lso']\nwhy = ''", "entry 1: give findings"),
    ("[[expect]]\nfindings = ['stuck']\nwhy = 'x'", "did you mean stuck-lso"),
    ("[[expect]]\nfindings = ['unexplained']\nwhy = 'x'", "unknown finding"),
    ("[[expect", "is not TOML"),
])  # fmt: skip
def test_known_findings_are_read_and_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text('[[expect]]\nfindings = ["stuck-lso", "tombstone-divergence"]\nwhy = "its own timers"\n')
    assert read_expected(path) == {"stuck-lso": "its own timers", "tombstone-divergence": "its own timers"}
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_expected(path)
    assert message in str(error.value)


def test_what_rounds_do_not_draw_is_known_before_anything_starts() -> None:
    setup = find_setup("sim-kafka", Shape(), FakeProgress())
    assert not setup.shape.is_real
    assert {"one-way", "group offsets", "topic setting compression.type"} <= setup.left_out.keys()
    assert not setup.left_out.keys() & setup.faults.keys()


@pytest.mark.parametrize(("stored", "is_judged"), [(None, True), (ANOMALY, True), (UNKNOWN, True), (CLEAN, False)])
def test_a_played_round_without_a_line_is_judged_and_not_played_again(
    tmp_path: Path, stored: str | None, *, is_judged: bool
) -> None:
    """Once it is clean, its logs are deleted. A verdict may be stored without a line, as the disk is full."""
    played = PlayedRound(Schedule((), target="sim-kafka", plan=soaked.SMALL))
    write_round(tmp_path / ROUND, played)
    if stored is not None:
        (tmp_path / VERDICT).write_text(json.dumps({"verdict": stored}))
    assert _unjudged(RunFolder(tmp_path)) == (played if is_judged else None)


def test_a_soak_in_progress_is_not_resumed(tmp_path: Path) -> None:
    with alone_in(tmp_path, 0.0), pytest.raises(UsageError, match="is still in progress in another process"):
        resume(tmp_path, SparkOptions(), FakeProgress(), lambda _: None)


def test_a_resumed_soak_plays_as_many_rounds_of_the_same_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "_continue", lambda begun, *_: (begun.write(), begun)[1])
    schedule = play_steps(tmp_path / "played", (1, put(P))).schedule
    options = SoakOptions("sim-kafka", 10.0, 1, tmp_path, SparkOptions(), rounds=3, schedule=schedule)
    begun = campaign.soak(options, FakeProgress(), lambda _: None)
    again = resume(begun.folder.path, SparkOptions(), FakeProgress(), lambda _: None)
    assert (again.options.rounds, again.options.schedule) == (3, begun.options.schedule) != (3, None)
