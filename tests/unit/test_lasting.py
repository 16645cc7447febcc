"""Durations of stuck replicas, from the lines of an aftermath."""

from typing import Any

from harness.json_codec import to_json
from harness.judge import consequences as module

TOPIC = "stuck-lso"
FOUND, EXPIRIES, RESTART, NEXT = (
    ("found", 1_000),
    ("expiries", 61_500),
    ("restart", 70_000),
    ("next-transaction", 72_000),
)
TXN = [5, 0, 10]
"""Producer id, epoch, first offset."""


def line(step: tuple[str, int], broker: int = 2, partition: int = 0, **fields: Any) -> dict[str, Any]:
    """A replica that is not stuck: it is stable to its end."""
    name, time_ms = step
    return {
        "time_ms": time_ms, "step": name, "summary": f"after {name}", "topic": TOPIC, "partition": partition,
        "broker": broker, "log_end": 60, "high_watermark": 60, "last_stable_offset": 60, "open": [], "aborted": [],
        **fields,
    }  # fmt: skip


def stuck(step: tuple[str, int], broker: int = 2, partition: int = 0, **fields: Any) -> dict[str, Any]:
    return line(step, broker, partition, **{"open": [TXN], "last_stable_offset": 10, **fields})


def replica(broker: int = 2, partition: int = 0, last_stable_offset: int = 60, **more: Any) -> dict[str, Any]:
    return {
        "broker": broker, "topic": TOPIC, "partition": partition, "last_stable_offset": last_stable_offset,
        "high_watermark": 60, **more,
    }  # fmt: skip


def stuck_durations(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps as ``verdict.json`` has them."""
    steps: list[dict[str, Any]] = to_json(module.stuck_durations(lines))
    return steps


def test_no_lines_tell_nothing() -> None:
    assert stuck_durations([]) == []


def test_nothing_stuck_is_nothing_to_follow() -> None:
    lines = [line(FOUND, broker) for broker in (1, 2, 3)]
    assert stuck_durations(lines) == [
        {"step": "found", "summary": "after found", "after_s": 0.0, "stuck": [], "ended": []}
    ]


def test_a_replica_is_stuck_as_long_as_its_transaction_is_open() -> None:
    lines = [line(FOUND, 1), stuck(FOUND), line(EXPIRIES, 1), stuck(EXPIRIES, high_watermark=90)]
    assert stuck_durations(lines) == [
        {
            "step": "found",
            "summary": "after found",
            "after_s": 0.0,
            "stuck": [replica(last_stable_offset=10)],
            "ended": [],
        },
        {
            "step": "expiries",
            "summary": "after expiries",
            "after_s": 60.5,
            "stuck": [{**replica(last_stable_offset=10), "high_watermark": 90}],
            "ended": [],
        },
    ]


def test_what_ends_it_decides_for_what_the_transaction_is_taken() -> None:
    first_step = [stuck(FOUND, partition=partition) for partition in (0, 1)]
    ended = [line(NEXT, partition=0), line(NEXT, partition=1, aborted=[[5, 10]])]
    actual = stuck_durations([*first_step, *ended])[1]
    assert actual["stuck"] == []
    assert actual["ended"] == [replica(partition=0, outcome="committed"), replica(partition=1, outcome="aborted")]


def test_another_transaction_that_was_aborted_is_not_taken_for_it() -> None:
    actual = stuck_durations([stuck(FOUND), line(NEXT, aborted=[[5, 40], [6, 10]])])[1]
    assert actual["ended"] == [replica(outcome="committed")]


def test_each_partition_ends_in_its_own_step() -> None:
    result = stuck_durations(
        [
            *[stuck(FOUND, partition=partition) for partition in (0, 1)],
            line(NEXT, partition=0), stuck(NEXT, partition=1),
            line(("admin-abort", 80_000), partition=0), line(("admin-abort", 80_000), partition=1, aborted=[[5, 10]]),
        ]
    )  # fmt: skip
    assert [(len(step["stuck"]), len(step["ended"])) for step in result] == [(2, 0), (1, 1), (0, 2)]
    assert [replica["outcome"] for replica in result[2]["ended"]] == ["committed", "aborted"]


def test_every_stuck_broker_is_reported() -> None:
    result = stuck_durations([*[stuck(FOUND, broker) for broker in (2, 3)], stuck(RESTART, 2), line(RESTART, 3)])
    assert [replica["broker"] for replica in result[0]["stuck"]] == [2, 3]
    assert [replica["broker"] for replica in result[1]["stuck"]] == [2]
    assert [replica["broker"] for replica in result[1]["ended"]] == [3]


def test_an_epoch_that_is_reported_differently_after_a_restart_is_the_same_transaction() -> None:
    result = stuck_durations([stuck(FOUND), stuck(RESTART, open=[[5, 1, 10]])])
    assert result[1]["stuck"] == [replica(last_stable_offset=10)]


def test_another_transaction_that_is_open_later_is_not_the_one_that_was_found() -> None:
    actual = stuck_durations([line(FOUND, 1), stuck(FOUND), stuck(EXPIRIES, 1), stuck(EXPIRIES, open=[[5, 0, 70]])])[1]
    assert actual["stuck"] == []
    assert actual["ended"] == [replica(last_stable_offset=10, outcome="committed")]
