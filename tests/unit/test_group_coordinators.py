"""Coordinators of groups in the model: answers from literal logs, records of members, and diverged replicas."""

import pytest
from described import described, play

from harness.broker_files.segments.records import ABORT, COMMIT, Record
from harness.models.log.batch import ModelBatch
from harness.models.log.invariants import ModelTruth, Txn, Wrote, violations
from harness.models.log.replica import Replica
from harness.models.log.version_rules import VersionRules
from harness.models.world import groups, members
from harness.models.world.groups import AT_RELOAD, DELETED_BACK, FROZEN, NEW, OLD, SKIPS, Answer, Commit, Offsets
from harness.models.world.members import CLASSIC, DELETED, GROUP, JOINS, LEAVES, MEMBER, TARGET, Loaded
from harness.models.world.world import Rules, World, take

BOTH = pytest.mark.parametrize("coordinator", [OLD, NEW])
GONE = "time passes; 1 cleans; 1 cleans; time passes; 1 cleans"
"""Lets producers expire, and broker 1 remove markers and tombstones."""


def cluster(steps: str, coordinator: str = NEW) -> World:
    version = VersionRules(tombstone_drops_pending=groups.DROPS_PENDING[coordinator])
    return play(Rules(of_groups=True, version=version), described(steps))


def wrong(world: World) -> list[tuple[int, str]]:
    """Return broker and name of each wrong answer that a replica in sync would give as the group's coordinator."""
    drops_pending = world.rules.version.tombstone_drops_pending
    in_sync = (world.replicas[broker] for broker in world.replication.in_sync)
    answers = {it.broker: groups.consequences(it, world.truth, drops_pending=drops_pending) for it in in_sync}
    return sorted({(broker, name) for broker, names in answers.items() for name in names})


def diverged(world: World) -> list[tuple[int, str]]:
    return [(b, name) for b in world.replication.in_sync for name in violations(world.replicas[b], world.truth)]


def offsets_after(entries: list[Commit | groups.TransactionEnd], coordinator: str = NEW) -> Offsets:
    offsets = Offsets()
    for entry in entries:
        offsets.apply(entry, drops_pending=groups.DROPS_PENDING[coordinator])
    return offsets


def plain(at: int, key: str = "K", *, deletes: bool = False) -> Commit:
    return Commit(at, key, deletes, None)


def pending(at: int, producer: int = 7, key: str = "K") -> Commit:
    return Commit(at, key, deletes=False, producer=producer)


COMMITTED, ABORTED = (groups.TransactionEnd(7, outcome) for outcome in (COMMIT, ABORT))
OTHER_COMMITTED = groups.TransactionEnd(8, COMMIT)
LOGS: dict[str, tuple[list[Commit | groups.TransactionEnd], Answer]] = {
    "nothing": ([], Answer(None)),
    "a plain commit": ([plain(0)], Answer(0)),
    "a later plain commit": ([plain(0), plain(1)], Answer(1)),
    "a tombstone": ([plain(0), plain(1, deletes=True)], Answer(None)),
    "a commit after a tombstone": ([plain(0), plain(1, deletes=True), plain(2)], Answer(2)),
    "pending": ([plain(0), pending(1)], Answer(0, is_pending=True)),
    "materialised": ([plain(0), pending(1), COMMITTED], Answer(1)),
    "dropped": ([plain(0), pending(1), ABORTED], Answer(0)),
    "superseded while pending": ([pending(0), plain(1), COMMITTED], Answer(1)),
    "plain beside pending": ([pending(0), plain(1)], Answer(1, is_pending=True)),
    "of another key": ([pending(0, key="L"), COMMITTED, plain(2)], Answer(2)),
    "another producer's marker": ([pending(0), OTHER_COMMITTED], Answer(None, is_pending=True)),
    "two producers, the first ends last": ([pending(0), pending(1, 8), OTHER_COMMITTED, COMMITTED], Answer(1)),
    "two producers, one is left": ([pending(0), pending(1, 8), OTHER_COMMITTED], Answer(1, is_pending=True)),
    "the last of a transaction": ([pending(0), pending(1), COMMITTED], Answer(1)),
    "the next marker ends all": ([pending(0), pending(3), COMMITTED], Answer(3)),
}


@BOTH
@pytest.mark.parametrize("name", LOGS)
def test_both_coordinators_answer_by_these_rules(name: str, coordinator: str) -> None:
    entries, answer = LOGS[name]
    assert offsets_after(entries, coordinator).answer("K") == answer


