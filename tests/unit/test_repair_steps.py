"""The next step for one partition: literal observations of replicas 1, 2 and 3, of which 2 is wrong."""

from dataclasses import replace
from typing import Any

import pytest

from harness.protect.repair import steps
from harness.protect.repair.steps import Action, PartitionRepair, Reassign, RecordProgress, Stop, Wait, next_step

ENTRY = PartitionRepair(("t", 0), "id", (1, 2, 3), 1, (1, 3), (2,))
SEEN = steps.ObservedPartition(
    "id", 1, 7, (1, 2, 3), frozenset({1, 2, 3}), 2, frozenset({1, 2, 3}), is_held=True,
    folders_bytes={1: 9, 2: 9, 3: 9}, answered=frozenset({1, 2, 3}),
)  # fmt: skip
REMOVED = replace(SEEN, leader_epoch=8, replicas=(1, 3), isr=frozenset({1, 3}), folders_bytes={1: 9, 3: 9})
BEGUN = replace(ENTRY, copy=steps.ReplicaCopying(2, 1, 8), copies=1)
AGAIN = replace(BEGUN, copy=steps.ReplicaCopying(2, 1, 9))
COPYING = replace(SEEN, leader_epoch=8, replicas=(1, 3, 2), isr=frozenset({1, 3}), adding=frozenset({2}))
JOINED = replace(COPYING, isr=frozenset({1, 2, 3}), adding=frozenset())
REBUILT = replace(ENTRY, rebuilt=(2,), copies=1)


@pytest.mark.parametrize(("entry", "observed", "expected"), [
    (ENTRY, replace(SEEN, is_held=False), Action.HOLD),
    (ENTRY, replace(SEEN, leader=2), Action.ELECT),
    (ENTRY, replace(SEEN, leader=2, replicas=(2, 1, 3)), Reassign((1, 2, 3))),
    (ENTRY, replace(SEEN, leader=2, replicas=(2, 1, 3), isr=frozenset({2, 3})), Reassign((3, 2, 1))),
    (ENTRY, SEEN, Reassign((1, 3))),
    (ENTRY, REMOVED, RecordProgress(BEGUN)),
    (BEGUN, REMOVED, Reassign((1, 3, 2))),
    (BEGUN, replace(REMOVED, leader_epoch=9), RecordProgress(replace(AGAIN, copies=2))),
    (BEGUN, JOINED, RecordProgress(REBUILT)),
    (BEGUN, replace(COPYING, leader_epoch=9), RecordProgress(AGAIN)),
    (BEGUN, replace(JOINED, leader_epoch=10), RecordProgress(replace(BEGUN, copy=None))),
    (BEGUN, replace(JOINED, is_held=False), RecordProgress(replace(BEGUN, copy=None))),
    (BEGUN, replace(JOINED, leader=3, leader_epoch=9), RecordProgress(replace(BEGUN, copy=None))),
    (BEGUN, replace(JOINED, leader=2, leader_epoch=9), Action.ELECT),
    (REBUILT, JOINED, Reassign((1, 2, 3))),
    (REBUILT, replace(SEEN, leader=3), Action.ELECT),
    (replace(REBUILT, leader=3), replace(SEEN, leader=1), Action.DONE),
    (REBUILT, SEEN, Action.DONE),
])  # fmt: skip
def test_the_next_step(entry: PartitionRepair, observed: steps.ObservedPartition, expected: Any) -> None:
    assert next_step(entry, observed) == expected


@pytest.mark.parametrize(("entry", "observed", "kind", "says"), [
    (ENTRY, replace(SEEN, leader=-1), Wait, "a leader"),
    (ENTRY, replace(SEEN, adding=frozenset({4})), Wait, "another reassignment, which has broker 4"),
    (ENTRY, replace(SEEN, replicas=(1, 2, 3, 4)), Stop, "somebody assigned a replica to broker 4"),
    (ENTRY, replace(SEEN, leader=2, isr=frozenset({2})), Wait, "a right replica that is in the ISR"),
    (ENTRY, replace(SEEN, leader=2, online=frozenset({2}), isr=frozenset({1, 2})), Wait, "a right replica"),
    (ENTRY, replace(SEEN, isr=frozenset({1, 2})), Wait, "2 replicas besides broker 2 to be in sync"),
    (ENTRY, replace(REMOVED, online=frozenset({1, 3})), Wait, "broker 2 to be online"),
    (ENTRY, replace(REMOVED, folders_bytes={1: 9, 2: 9, 3: 9}), Wait, "broker 2 to delete its folder"),
    (ENTRY, replace(REMOVED, answered=frozenset({1, 3})), Wait, "broker 2 to delete its folder"),
    (BEGUN, COPYING, Wait, "the copy on broker 2"),
    (BEGUN, SEEN, Wait, "metadata that are as new as the progress"),
    (REBUILT, replace(SEEN, isr=frozenset({1, 3})), Wait, "every replica to be in sync"),
    (REBUILT, replace(JOINED, removing=frozenset({2})), Wait, "the end of the reassignment"),
    (ENTRY, replace(SEEN, topic_id="another"), Stop, "deleted and created again"),
    (ENTRY, replace(SEEN, min_insync=3), Stop, "it takes a spare broker"),
    (ENTRY, replace(SEEN, replicas=(1, 2), isr=frozenset({1, 2})), Stop, "somebody removed the one of 3; before"),
    (REBUILT, replace(SEEN, replicas=(2, 1), isr=frozenset({1, 2})), Stop, "1, 2, 3 had the replicas: assign"),
    (replace(ENTRY, copies=steps.MOST_COPIES), SEEN, Stop, "leaders change too often"),
])  # fmt: skip
def test_what_is_waited_for_and_what_ends_the_repair_of_a_partition(
    entry: PartitionRepair, observed: steps.ObservedPartition, kind: type[Wait | Stop], says: str
) -> None:
    step = next_step(entry, observed)
    assert isinstance(step, kind)
    assert says in (step.condition if isinstance(step, Wait) else step.why)


def test_two_replicas_take_a_spare_which_is_copied_first_and_goes_last() -> None:
    entry = PartitionRepair(("t", 0), "id", (2, 1), 2, (1,), (2,), spare=3)
    observed = replace(SEEN, leader=1, replicas=(1, 2), isr=frozenset({1, 2}), min_insync=1, folders_bytes={1: 9, 2: 9})
    assert next_step(replace(entry, copy=steps.ReplicaCopying(3, 1, 7)), observed) == Reassign((1, 2, 3))
    copied = replace(entry, rebuilt=(3,))
    assert next_step(copied, replace(observed, replicas=(1, 2, 3), isr=frozenset({1, 2, 3}))) == Reassign((1, 3))
    both = replace(entry, rebuilt=(3, 2))
    assert next_step(both, replace(observed, replicas=(1, 3, 2), isr=frozenset({1, 2, 3}))) == Reassign((2, 1))
    assert next_step(both, replace(observed, replicas=(2, 1))) == Action.ELECT
    assert next_step(both, replace(observed, replicas=(2, 1), leader=2)) == Action.DONE


@pytest.mark.parametrize(
    ("count", "min_insync", "expected"), [(2, 1, True), (3, 1, False), (3, 2, False), (3, 3, True), (4, 3, False)]
)
def test_when_a_spare_broker_is_needed(count: int, min_insync: int, expected: bool) -> None:  # noqa: FBT001
    assert steps.needs_spare(tuple(range(count)), min_insync) is expected
