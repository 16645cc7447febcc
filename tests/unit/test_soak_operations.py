"""Operations of a soak as JSON, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.errors import UsageError
from harness.soak.draw.operations import (
    AlterTopic,
    CommitOffset,
    DeleteGroup,
    DeleteRecords,
    Die,
    End,
    Heal,
    Inject,
    Operation,
    RecreateTopic,
    SendOffset,
    Step,
    VisitGroup,
    Write,
    step_of,
)

EVERY: tuple[Operation, ...] = (
    Write("p", "t", 0, "k"),
    Write("p", "t", 0, "k", deletes=True),
    SendOffset("t0", "g", "t", 0, 7),
    End("t0", "commit"),
    Die("t0"),
    CommitOffset("p", "g", "t", 0, 7),
    VisitGroup("p", "g", "t", "classic"),
    DeleteGroup("p", "g"),
    DeleteRecords("t", 0, 3),
    RecreateTopic("t"),
    AlterTopic("t", "segment.ms", "100"),
    Inject("kill", 2),
    Heal("kill", 2),
)


@pytest.mark.parametrize("operation", EVERY, ids=str)
def test_an_operation_is_the_same_after_json(operation: Operation) -> None:
    step = Step(1.5, operation)
    assert step_of(json.loads(json.dumps(step.as_json())), "a test") == step


def test_an_operation_says_what_it_does() -> None:
    assert len({str(one) for one in EVERY}) == len(EVERY)
    assert Step(0.0, EVERY[1]).as_json() == {
        "at_s": 0.0, "do": "write", "process": "p", "topic": "t", "partition": 0, "key": "k", "deletes": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"do": "wipe"},
        {"do": None},
        {"partition": "0"},
        {"partition": True},
        {"key": None},
        {"more": 1},
        {"at_s": -1.0},
        {"at_s": float("nan")},
        {"at_s": "now"},
    ],
)
def test_what_is_no_operation_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="step 3"):
        step_of({**Step(1.0, EVERY[0]).as_json(), **changed}, "step 3")


@pytest.mark.parametrize("content", [None, [], "write"])
def test_what_is_no_object_is_refused(content: object) -> None:
    with pytest.raises(UsageError, match="is no operation"):
        step_of(content, "a test")