@pytest.mark.parametrize(("entries", "of_old", "of_new"), [
    ([plain(0), pending(1), plain(2, deletes=True)], Answer(None, is_pending=True), Answer(None)),
    ([plain(0), pending(1), plain(2, deletes=True), COMMITTED], Answer(1), Answer(None)),
    ([plain(0), pending(1), plain(2, deletes=True), ABORTED], Answer(None), Answer(None)),
    ([plain(0), pending(1), plain(2, deletes=True), pending(3), COMMITTED], Answer(3), Answer(3)),
])  # fmt: skip
def test_a_tombstone_drops_pending_offsets_where_the_new_coordinator_loads(
    entries: list[Commit | groups.TransactionEnd], of_old: Answer, of_new: Answer
) -> None:
    assert (offsets_after(entries, OLD).answer("K"), offsets_after(entries, NEW).answer("K")) == (of_old, of_new)


def test_an_emptied_batch_is_nothing_to_load() -> None:
    world = cluster("t puts K; t aborts; 1 cleans")
    assert any(not batch.records for batch in world.replicas[1].batches()), "the producer's last batch"
    assert groups.load(world.replicas[1], drops_pending=True).answer("K") == Answer(None)


WAYS = {
    FROZEN: f"t puts K; 2 leaves; t aborts; {GONE}; 2 returns",
    SKIPS: f"p puts K; t puts K; 2 leaves; t aborts; {GONE}; t puts L; t commits; 2 returns",
    groups.BEGINS_AT_ABORTED: f"t puts K; 2 leaves; t aborts; {GONE}; t puts L; t commits; 2 returns",
    DELETED_BACK: f"p puts K; 2 leaves; p deletes K; {GONE}; 2 returns",
}


@BOTH
@pytest.mark.parametrize("name", WAYS)
def test_ways_to_a_consequence_and_none_without_the_outage(name: str, coordinator: str) -> None:
    world = cluster(WAYS[name], coordinator)
    assert wrong(world) == [(2, name)]
    assert {broker for broker, _ in diverged(world)} == {2}, "the log's own anomaly shows it, too"
    stays = "; ".join(step for step in WAYS[name].split("; ") if step not in {"2 leaves", "2 returns"})
    assert wrong(cluster(stays, coordinator)) == []


@BOTH
def test_a_hidden_offset_is_superseded_anyway(coordinator: str) -> None:
    """The marker goes only with the offset that it commits: where it is missed, no one needs the offset any more."""
    world = cluster(f"t puts K; p puts K; 2 leaves; t commits; {GONE}; t puts L; t aborts; 2 returns", coordinator)
    assert (2, "committed-to-aborted") in diverged(world)
    assert wrong(world) == []


FREEZE = f"t puts K; 2 leaves; t commits; p deletes K; {GONE}; 2 returns"
DELETED_WHILE_FROZEN = f"p puts K; t puts K; 2 leaves; t aborts; {GONE}; 2 returns; p deletes K; 2 leads"
DELETED_WHILE_PENDING = f"p puts K; t puts K; p deletes K; 2 leaves; t commits; {GONE}; 2 returns"
SEQUELS: dict[str, tuple[str, list[tuple[int, str]], list[tuple[int, str]]]] = {
    "frozen": (FREEZE, [(2, FROZEN)], [(2, FROZEN)]),
    "the next abort ends the freeze": (f"{FREEZE}; t puts L; t aborts", [], []),
    "the next commit brings back": (f"{FREEZE}; t puts L; t commits", [(2, DELETED_BACK)], [(2, DELETED_BACK)]),
    "deleting the offset ends the freeze of the new coordinator": (DELETED_WHILE_FROZEN, [(2, FROZEN + AT_RELOAD)], []),
    # Broker 3 has not removed the pending offset yet, and has the COMMIT: there the deleted offset is back.
    "deleted while pending": (DELETED_WHILE_PENDING, [(2, FROZEN + AT_RELOAD), (3, DELETED_BACK + AT_RELOAD)], []),
    "in an open transaction, not judged yet": (f"{WAYS[DELETED_BACK]}; t puts K", [], []),
    "aborted": (f"{WAYS[DELETED_BACK]}; t puts K; t aborts", [(2, DELETED_BACK)], [(2, DELETED_BACK)]),
    "committed": (f"{WAYS[DELETED_BACK]}; t puts K; t commits", [], []),
}


@pytest.mark.parametrize("name", SEQUELS)
def test_what_follows_an_outage_changes_the_consequences(name: str) -> None:
    steps, of_old, of_new = SEQUELS[name]
    assert (wrong(cluster(steps, OLD)), wrong(cluster(steps, NEW))) == (of_old, of_new)


def test_the_old_coordinator_brings_back_what_was_deleted_while_pending_at_each_reload() -> None:
    """No broker is down. The broker that deletes the offset drops the pending one; one that loads the log does not."""
    world = cluster("p puts K; t puts K; p deletes K; t commits", OLD)
    assert world.coordinator.answer("K") == Answer(None)
    assert wrong(world) == [(broker, DELETED_BACK + AT_RELOAD) for broker in (1, 2, 3)]
    take(world, *described("3 leads"))
    assert world.coordinator.answer("K") == Answer(1)
    assert wrong(cluster("p puts K; t puts K; p deletes K; t commits; 1 cleans; 2 cleans; 3 cleans", OLD)) == []
    assert wrong(cluster("p puts K; t puts K; p deletes K; t commits", NEW)) == []


