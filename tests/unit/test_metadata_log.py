"""Metadata records against values written by Kafka 3.9.2 and 4.4.0, and the history that they give to partitions."""

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import metadata_logs as logs
import pytest
from metadata_logs import Written, change, frame, partition, read_metadata_log, register, topic, write_metadata_log

from harness.broker_files.internal_topics.message_format import uuid_text
from harness.broker_files.metadata_log.copy import FRAME_VERSION, SCHEMAS, RecordType, decode_record
from harness.broker_files.metadata_log.history import NO_LEADER, ClusterMetadata, PartitionState
from harness.broker_files.metadata_log.join import read_metadata_logs

T = ("t", 0)
CREATED = [topic("t"), partition("t", 0, (1, 2, 3))]
BEGIN, END, ABORT = (Written(RecordType[f"{name}_TRANSACTION"], 0) for name in ("BEGIN", "END", "ABORT"))


def read(top: Path, *log: Written, **given: Any) -> ClusterMetadata:
    return read_metadata_log(write_metadata_log(top, log, **given))


def states(metadata: ClusterMetadata) -> tuple[PartitionState, ...]:
    return metadata.histories[T].states


def directories(*brokers: int) -> tuple[str, ...]:
    return tuple(uuid_text(logs.directory_uuid(broker)) for broker in brokers)


def test_a_partition_from_its_creation_on(tmp_path: Path) -> None:
    changes = change("t", 0, leader=2, isr=(2, 3)), change("t", 0, isr=(2, 3, 1)), change("t", 0, leader=-1, isr=())
    metadata = read(tmp_path, *CREATED, *changes)
    history = metadata.histories[T]
    assert history.topic_id == logs.topic_id("t")
    assert history.since_creation
    assert (metadata.start_offset, metadata.end_offset) == (0, 5)
    assert (metadata.topics, metadata.source) == (frozenset("t"), tmp_path / logs.FOLDER)
    first = PartitionState(1, 1, 0, 0, replicas=(1, 2, 3), isr=(1, 2, 3), directories=directories(1, 2, 3))
    assert history.states == (
        first,
        replace(first, offset=2, leader=2, leader_epoch=1, partition_epoch=1, isr=(2, 3)),
        replace(first, offset=3, leader=2, leader_epoch=1, partition_epoch=2, isr=(2, 3, 1)),
        replace(first, offset=4, leader=NO_LEADER, leader_epoch=2, partition_epoch=3, isr=()),
    )


def test_a_leader_that_is_set_again_raises_the_leader_epoch_and_an_unclean_one_recovers(tmp_path: Path) -> None:
    """Like a shrink of the ISR before metadata version 3.6, and a reassignment that removes a replica."""
    metadata = read(tmp_path, *CREATED, change("t", 0, leader=1, isr=(1, 2)), change("t", 0, isr=(1,)))
    assert [(state.leader, state.leader_epoch) for state in states(metadata)] == [(1, 0), (1, 1), (1, 1)]
    unclean = change("t", 0, leader=3, isr=(3,), leader_recovery_state=1)
    metadata = read(tmp_path, *CREATED, unclean, change("t", 0, isr=(3, 1)), change("t", 0, leader_recovery_state=0))
    assert [state.recovering for state in states(metadata)] == [False, True, True, False]


def test_a_reassignment(tmp_path: Path) -> None:
    four, three = ([logs.directory_uuid(broker) for broker in brokers] for brokers in ((4, 1, 2, 3), (4, 1, 2)))
    metadata = read(
        tmp_path, *CREATED,
        change("t", 0, replicas=(4, 1, 2, 3), adding_replicas=(4,), removing_replicas=(3,), directories=four),
        change("t", 0, replicas=(4, 1, 2), isr=(4, 1, 2), adding_replicas=(), removing_replicas=(), leader=1,
               directories=three),
    )  # fmt: skip
    _, during, after = states(metadata)
    assert (during.replicas, during.isr, during.leader_epoch) == ((4, 1, 2, 3), (1, 2, 3), 0)
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((4, 1, 2), (4, 1, 2), 1, 1)
    assert (during.directories, after.directories) == (directories(4, 1, 2, 3), directories(4, 1, 2))


