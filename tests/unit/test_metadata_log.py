"""The history of partitions and brokers from metadata records: literal logs, replayed."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from metadata_logs import (
    FOLDER,
    Written,
    change,
    directory_uuid,
    encode_log,
    encode_snapshot,
    encode_value,
    partition,
    read_metadata_log,
    register,
    remove_topic,
    snapshot_name,
    topic,
    topic_id,
    write_metadata_log,
)

from harness.broker_files.internal_topics.message_format import uuid_text
from harness.broker_files.metadata_log.copy import RecordType
from harness.broker_files.metadata_log.history import NO_LEADER, ClusterMetadata, PartitionState
from harness.broker_files.metadata_log.join import read_metadata_logs

T = ("t", 0)
CREATED = [topic("t"), partition("t", 0, (1, 2, 3))]
BEGIN, END, ABORT = (
    Written(of, 0) for of in (RecordType.BEGIN_TRANSACTION, RecordType.END_TRANSACTION, RecordType.ABORT_TRANSACTION)
)


def read(top: Path, *log: Written, **given: Any) -> ClusterMetadata:
    return read_metadata_log(write_metadata_log(top, log, **given))


def states(metadata: ClusterMetadata) -> tuple[PartitionState, ...]:
    return metadata.histories[T].states


def directories(*brokers: int) -> tuple[str, ...]:
    return tuple(uuid_text(directory_uuid(broker)) for broker in brokers)


def test_a_partition_from_its_creation_on(tmp_path: Path) -> None:
    changes = change("t", 0, leader=2, isr=(2, 3)), change("t", 0, isr=(2, 3, 1)), change("t", 0, leader=-1, isr=())
    metadata = read(tmp_path, *CREATED, *changes)
    history = metadata.histories[T]
    assert (history.topic, history.topic_id, history.partition) == ("t", topic_id("t"), 0)
    assert history.since_creation
    assert (metadata.start_offset, metadata.end_offset) == (0, 5)
    assert metadata.topics == {"t"}
    assert metadata.source == tmp_path / FOLDER
    first = PartitionState(1, 1, 0, 0, replicas=(1, 2, 3), isr=(1, 2, 3), directories=directories(1, 2, 3))
    assert history.states == (
        first,
        replace(first, offset=2, leader=2, leader_epoch=1, partition_epoch=1, isr=(2, 3)),
        replace(first, offset=3, leader=2, leader_epoch=1, partition_epoch=2, isr=(2, 3, 1)),
        replace(first, offset=4, leader=NO_LEADER, leader_epoch=2, partition_epoch=3, isr=()),
    )


def test_a_leader_that_is_set_again_raises_the_leader_epoch(tmp_path: Path) -> None:
    """Like a shrink of the ISR before metadata version 3.6, and a reassignment that removes a replica."""
    metadata = read(tmp_path, *CREATED, change("t", 0, leader=1, isr=(1, 2)), change("t", 0, isr=(1,)))
    assert [(state.leader, state.leader_epoch) for state in states(metadata)] == [(1, 0), (1, 1), (1, 1)]


def test_a_reassignment(tmp_path: Path) -> None:
    four, three = ([directory_uuid(broker) for broker in brokers] for brokers in ((4, 1, 2, 3), (4, 1, 2)))
    metadata = read(
        tmp_path, *CREATED,
        change("t", 0, replicas=(4, 1, 2, 3), adding_replicas=(4,), removing_replicas=(3,), directories=four),
        change("t", 0, replicas=(4, 1, 2), isr=(4, 1, 2), adding_replicas=(), removing_replicas=(), leader=1,
               directories=three),
    )  # fmt: skip
    _, during, after = states(metadata)
    assert during.replicas == (4, 1, 2, 3)
    assert (during.isr, during.leader_epoch, during.directories) == ((1, 2, 3), 0, directories(4, 1, 2, 3))
    assert (after.replicas, after.isr) == ((4, 1, 2), (4, 1, 2))
    assert (after.leader, after.leader_epoch, after.directories) == (1, 1, directories(4, 1, 2))


def test_an_unclean_election_until_its_leader_has_recovered(tmp_path: Path) -> None:
    unclean = change("t", 0, leader=3, isr=(3,), leader_recovery_state=1)
    metadata = read(tmp_path, *CREATED, unclean, change("t", 0, isr=(3, 1)), change("t", 0, leader_recovery_state=0))
    assert [state.recovering for state in states(metadata)] == [False, True, True, False]


def test_directories_that_are_not_known(tmp_path: Path) -> None:
    """Before KIP-858 there are none, and while a cluster is being upgraded all are `MIGRATING`."""
    migrating = partition("t", 1, (1, 2), directories=[None, None])
    metadata = read(tmp_path, topic("t"), Written(RecordType.PARTITION, 0, partition("t", 0, (1, 2)).fields), migrating)
    assert [history.states[0].directories for history in metadata.histories.values()] == [(), ()]


def test_a_topic_that_was_created_again_is_another_topic(tmp_path: Path) -> None:
    removed = [*CREATED, partition("t", 1, (1, 2)), remove_topic("t")]
    before = read(tmp_path / "before", *removed)
    assert (before.topics, len(states(before))) == (frozenset(), 1), "a deleted topic keeps its history"
    metadata = read(tmp_path, *removed, topic("t", 1), partition("t", 0, (2, 1), 1), change("t", 0, leader=3))
    history = metadata.histories[T]
    assert list(metadata.histories) == [T]
    assert (history.topic_id, history.since_creation) == (topic_id("t", 1), True)
    assert metadata.topics == {"t"}
    assert [(state.offset, state.leader) for state in history.states] == [(5, 2)]


def test_only_the_topics_that_are_asked_for(tmp_path: Path) -> None:
    folder = write_metadata_log(tmp_path, [*CREATED, topic("u"), partition("u", 0, (1,)), change("u", 0, leader=1)])
    metadata = read_metadata_log(folder, {"u"})
    assert list(metadata.histories) == [("u", 0)]
    assert metadata.topics == {"t", "u"}


@pytest.mark.parametrize(
    ("log", "offsets"),
    [
        ([BEGIN, *CREATED, END, change("t", 0, leader=2)], [2, 4]),
        ([*CREATED, BEGIN, change("t", 0, leader=2), ABORT, change("t", 0, leader=3)], [1, 5]),
        ([*CREATED, BEGIN, change("t", 0, leader=2)], [1]),
        ([*CREATED, BEGIN, change("t", 0, leader=2), ABORT, BEGIN, change("t", 0, leader=3), END], [1, 6]),
    ],
    ids=["ended", "aborted", "open", "aborted, then ended"],
)
def test_transactions_of_the_log(tmp_path: Path, log: Sequence[Written], offsets: list[int]) -> None:
    found = states(read(tmp_path, *log))
    assert [state.offset for state in found] == offsets
    assert all(before.leader_epoch + 1 == after.leader_epoch for before, after in pairwise(found))


def test_processes_of_brokers_register_once(tmp_path: Path) -> None:
    again = register(2, 1, in_controlled_shutdown=True)
    metadata = read(tmp_path, register(1, 0), register(2, 1), again, register(2, 3))
    assert metadata.registrations == {1: (0,), 2: (1, 3)}


def test_other_types_are_skipped(tmp_path: Path) -> None:
    folder = write_metadata_log(tmp_path, CREATED)
    a_feature_level_of_4_4 = bytes.fromhex("010c00116d657461646174612e76657273696f6e002100")
    others = (b"\1\x14\0\0", b"\1\x7f\x09whatever", b"\1\x81\x02\0\0", a_feature_level_of_4_4)
    with (folder / f"{0:020}.log").open("ab") as file:
        file.writelines(encode_value(value, offset) for offset, value in enumerate(others, 2))
    metadata = read_metadata_log(folder)
    assert (metadata.end_offset, len(states(metadata))) == (6, 1)


def test_the_history_begins_with_the_oldest_snapshot_that_the_log_continues(tmp_path: Path) -> None:
    state = [register(1, 3), topic("t"), partition("t", 0, (1, 2), leader_epoch=4, partition_epoch=9)]
    snapshots = {70: [topic("other")], 100: state, 102: []}
    metadata = read(tmp_path, change("t", 0, leader=2), change("t", 0, isr=(2,)), first_offset=100, snapshots=snapshots)
    assert (metadata.start_offset, metadata.end_offset) == (100, 102)
    assert metadata.registrations == {1: (3,)}
    assert metadata.topics == {"t"}
    assert not metadata.histories[T].since_creation
    assert [(s.offset, s.leader, s.leader_epoch, s.partition_epoch) for s in states(metadata)] == [
        (99, 1, 4, 9), (100, 2, 5, 10), (101, 2, 5, 11),
    ]  # fmt: skip


def test_records_before_the_snapshot_are_not_replayed_twice(tmp_path: Path) -> None:
    log = [change("t", 0, leader=3), change("t", 0, leader=1)]
    metadata = read(tmp_path, *log, first_offset=10, snapshots={11: [topic("t"), partition("t", 0, (3, 1))]})
    assert [(state.offset, state.leader) for state in states(metadata)] == [(10, 3), (11, 1)]


def test_a_snapshot_alone_and_with_a_log_begins_a_history(tmp_path: Path) -> None:
    alone = read(tmp_path / "alone", first_offset=30, snapshots={30: CREATED})
    assert (alone.start_offset, alone.end_offset, states(alone)[0].offset) == (30, 30, 29)
    continued = read(tmp_path, change("t", 0, leader=2), first_offset=10, snapshots={10: CREATED})
    assert continued.histories[T].since_creation, "it never changed before the snapshot"


def test_a_whole_log_needs_no_snapshot(tmp_path: Path) -> None:
    folder = write_metadata_log(tmp_path, CREATED)
    (folder / snapshot_name(0, 0)).write_bytes(b"damaged")
    assert states(read_metadata_log(folder))[0].offset == 1


def test_without_a_snapshot_only_what_was_created_since_is_known(tmp_path: Path) -> None:
    log = [change("u", 0, leader=2), *CREATED, change("t", 0, leader=2)]
    metadata = read(tmp_path, *log, first_offset=7)
    assert (list(metadata.histories), metadata.start_offset) == ([T], 7)
    assert [state.offset for state in states(metadata)] == [9, 10]


def test_the_last_batch_may_be_cut(tmp_path: Path) -> None:
    folder = write_metadata_log(tmp_path, [*CREATED, change("t", 0, leader=2)])
    path = folder / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-1])
    assert read_metadata_log(folder).end_offset == 2


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (encode_log([change("t", 0, leader=2)], first_offset=3), "offset 3 follows offset 1: a segment is missing"),
        (encode_log([change("t", 0, leader=2)], first_offset=2).replace(b"\4\0\0\0\2", b"\4\0\0\0\3"), "CRC"),
        (encode_value(b"\1\5\3" + bytes(30), 2), "PartitionChangeRecord of version 3"),
        (encode_value(b"\1\2\0\2", 2), "malformed TopicRecord"),
        (encode_value(None, 2), "malformed frame"),
        (encode_log([change("t", 0, leader=2)], first_offset=2), "cut"),
    ],
)
def test_damage_is_reported(tmp_path: Path, second: bytes, reason: str) -> None:
    folder = write_metadata_log(tmp_path, CREATED)
    (folder / f"{2:020}.log").write_bytes(second)
    first = folder / f"{0:020}.log"
    if reason == "cut":
        first.write_bytes(first.read_bytes()[:-1])
    joined = read_metadata_logs({1: folder})
    assert joined.metadata is None
    assert reason in joined.notes[-1]


@pytest.mark.parametrize("damaged", [encode_snapshot(CREATED, footer=False), encode_snapshot(CREATED)[:-1], b""])
def test_a_damaged_snapshot_is_left_out(tmp_path: Path, damaged: bytes) -> None:
    folder = write_metadata_log(tmp_path, [change("t", 0, leader=2), change("t", 0, leader=3)], first_offset=10)
    (folder / snapshot_name(10)).write_bytes(damaged)
    (folder / snapshot_name(11)).write_bytes(encode_snapshot(CREATED))
    metadata = read_metadata_log(folder)
    assert (metadata.start_offset, [state.offset for state in states(metadata)]) == (11, [10, 11])
