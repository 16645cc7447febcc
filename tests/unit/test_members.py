"""Records of groups of the consumer protocol: records that a coordinator loads, and records that stop it."""

import pytest

from harness.broker_files.segments.records import Record
from harness.models.log.batch import ModelBatch
from harness.models.log.invariants import ModelTruth, Wrote
from harness.models.log.replica import Replica
from harness.models.world import members
from harness.models.world.members import CLASSIC, DELETED, GROUP, JOINS, LEAVES, MEMBER, TARGET, Loaded

ASSIGNMENT, TARGET_OF_MEMBER = members.ASSIGNMENT, members.TARGET_OF_MEMBER
WITH_MEMBER = {MEMBER, ASSIGNMENT}


def loaded(*keys: str) -> Loaded:
    return members.load((key.removeprefix("-"), key.startswith("-")) for key in keys)


@pytest.mark.parametrize("script", members.SCRIPTS)
def test_what_happens_to_a_group_can_be_loaded_whole(script: str) -> None:
    loaded(*(key for _, keys in members.SCRIPTS[script] for key in keys))


@pytest.mark.parametrize(
    ("keys", "result"),
    [
        ((), Loaded()),
        (JOINS, Loaded(is_consumer=True, parts={*WITH_MEMBER, TARGET_OF_MEMBER, TARGET})),
        ((*JOINS, *LEAVES), Loaded(is_consumer=True, parts={TARGET})),
        ((*JOINS, *LEAVES, *DELETED), Loaded()),
        (LEAVES, Loaded(is_consumer=True, parts={TARGET})),
        ((f"-{MEMBER}", f"-{ASSIGNMENT}", f"-{GROUP}", f"-{TARGET}"), Loaded()),
        ((CLASSIC,), Loaded(is_classic=True)),
        ((*JOINS, CLASSIC), Loaded(is_classic=True)),
        ((CLASSIC, f"-{CLASSIC}", *JOINS), loaded(*JOINS)),
        ((MEMBER,), Loaded(is_consumer=True, parts=WITH_MEMBER)),
    ],
)
def test_what_is_loaded(keys: tuple[str, ...], result: Loaded) -> None:
    assert loaded(*keys) == result


@pytest.mark.parametrize(
    ("written", "present", "names"),
    [
        ((*JOINS, *LEAVES), JOINS, [members.MEMBER_BACK]),
        ((*JOINS, *LEAVES), (GROUP, TARGET), []),
        ((*JOINS, *LEAVES, *DELETED), JOINS, [members.MEMBER_BACK, members.GROUP_BACK]),
        ((*JOINS, *LEAVES, *DELETED), (*JOINS, *DELETED), [members.NOT_LOADED]),
        ((*JOINS, *LEAVES, *DELETED), (), []),
        ((CLASSIC, f"-{CLASSIC}"), (CLASSIC,), [members.GROUP_BACK]),
        ((CLASSIC, f"-{CLASSIC}", *JOINS), (CLASSIC, *JOINS), [members.NOT_LOADED]),
    ],
)
def test_what_goes_wrong_on_a_replica(written: tuple[str, ...], present: tuple[str, ...], names: list[str]) -> None:
    truth = ModelTruth(tuple(Wrote(n, key.removeprefix("-"), key.startswith("-")) for n, key in enumerate(written)))
    replica = Replica(1)
    records = tuple(
        Record(n, 0, key.removeprefix("-").encode(), None if key.startswith("-") else b"v")
        for n, key in enumerate(present)
    )
    if records:
        replica.append(ModelBatch(0, len(records) - 1, records, 0))
    assert list(members.group_consequences(replica, truth)) == names


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ((CLASSIC, *JOINS), "the group is not a consumer group"),
        ((CLASSIC, f"-{GROUP}"), "the group is not a consumer group"),
        ((*JOINS, f"-{MEMBER}"), "a member is deleted that has an assignment"),
        ((*JOINS, f"-{ASSIGNMENT}", f"-{MEMBER}"), "a member is deleted that has an assignment"),
        ((*JOINS, f"-{TARGET}"), "a target assignment is deleted that has members"),
        ((*JOINS, f"-{GROUP}"), "a group is deleted that has members"),
        ((MEMBER, GROUP, f"-{GROUP}"), "a group is deleted that has members"),
        ((GROUP, TARGET_OF_MEMBER, f"-{GROUP}"), "a group is deleted that has members"),
        ((GROUP, TARGET, f"-{GROUP}"), "a group is deleted that has members"),
    ],
)
def test_what_cannot_be_loaded(keys: tuple[str, ...], why: str) -> None:
    with pytest.raises(members.LoadFailedError, match=why):
        loaded(*keys)