def test_directories_that_are_not_known(tmp_path: Path) -> None:
    """Before KIP-858 there are none, and while a cluster is being upgraded all are `MIGRATING`."""
    migrating = partition("t", 1, (1, 2), directories=[None, None])
    metadata = read(tmp_path, topic("t"), Written(RecordType.PARTITION, 0, partition("t", 0, (1, 2)).fields), migrating)
    assert [history.states[0].directories for history in metadata.histories.values()] == [(), ()]


def test_a_topic_that_was_created_again_is_another_topic(tmp_path: Path) -> None:
    removed = [*CREATED, partition("t", 1, (1, 2)), logs.remove_topic("t")]
    before = read(tmp_path / "before", *removed)
    assert (before.topics, len(states(before))) == (frozenset(), 1), "a deleted topic keeps its history"
    metadata = read(tmp_path, *removed, topic("t", 1), partition("t", 0, (2, 1), 1), change("t", 0, leader=3))
    history = metadata.histories[T]
    assert (list(metadata.histories), metadata.topics) == ([T], frozenset("t"))
    assert (history.topic_id, history.since_creation) == (logs.topic_id("t", 1), True)
    assert [(state.offset, state.leader) for state in history.states] == [(5, 2)]


def test_only_the_topics_that_are_asked_for(tmp_path: Path) -> None:
    folder = write_metadata_log(tmp_path, [*CREATED, topic("u"), partition("u", 0, (1,)), change("u", 0, leader=1)])
    metadata = read_metadata_log(folder, {"u"})
    assert (list(metadata.histories), metadata.topics) == ([("u", 0)], frozenset("tu"))


@pytest.mark.parametrize(("log", "offsets"), [
    ([BEGIN, *CREATED, END, change("t", 0, leader=2)], [2, 4]),
    ([*CREATED, BEGIN, change("t", 0, leader=2), ABORT, change("t", 0, leader=3)], [1, 5]),
    ([*CREATED, BEGIN, change("t", 0, leader=2)], [1]),
    ([*CREATED, BEGIN, change("t", 0, leader=2), ABORT, BEGIN, change("t", 0, leader=3), END], [1, 6]),
], ids=["ended", "aborted", "open", "aborted, then ended"])  # fmt: skip
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
        file.writelines(logs.encode_value(value, offset) for offset, value in enumerate(others, 2))
    metadata = read_metadata_log(folder)
    assert (metadata.end_offset, len(states(metadata))) == (6, 1)


def test_the_history_begins_with_the_oldest_snapshot_that_the_log_continues(tmp_path: Path) -> None:
    state = [register(1, 3), topic("t"), partition("t", 0, (1, 2), leader_epoch=4, partition_epoch=9)]
    snapshots = {70: [topic("other")], 100: state, 102: []}
    metadata = read(tmp_path, change("t", 0, leader=2), change("t", 0, isr=(2,)), first_offset=100, snapshots=snapshots)
    assert (metadata.start_offset, metadata.end_offset) == (100, 102)
    assert (dict(metadata.registrations), metadata.topics) == ({1: (3,)}, frozenset("t"))
    assert not metadata.histories[T].since_creation
    shown = [(s.offset, s.leader, s.leader_epoch, s.partition_epoch) for s in states(metadata)]
    assert shown == [(99, 1, 4, 9), (100, 2, 5, 10), (101, 2, 5, 11)]


def test_a_snapshot_is_replayed_only_where_the_log_needs_it(tmp_path: Path) -> None:
    log = [change("t", 0, leader=3), change("t", 0, leader=1)]
    metadata = read(tmp_path, *log, first_offset=10, snapshots={11: [topic("t"), partition("t", 0, (3, 1))]})
    assert [(state.offset, state.leader) for state in states(metadata)] == [(10, 3), (11, 1)]
    folder = write_metadata_log(tmp_path / "whole", CREATED)
    (folder / logs.snapshot_name(0, 0)).write_bytes(b"damaged")
    assert states(read_metadata_log(folder))[0].offset == 1


def test_a_snapshot_alone_and_with_a_log_begins_a_history_and_without_one_creations_do(tmp_path: Path) -> None:
    alone = read(tmp_path / "alone", first_offset=30, snapshots={30: CREATED})
    assert (alone.start_offset, alone.end_offset, states(alone)[0].offset) == (30, 30, 29)
    continued = read(tmp_path, change("t", 0, leader=2), first_offset=10, snapshots={10: CREATED})
    assert continued.histories[T].since_creation, "it never changed before the snapshot"
    log = [change("u", 0, leader=2), *CREATED, change("t", 0, leader=2)]
    metadata = read(tmp_path / "without", *log, first_offset=7)
    assert (list(metadata.histories), metadata.start_offset) == ([T], 7)
    assert [state.offset for state in states(metadata)] == [9, 10]