@pytest.mark.parametrize(("truth", "names"), [
    (ModelTruth((Wrote(0, "K", deletes=False),)), [groups.LOST]),
    (ModelTruth((Wrote(0, "K", deletes=False, txn=0),), (Txn(),)), [groups.PENDING_UNSEEN]),
    (ModelTruth((Wrote(0, "K", deletes=False, txn=0),), (Txn(COMMIT, 1),)), [groups.LOST]),
    (ModelTruth((Wrote(0, "K", deletes=False, txn=0),), (Txn(ABORT, 1),)), []),
])  # fmt: skip
def test_what_an_empty_replica_lacks(truth: ModelTruth, names: list[str]) -> None:
    assert list(groups.consequences(Replica(1), truth, drops_pending=True)) == names


def test_a_replica_that_lacks_the_last_commit_repeats() -> None:
    world = cluster("p puts K; 2 leaves; p puts K")
    assert list(groups.consequences(world.replicas[2], world.truth, drops_pending=True)) == [groups.REPEATS]


@pytest.mark.parametrize("step", ["p deletes K", "t deletes K", "t writes -K", "p writes -K"])
def test_only_the_coordinator_deletes_and_only_what_it_has(step: str) -> None:
    deletes = step.startswith("p")
    assert not take(cluster("p puts L; t puts K; t aborts"), *described(step))
    assert take(cluster("p puts K"), *described(step)) == deletes
    assert not take(cluster("p puts K; p deletes K"), *described(step)) or not deletes


@BOTH
def test_a_pending_offset_alone_is_deleted_with_a_record_by_the_new_coordinator_only(coordinator: str) -> None:
    assert take(cluster("t puts K", coordinator), *described("p deletes K")) == (coordinator != OLD)


def test_coordinators_write_every_batch_with_sequence_0() -> None:
    batches = list(cluster("t puts K; t puts L; t commits").replicas[1].batches())
    assert [batch.base_sequence for batch in batches] == [0, 0, -1]


ASSIGNMENT, TARGET_OF_MEMBER = members.ASSIGNMENT, members.TARGET_OF_MEMBER
WITH_MEMBER = {MEMBER, ASSIGNMENT}


def loaded(*keys: str) -> Loaded:
    return members.load((key.removeprefix("-"), key.startswith("-")) for key in keys)


@pytest.mark.parametrize("script", members.SCRIPTS)
def test_what_happens_to_a_group_can_be_loaded_whole(script: str) -> None:
    loaded(*(key for _, keys in members.SCRIPTS[script] for key in keys))


@pytest.mark.parametrize(("keys", "result"), [
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
])  # fmt: skip
def test_what_is_loaded(keys: tuple[str, ...], result: Loaded) -> None:
    assert loaded(*keys) == result


@pytest.mark.parametrize(("written", "present", "names"), [
    ((*JOINS, *LEAVES), JOINS, [members.MEMBER_BACK]),
    ((*JOINS, *LEAVES), (GROUP, TARGET), []),
    ((*JOINS, *LEAVES, *DELETED), JOINS, [members.MEMBER_BACK, members.GROUP_BACK]),
    ((*JOINS, *LEAVES, *DELETED), (*JOINS, *DELETED), [members.NOT_LOADED]),
    ((*JOINS, *LEAVES, *DELETED), (), []),
    ((CLASSIC, f"-{CLASSIC}"), (CLASSIC,), [members.GROUP_BACK]),
    ((CLASSIC, f"-{CLASSIC}", *JOINS), (CLASSIC, *JOINS), [members.NOT_LOADED]),
])  # fmt: skip
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


@pytest.mark.parametrize(("keys", "why"), [
    ((CLASSIC, *JOINS), "the group is not a consumer group"),
    ((CLASSIC, f"-{GROUP}"), "the group is not a consumer group"),
    ((*JOINS, f"-{MEMBER}"), "a member is deleted that has an assignment"),
    ((*JOINS, f"-{ASSIGNMENT}", f"-{MEMBER}"), "a member is deleted that has an assignment"),
    ((*JOINS, f"-{TARGET}"), "a target assignment is deleted that has members"),
    ((*JOINS, f"-{GROUP}"), "a group is deleted that has members"),
    ((MEMBER, GROUP, f"-{GROUP}"), "a group is deleted that has members"),
    ((GROUP, TARGET_OF_MEMBER, f"-{GROUP}"), "a group is deleted that has members"),
    ((GROUP, TARGET, f"-{GROUP}"), "a group is deleted that has members"),
])  # fmt: skip
def test_what_cannot_be_loaded(keys: tuple[str, ...], why: str) -> None:
    with pytest.raises(members.LoadFailedError, match=why):
        loaded(*keys)
