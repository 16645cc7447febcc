"""Several brokers' copies of a metadata log, and the copies that an audit finds next to the replicas."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import metadata_logs
import pytest
from copied import copy, write_copies
from literal import led, put
from metadata_logs import FOLDER, Written, change, topic_id, write_metadata_log

from harness.broker_files.copies.copies import LEADER_EPOCHS, Copies, find_copies
from harness.broker_files.metadata_log.join import JoinedLog, read_metadata_logs
from harness.errors import UsageError

T = ("t", 0)
CREATED = [metadata_logs.topic("t"), metadata_logs.partition("t", 0, (1, 2, 3))]
TO_2, TO_3 = change("t", 0, leader=2), change("t", 0, leader=3)
LOG = [*CREATED, TO_2, TO_3]


def leaders(joined: JoinedLog) -> list[int]:
    assert joined.metadata is not None
    return [state.leader for state in joined.metadata.histories[T].states]


def write(top: Path, logs: Mapping[int, Sequence[Written]], **given: Mapping[int, int]) -> dict[int, Path]:
    """Write each broker's log; ``given``: the controller's epochs from offsets on, as ``epochs_<broker>``."""
    return {
        broker: write_metadata_log(top / str(broker), log, epochs=given.get(f"epochs_{broker}"))
        for broker, log in logs.items()
    }


@pytest.mark.parametrize("logs", [{1: LOG, 2: CREATED, 3: LOG}, {7: LOG}], ids=["copies that agree", "one copy"])
def test_logs_without_a_note(tmp_path: Path, logs: dict[int, list[Written]]) -> None:
    joined = read_metadata_logs(write(tmp_path, logs))
    assert (leaders(joined), joined.notes) == ([1, 2, 3], ())


def test_what_one_copy_has_alone_is_kept_with_a_note(tmp_path: Path) -> None:
    folders = write(tmp_path, {1: CREATED, 2: LOG, 3: LOG[:3]})
    joined = read_metadata_logs(folders)
    assert leaders(joined) == [1, 2, 3]
    assert joined.metadata is not None
    assert joined.metadata.source == folders[2]
    text = "changes of partitions from metadata offset 3 on are in the metadata log of broker 2 alone"
    assert joined.notes == (f"{text}: they may not be committed",)


def test_what_a_deposed_controller_wrote_is_left_out(tmp_path: Path) -> None:
    """The copy of broker 1 is longer, but its last record is of epoch 1, where the others have one of epoch 2."""
    logs = {1: [*CREATED, TO_3, TO_2, TO_2], 2: [*CREATED, TO_2, TO_3], 3: [*CREATED, TO_2]}
    joined = read_metadata_logs(write(tmp_path, logs, epochs_2={2: 2}, epochs_3={2: 2}))
    assert leaders(joined) == [1, 2, 3]
    assert joined.notes[0] == (
        "broker 1: a deposed controller wrote its metadata log from offset 2 on (epoch 1, not 2), which is left out"
    )


def test_copies_that_contradict_each_other_and_a_copy_that_is_not_there(tmp_path: Path) -> None:
    joined = read_metadata_logs(write(tmp_path, {1: [*CREATED, TO_3, TO_2], 2: [*CREATED, TO_2]}))
    assert joined.metadata is None
    text = "the metadata logs of brokers 1 and 2 contradict each other at offset 2, and none is used"
    assert joined.notes == (f"{text}: give copies of one cluster",)
    joined = read_metadata_logs({1: tmp_path / "none", **write(tmp_path, {2: LOG})})
    assert leaders(joined) == [1, 2, 3]
    assert "broker 1: its metadata log cannot be read" in joined.notes[0]
    assert read_metadata_logs({1: tmp_path / "none"}).metadata is None
    assert read_metadata_logs({}) == JoinedLog(None, ())


def test_the_log_begins_as_the_copy_that_reaches_back_furthest(tmp_path: Path) -> None:
    folders = write(tmp_path, {1: LOG[:3]})
    folders[2] = write_metadata_log(tmp_path / "2", LOG[2:], first_offset=2, snapshots={2: CREATED})
    joined = read_metadata_logs(folders)
    assert joined.metadata is not None
    assert (joined.metadata.start_offset, joined.metadata.end_offset) == (0, 4)
    assert [state.offset for state in joined.metadata.histories[T].states] == [1, 2, 3]
    later = write_metadata_log(tmp_path / "4", LOG[3:], first_offset=3, snapshots={3: CREATED})
    apart = read_metadata_logs({1: folders[1], 4: later})
    assert apart.metadata is not None
    assert apart.metadata.start_offset == 3
    assert apart.notes == ("broker 1: its metadata log ends before the log of broker 4 begins, and is left out",)


def test_snapshots_of_every_copy_serve(tmp_path: Path) -> None:
    folders = {
        broker: write_metadata_log(tmp_path / str(broker), LOG[2:], first_offset=2, snapshots={end: CREATED})
        for broker, end in ((1, 4), (2, 2))
    }
    assert leaders(read_metadata_logs(folders)) == [1, 2, 3]


def test_a_log_without_a_beginning_is_noted(tmp_path: Path) -> None:
    folder = write_metadata_log(tmp_path, LOG[2:], first_offset=2)
    (folder / metadata_logs.snapshot_name(2)).write_bytes(metadata_logs.encode_snapshot(CREATED, footer=False))
    joined = read_metadata_logs({1: folder})
    assert joined.metadata is not None
    assert joined.metadata.histories == {}
    damaged, missing = joined.notes
    assert "a snapshot of the metadata log cannot be read, and is left out: " in damaged
    text = "the metadata log begins at offset 2, and no snapshot has the state there"
    assert missing == f"{text}: older partitions are left out"


def make(top: Path, generations: Mapping[int, int | None]) -> dict[int, list[Path]]:
    """Make a log directory with `t-0` and a metadata log for each broker; ``generations``: of the topic there."""
    for broker, generation in generations.items():
        folder = top / str(broker) / "t-0"
        folder.mkdir(parents=True)
        for name in (f"{0:020}.log", LEADER_EPOCHS):
            (folder / name).write_bytes(b"")
        if generation is not None:
            metadata_logs.write_topic_id(folder, "t", generation)
        write_metadata_log(top / str(broker), LOG)
    return {broker: [top / str(broker)] for broker in generations}


def of_metadata(found: Copies) -> list[str]:
    """Return the notes, without notes about identities, which these folders do not have."""
    return [note for note in found.notes if "its identity could not be checked" not in note]


def test_an_audit_finds_the_metadata_log_and_says_if_it_cannot_be_read(tmp_path: Path) -> None:
    folders = make(tmp_path, {1: 0, 2: 0})
    found = find_copies(folders, ["*", "__*"], "run")
    assert found.metadata is not None
    assert (found.metadata.histories[T].topic_id, of_metadata(found)) == (topic_id("t"), [])
    assert [(copy.broker, copy.topic) for copy in found.replicas] == [(1, "t"), (2, "t")]
    for (folder,) in folders.values():
        (folder / FOLDER / f"{4:020}.log").write_bytes(metadata_logs.encode_log([TO_2], first_offset=6))
    damaged = find_copies(folders, ["t"], "run")
    assert damaged.metadata is None
    assert "broker 1: its metadata log cannot be read" in of_metadata(damaged)[0]


def test_a_folder_of_its_own_for_the_metadata_log(tmp_path: Path) -> None:
    folders = make(tmp_path, {1: 0, 2: 0})
    for broker in folders:
        (tmp_path / str(broker) / FOLDER).rename(tmp_path / f"{broker}-{FOLDER}")
    assert find_copies(folders, ["t"], "run").metadata is None
    (tmp_path / "metadata").mkdir()
    (tmp_path / f"1-{FOLDER}").rename(tmp_path / "metadata" / FOLDER)
    assert find_copies({**folders, 1: [*folders[1], tmp_path / "metadata"]}, ["t"], "run").metadata is not None
    itself = {**folders, 1: [*folders[1], tmp_path / "metadata" / FOLDER]}
    assert find_copies(itself, ["t"], "run").metadata is not None
    with pytest.raises(UsageError, match="broker 3 has no replica of t in"):
        find_copies({**folders, 3: [tmp_path / "metadata"]}, ["t"], "run")


@pytest.mark.parametrize(("generation", "has"), [(1, f"is of topic id {topic_id('t', 1)}"), (None, "has no topic id")])
def test_a_partition_of_another_topic_id_has_no_history(tmp_path: Path, generation: int | None, has: str) -> None:
    found = find_copies(make(tmp_path, {1: generation, 2: generation}), ["t"], "run")
    assert found.metadata is not None
    assert found.metadata.histories == {}
    assert found.metadata.topics == {"t"}
    assert of_metadata(found) == [
        f"t-0 of broker 2 {has}, the metadata log has topic id {topic_id('t')}: the history of t is left out"
    ]


def test_a_metadata_log_that_is_older_than_the_replicas_has_no_history(tmp_path: Path) -> None:
    log, epochs = led(1, put(9, "end")), {0: 0, 1: 7}
    folders = write_copies(tmp_path, copy(1, *log, epochs=epochs), copy(2, *log, epochs=epochs))
    for broker in (1, 2):
        metadata_logs.write_topic_id(tmp_path / str(broker) / "t-0", "t")
    for last_epoch, has_history in ((1, True), (0, False)):
        write_metadata_log(tmp_path / "2", [*CREATED, TO_2][: 2 + last_epoch])
        found = find_copies(folders, ["t"], "run")
        assert found.metadata is not None
        assert bool(found.metadata.histories) is has_history
        assert any("the metadata log ends in epoch 0" in note for note in found.notes) is not has_history