def test_the_last_batch_may_be_cut(tmp_path: Path) -> None:
    folder = write_metadata_log(tmp_path, [*CREATED, change("t", 0, leader=2)])
    os.truncate(folder / f"{0:020}.log", (folder / f"{0:020}.log").stat().st_size - 1)
    assert read_metadata_log(folder).end_offset == 2


@pytest.mark.parametrize(("second", "reason"), [
    (logs.encode_log([change("t", 0, leader=2)], first_offset=3), "offset 3 follows offset 1: a segment is missing"),
    (logs.encode_log([change("t", 0, leader=2)], first_offset=2).replace(b"\4\0\0\0\2", b"\4\0\0\0\3"), "CRC"),
    (logs.encode_value(b"\1\5\3" + bytes(30), 2), "PartitionChangeRecord of version 3"),
    (logs.encode_value(b"\1\2\0\2", 2), "malformed TopicRecord"),
    (logs.encode_value(None, 2), "malformed frame"),
    (logs.encode_log([change("t", 0, leader=2)], first_offset=2), "cut"),
])  # fmt: skip
def test_damage_is_reported(tmp_path: Path, second: bytes, reason: str) -> None:
    folder = write_metadata_log(tmp_path, CREATED)
    (folder / f"{2:020}.log").write_bytes(second)
    if reason == "cut":
        os.truncate(folder / f"{0:020}.log", (folder / f"{0:020}.log").stat().st_size - 1)
    joined = read_metadata_logs({1: folder})
    assert joined.metadata is None
    assert reason in joined.notes[-1]


@pytest.mark.parametrize(
    "damaged", [logs.encode_snapshot(CREATED, footer=False), logs.encode_snapshot(CREATED)[:-1], b""]
)
def test_a_damaged_snapshot_is_left_out(tmp_path: Path, damaged: bytes) -> None:
    folder = write_metadata_log(tmp_path, [change("t", 0, leader=2), change("t", 0, leader=3)], first_offset=10)
    (folder / logs.snapshot_name(10)).write_bytes(damaged)
    (folder / logs.snapshot_name(11)).write_bytes(logs.encode_snapshot(CREATED))
    metadata = read_metadata_log(folder)
    assert (metadata.start_offset, [state.offset for state in states(metadata)]) == (11, [10, 11])


# Copied from the metadata logs of running brokers.
TOPIC_3_9 = "010200027493453a9babc24aaba35e55b3c79cd37700"
PARTITION_3_9 = (
    "0103010000000093453a9babc24aaba35e55b3c79cd3770400000001000000020000000304000000010000000200000003010100000001"
    "000000000000000004b7f9fb6fa3ad56a6ae79a7036a3cddd0e9a444699f1b579867cc8b4e727993bd7e2038fb8e5c32ab57d63eb36a677333"
    "00"
)
REASSIGNED_3_9 = (
    "0105010000000093453a9babc24aaba35e55b3c79cd37702020d040000000300000002000000010831047e2038fb8e5c32ab57d63eb36a6773"
    "33e9a444699f1b579867cc8b4e727993bdb7f9fb6fa3ad56a6ae79a7036a3cddd0"
)
ELECTED_4_4 = "01050200000000eb1285b9f4804c979aff2010c4e5e96701010400000003"
SHRUNK_3_9 = "0105010000000093453a9babc24aaba35e55b3c79cd377020009030000000100000002010400000002"
REGISTERED_4_4 = (
    "0100040000000200052ef5f57ca2445d869130d733cc70d5000000000000000e0207434c49454e540a3132372e302e302e3156e10000000821"
    "656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e0000000100147472616e73616374696f6e2e76657273696f6e"
    "00000002001073747265616d732e76657273696f6e00000001000e67726f75702e76657273696f6e00000001000e6b726166742e7665727369"
    "6f6e00000001000e73686172652e76657273696f6e0000000200116d657461646174612e76657273696f6e00070021000001000100110226d2"
    "8abda8fbca5823b3d803078aeaa9"
)
BEGIN_4_4 = "01170001001212426f6f747374726170207265636f726473"
END_4_4 = "01180000"


