"""The stored evidence of a simulated run equals the result of the parsers and observers of real runs."""

from pathlib import Path

import pytest
from described import described
from pyspark.sql.types import StructType

from checkers.evidence.parse import DISK, log_rows
from checkers.evidence.schemas import ABORTS, ENTRIES, HISTORY, OBSERVATIONS, SETTINGS, STATES
from harness.model_checking.explore.random_schedules import NO_OUTAGE, draw
from harness.model_checking.explore.recorder import RunRecorder, record_run
from harness.models.log.batch import encoded
from harness.models.log.delivery import delivered
from harness.models.world.world import Rules
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN

DELETED = described("p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns")
SEEDS = range(200)


def rows(table: list[tuple[object, ...]], schema: StructType, **wanted: object) -> list[dict[str, object]]:
    records = [dict(zip(schema.names[1:-1], row, strict=True)) for row in table]
    return [row for row in records if all(row[name] == value for name, value in wanted.items())]


def recorded(seed: int) -> RunRecorder:
    drawn = draw(seed, Rules(coordinated=seed % 2 == 1))
    return record_run(drawn.rules, drawn.steps)


def test_rows_are_those_of_log_files(tmp_path: Path) -> None:
    """Batch by batch, each once, or whole logs as files that a parser of real ones reads: the rows are the same."""
    path = tmp_path / "00000000000000000000.log"
    for seed in SEEDS:
        recorder = recorded(seed)
        for broker, replica in recorder.world.replicas.items():
            path.write_bytes(b"".join(map(encoded, replica.batches())))
            mine = [row[6:] for row in recorder.entries if row[0] == AFTER_REJOIN and row[2] == broker]
            assert mine == list(log_rows(path, may_be_cut=False)), f"seed {seed}, broker {broker}"


def test_rows_have_the_columns_of_their_tables() -> None:
    recorder = recorded(0)
    for name, schema in (
        ("entries", ENTRIES), ("aborts", ABORTS), ("states", STATES), ("history", HISTORY),
        ("observations", OBSERVATIONS), ("settings", SETTINGS),
    ):  # fmt: skip
        assert all(len(row) == len(schema.names) - 2 for row in getattr(recorder, name)), name


def test_who_is_down_is_judged_by_its_files() -> None:
    recorder = record_run(Rules(), DELETED)
    assert {(row["broker"], row["source"]) for row in rows(recorder.entries, ENTRIES, snapshot=BEFORE_RETURN)} == {
        (1, "fetch"), (2, DISK), (3, "fetch"),
    }  # fmt: skip
    (state,) = rows(recorder.states, STATES, snapshot=BEFORE_RETURN, broker=2)
    assert (state["served"], state["high_watermark"], state["last_stable_offset"]) == (False, 1, None)
    (state,) = rows(recorder.states, STATES, snapshot=AFTER_REJOIN, broker=2)
    assert (state["served"], state["high_watermark"], state["last_stable_offset"]) == (True, 2, 2)


def test_a_tombstone_is_seen_to_appear_and_to_go() -> None:
    # The last batch of a pass stays, empty at least.
    looks = rows(
        record_run(Rules(), (*DELETED[:3], *described("p puts L"), *DELETED[3:])).observations, OBSERVATIONS, broker=1
    )
    kinds = [
        [(noted["offset"], noted["kind"]) for noted in look[change]]  # type: ignore[attr-defined]  # a list of them
        for look in looks
        for change in ("appeared", "removed")
    ]
    assert kinds == [
        [(0, "value")], [], [(1, "tombstone"), (2, "value")], [], [], [(0, "value")], [], [(1, "tombstone")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "phases"),
    [
        (("t puts K", "2 leaves", "t commits", "2 returns"), {"produce": "before", "commit": "outage"}),
        (("2 leaves", "t puts K", "t commits", "2 returns"), {"produce": "late", "commit": "late"}),
        (("2 leaves", "2 returns", "t puts K", "t commits"), {"produce": "after", "commit": "after"}),
    ],
)
def test_phases_tell_what_can_be_missed(steps: tuple[str, ...], phases: dict[str, str]) -> None:
    result = rows(record_run(Rules(), described(*steps)).history, HISTORY, type="ok", part="payload")
    assert {row["f"]: row["phase"] for row in result if row["f"] != "begin"} == phases


def test_only_deletes_of_what_a_replica_had_can_be_missed() -> None:
    steps = ("p puts K", "2 leaves", "p deletes K", "p puts K", "p deletes K", "2 returns")
    result = rows(record_run(Rules(), described(*steps)).history, HISTORY, type="ok", tombstone=True)
    assert [(row["offset"], row["phase"]) for row in result] == [(1, "outage"), (3, "late")]


def test_a_run_without_an_outage_has_both_snapshots() -> None:
    drawn = draw(1, Rules(), NO_OUTAGE)
    recorder = record_run(drawn.rules, drawn.steps)
    before, after = (
        [row[1:] for row in recorder.states if row[0] == snapshot] for snapshot in (BEFORE_RETURN, AFTER_REJOIN)
    )
    assert before == after


def test_a_consumer_is_delivered_what_was_committed_up_to_the_stable_offset() -> None:
    steps = ("t puts K", "p puts L", "t aborts", "u puts M", "u commits", "t puts N", "p puts O")
    world = record_run(Rules(), described(*steps)).world
    assert [value.key for value in delivered(world.replicas[3])] == [b"L", b"M"]
