"""Timed offsets of a round's replicas: polls, and stored samples."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fakes.connections import StallingReader

from harness.kafka_api import TopicPartition
from harness.kafka_api.fetch import ReplicaEnds, ReplicaReader
from harness.models.clock import VirtualClock
from harness.run_folder.history import read_lines
from harness.soak.evidence.offsets import PERIOD_S, sampled_offsets

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
        {A: ReplicaEnds(5, 4, 3), B: ReplicaEnds(1, 1, 1)},
        {A: ReplicaEnds(9, 9, 3), B: ReplicaEnds(1, 1, 1)},
        {A: ReplicaEnds(9, 9, 3), B: ReplicaEnds(1, 1, 1)},
    )
    lines = sampled(tmp_path, reader.reader, 3)
    assert {line["broker"] for line in lines} == {1}
    assert [line["replicas"] for line in lines] == [{"t-0": [5, 4, 3], "t-1": [1, 1, 1]}, {"t-0": [9, 9, 3]}]
    assert reader.asked[:3] == [{A: 0, B: 0}, {A: 5, B: 1}, {A: 9, B: 1}]


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