CHANGED = RecordType.PARTITION_CHANGE
T_0 = {"partition_id": 0, "topic_id": "k0U6m6vCSqujXlWzx5zTdw"}
AS_CREATED = {"removing_replicas": [], "adding_replicas": [], "leader_epoch": 0, "partition_epoch": 0}
DIRECTORIES = ["t_n7b6OtVqaueacDajzd0A", "6aREaZ8bV5hnzItOcnmTvQ", "fiA4-45cMqtX1j6zamdzMw"]
CREATED_3_9 = {**T_0, **AS_CREATED, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "directories": DIRECTORIES}


@pytest.mark.parametrize(("text", "type_", "version", "fields"), [
    (TOPIC_3_9, RecordType.TOPIC, 0, {"name": "t", "topic_id": "k0U6m6vCSqujXlWzx5zTdw"}),
    (PARTITION_3_9, RecordType.PARTITION, 1, CREATED_3_9),
    (REASSIGNED_3_9, CHANGED, 1, {**T_0, "replicas": [3, 2, 1], "directories": DIRECTORIES[::-1]}),
    (ELECTED_4_4, CHANGED, 2, {"partition_id": 0, "topic_id": "6xKFufSATJea_yAQxOXpZw", "leader": 3}),
    (SHRUNK_3_9, CHANGED, 1, {**T_0, "isr": [1, 2], "leader": 2}),
    (BEGIN_4_4, RecordType.BEGIN_TRANSACTION, 0, {}),
    (END_4_4, RecordType.END_TRANSACTION, 0, {}),
])  # fmt: skip
def test_records_of_kafka(text: str, type_: RecordType, version: int, fields: dict[str, Any]) -> None:
    assert decode_record(bytes.fromhex(text)) == (type_, version, fields)


def test_brokers_of_kafka() -> None:
    type_, version, broker = decode_record(bytes.fromhex(REGISTERED_4_4))
    assert (type_, version) == (RecordType.REGISTER_BROKER, 4)
    assert (broker["broker_id"], broker["broker_epoch"], broker["fenced"]) == (2, 14, True)
    assert (broker["incarnation_id"], broker["log_dirs"]) == ("BS719XyiRF2GkTDXM8xw1Q", ["JtKKvaj7ylgjs9gDB4rqqQ"])


def test_the_encoder_writes_what_kafka_writes() -> None:
    *_, fields = decode_record(frame(partition("t", 7, (3, 1), leader_recovery_state=1, leader=-1)))
    assert fields == {
        **AS_CREATED, "partition_id": 7, "topic_id": logs.topic_id("t"), "replicas": [3, 1], "isr": [3, 1],
        "leader": -1, "leader_recovery_state": 1, "directories": [*directories(3, 1)],
    }  # fmt: skip
    assert frame(Written(RecordType.END_TRANSACTION, 0)) == bytes.fromhex(END_4_4)


NEWEST = {of: schema.newest_version for of, schema in SCHEMAS.items()}


@pytest.mark.parametrize(("value", "reason"), [
    (b"", "malformed frame"),
    (b"\1\2", "malformed frame"),
    (b"\0\2\0", "frame version 0"),
    (b"\2\2\0", "frame version 2"),
    (bytes.fromhex(TOPIC_3_9)[:-1], "malformed TopicRecord"),
    (bytes.fromhex(TOPIC_3_9) + b"\0", "1 bytes follow"),
    (bytes.fromhex(PARTITION_3_9).replace(b"\4\0\0\0\1", b"\0\0\0\0\1", 1), "malformed PartitionRecord"),
    *((bytes([FRAME_VERSION, of, newest + 1, 0]),
       f"{SCHEMAS[of].name} of version {newest + 1}: only versions up to {newest}") for of, newest in NEWEST.items()),
])  # fmt: skip
def test_malformed_records_and_newer_versions_are_refused(value: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_record(value)


def test_whatever_the_bytes_are_they_are_read_or_refused() -> None:
    chance = random.Random(1)  # noqa: S311
    written = [topic("t"), logs.remove_topic("t"), partition("t", 0, (1, 2)), change("t", 0, isr=(1,)), register(1, 5)]
    refused = 0
    for value in (frame(one) for one in written):
        for _ in range(300):
            broken = bytearray(value)
            broken[chance.randrange(3, len(broken))] = chance.randrange(256)
            try:
                decode_record(bytes(broken))
            except ValueError:
                refused += 1
    assert refused
