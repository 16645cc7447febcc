"""Which replicas of which topics copied folders hold: literal directories, empty segments."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from copied import segment_name
from metadata_logs import config, remove_topic, topic, write_metadata_log

from harness.audit.judge_copies import shell_of
from harness.broker_files.copies.copies import LEADER_EPOCHS, NO_EPOCHS, Copies, find_copies
from harness.broker_files.copies.identity import META_PROPERTIES, PARTITION_METADATA
from harness.errors import UsageError

TOPICS = ("own", "policy", "delete", "cleaned", "plain", "__consumer_offsets")


def test_without_a_topic_what_is_known_to_be_compacted_is_compared(tmp_path: Path) -> None:
    folder = make(tmp_path / "1", *(f"{name}-0" for name in TOPICS))
    (folder / "cleaner-offset-checkpoint").write_text("0\n2\ncleaned 0 5\ndelete 0 5\n")
    assert sorted({copy.topic for copy in find({1: [folder]}).replicas}) == ["__consumer_offsets", "cleaned", "delete"]
    log = [
        topic("policy"), topic("plain"), config("policy", "compact,delete"), config("delete", "delete"),
        config("plain", "compact"), config("plain", None),
        config("own", "compact", kind=4), config("own", "compact", "segment.ms"),
    ]  # fmt: skip
    write_metadata_log(folder, log)
    copies = find({1: [folder]})
    assert sorted({copy.topic for copy in copies.replicas}) == ["__consumer_offsets", "cleaned", "policy"]
    assert copies.notes[-1] == (
        "every compacted topic is audited, by the metadata log and the checkpoints of the brokers' cleaners: "
        "__consumer_offsets, cleaned, policy; 3 more topics are not compacted"
    )
    own = {"policy": {"cleanup.policy": "compact,delete"}, "plain": {}}
    assert shell_of(copies).own_settings == own, "commands restore what the metadata log has"


def test_the_policy_of_a_deleted_topic_goes_with_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "1", "policy-0", "other-0")
    settings = [config("policy", "compact"), config("other", "compact")]
    write_metadata_log(folder, [topic("policy"), *settings, remove_topic("policy")])
    assert {copy.topic for copy in find({1: [folder]}).replicas} == {"other"}


def test_internal_topics_that_a_pattern_leaves_out_are_said(tmp_path: Path) -> None:
    folder = make(tmp_path / "1", "plain-0", "__consumer_offsets-0", "__cluster_metadata-0")
    assert "internal topics are left out: __consumer_offsets; " in find({1: [folder]}, "*").notes[-1]
    assert not any("internal" in note for note in find({1: [folder]}, "*", "__*").notes)
    assert not any("internal" in note for note in find({1: [folder]}, "p*").notes)


def make(log_dir: Path, *folders: str, files: Sequence[str] = (segment_name(0),)) -> Path:
    """Make partition folders with empty files and their topic's id, and return their log directory."""
    log_dir.mkdir(exist_ok=True)
    for folder in folders:
        (log_dir / folder).mkdir()
        for file in (*files, LEADER_EPOCHS):
            (log_dir / folder / file).write_bytes(b"")
        (log_dir / folder / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {folder.rpartition('-')[0]}\n")
    return log_dir


def find(brokers: Mapping[int, Sequence[Path]], *topics: str) -> Copies:
    """Find copies in folders whose log directories name their brokers."""
    for broker, folders in brokers.items():
        for folder in folders:
            log_dir = folder.absolute().parent if (folder / segment_name(0)).exists() else folder
            if log_dir.is_dir():
                (log_dir / META_PROPERTIES).write_text(f"version=1\nnode.id={broker}\ncluster.id=one\n")
    return find_copies(brokers, topics, "run")


def places(found: Copies) -> list[tuple[int, str, int]]:
    return [(copy.broker, copy.topic, copy.partition) for copy in found.replicas]


def test_replicas_of_a_log_directory(tmp_path: Path) -> None:
    make(tmp_path, "t-0", "t-11", "a.b_c-d-2", "other-0", "no partition", "t-x")
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "t-7").write_bytes(b"")
    found = find({3: [tmp_path]}, "t", "a.b_c-d", "empty")
    assert places(found) == [(3, "a.b_c-d", 2), (3, "t", 0), (3, "t", 11)]
    assert (found.run_id, found.transaction_states, found.notes) == ("run", (), ())
    assert found.replicas[1].folder == tmp_path / "t-0"


def test_segments_are_in_the_order_of_the_log(tmp_path: Path) -> None:
    files, index = [segment_name(base) for base in (100, 0, 20)], segment_name(20, "txnindex")
    make(tmp_path, "t-0", files=[*files, index, segment_name(100, "index")])
    (replica,) = find({1: [tmp_path]}, "t").replicas
    assert [(s.base_offset, s.txnindex) for s in replica.segments] == [(0, None), (20, index), (100, None)]
    assert replica.logs == [tmp_path / "t-0" / segment_name(base) for base in (0, 20, 100)]


@pytest.mark.parametrize(("patterns", "topics"), [
    (["orders-*"], ["orders-eu", "orders-us"]),
    (["orders-?s"], ["orders-us"]),
    (["orders-[a-e]u", "prices"], ["orders-eu", "prices"]),
    (["*"], ["orders-eu", "orders-us", "prices"]),
    (["prices", "price*"], ["prices"]),
    (["__*"], ["__consumer_offsets", "__transaction_state"]),
    (["__consumer_offsets"], ["__consumer_offsets"]),
    (["*", "__c*"], ["__consumer_offsets", "orders-eu", "orders-us", "prices"]),
    (["Prices", "prices"], ["prices"]),
])  # fmt: skip
def test_patterns(patterns: list[str], topics: list[str], tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}-0" for name in ("orders-eu", "orders-us", "prices")))
    make(tmp_path, "__consumer_offsets-0", "__transaction_state-0")
    assert [copy.topic for copy in find({1: [tmp_path]}, *patterns).replicas] == topics


def test_the_coordinators_logs_are_found_whatever_the_topics_are(tmp_path: Path) -> None:
    one, two = make(tmp_path / "1", "t-0", "__transaction_state-3"), make(tmp_path / "2", "t-0")
    found = find({1: [one], 2: [two]}, "t")
    assert places(found) == [(1, "t", 0), (2, "t", 0)]
    assert [(copy.broker, copy.partition) for copy in found.transaction_states] == [(1, 3)]
    with pytest.raises(UsageError, match=r"^broker 2 has no replica of __\* in .*; there are t$"):
        find({1: [one], 2: [two]}, "__*")


def test_a_broker_with_several_directories(tmp_path: Path) -> None:
    one, two = make(tmp_path / "a", "t-1"), make(tmp_path / "b", "t-0")
    assert places(find({1: [one, two]}, "t")) == [(1, "t", 1), (1, "t", 0)]
    # Only one of them has to have some of it.
    make(tmp_path / "c", "other-0")
    assert places(find({1: [one, tmp_path / "c"]}, "t")) == [(1, "t", 1)]


def test_a_partition_folder_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = make(tmp_path / "1", "t-0", "t-1")
    assert places(find({1: [log_dir / "t-1"]}, "t")) == [(1, "t", 1)]
    monkeypatch.chdir(log_dir / "t-0")
    (replica,) = find({1: [Path()]}, "t").replicas
    assert (replica.folder, replica.partition) == (log_dir / "t-0", 0)


def test_a_replica_twice(tmp_path: Path) -> None:
    one, two = make(tmp_path / "a", "t-0"), make(tmp_path / "b", "t-0")
    for other in (two, one):
        with pytest.raises(UsageError, match=f"^broker 1 has t-0 twice: {one / 't-0'} and {other / 't-0'}$"):
            find({1: [one, other]}, "t")
    assert len(find({1: [one], 2: [two]}, "t").replicas) == 2


@pytest.mark.parametrize(("folders", "topics", "message"), [
    (["t-0", "t-1", "u-0"], ["nothing", "x*"], "broker 1 has no replica of nothing, x* in {top}; there are t, u"),
    ([f"t{n}-0" for n in range(12)], ["x"], "; there are t0, t1, t10, t11, t2, t3, t4, t5, t6, t7 and 2 more"),
    ([], ["t"], "there are no partition folders"),
    (["plain-0"], [], "no topic in the folders is known to be compacted: name topics by --topic"),
])  # fmt: skip
def test_folders_without_the_topics_are_refused(
    folders: list[str], topics: list[str], message: str, tmp_path: Path
) -> None:
    top = make(tmp_path / "1", *folders)
    with pytest.raises(UsageError) as caught:
        find({1: [top]}, *topics)
    assert message.format(top=top) in str(caught.value)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(UsageError, match=f"^the folder of broker 4 cannot be read: {missing}: No such file or dire"):
        find({4: [missing]}, "t")
    missing.write_bytes(b"")
    with pytest.raises(UsageError, match=r"the folder of broker 4 cannot be read: .*: Not a directory"):
        find({4: [missing]}, "t")


def test_a_missing_checkpoint_of_leader_epochs_is_noted(tmp_path: Path) -> None:
    make(tmp_path, "t-0", "t-1", "u-0")
    for folder in ("t-1", "u-0"):
        (tmp_path / folder / LEADER_EPOCHS).unlink()
    assert find({1: [tmp_path]}, "t").notes == (f"broker 1: t-1: no leader-epoch-checkpoint: {NO_EPOCHS}",)


def test_folders_that_are_set_aside_are_noted(tmp_path: Path) -> None:
    make(tmp_path, "t-0")
    aside = [f"t-{number}.0123456789abcdef0123456789abcdef-{why}" for number, why in enumerate(("delete", "future"), 1)]
    make(tmp_path, *aside, "t-3.AAAAAAAAAAAAAAAAAAAAAQ-stray")
    found = find({1: [tmp_path]}, "t")
    assert places(found) == [(1, "t", 0)]
    assert found.notes == ("broker 1: 3 folders: not a replica in use: left out",)


def test_leftovers_of_the_cleaner_are_noted(tmp_path: Path) -> None:
    gone = {
        segment_name(0, "log.deleted"): "marked for deletion",
        segment_name(0): "replaced by a file of a cleaner or a split",
        segment_name(20, "log.cleaned"): "not yet complete when its writer, a cleaner or a split, was interrupted",
    }
    swap = segment_name(0, "log.swap")
    make(tmp_path, "t-0", files=[*gone, swap, segment_name(20)])
    found = find({1: [tmp_path]}, "t")
    assert [path.name for path in found.replicas[0].logs] == [swap, segment_name(20)]
    assert sorted(found.notes) == sorted(f"broker 1: t-0/{name}: {why}: left out" for name, why in gone.items())
    for files in ([segment_name(0, "log.deleted")], []):
        alone = make(tmp_path / f"alone {len(files)}", "t-0", files=files)
        make(alone, "t-1")
        with pytest.raises(UsageError, match=f"^broker 1: {alone / 't-0'} has no segment that is in use$"):
            find({1: [alone]}, "t")


def test_what_is_reported_of_many_files_is_one_note(tmp_path: Path) -> None:
    for broker, deleted in ((1, 70), (2, 3)):
        for partition in range(2):
            names = [segment_name(number, "log.deleted") for number in range(deleted)]
            make(tmp_path / str(broker), f"t-{partition}", files=[*names, segment_name(90)])
    found = find({1: [tmp_path / "1"], 2: [tmp_path / "2"]}, "t")
    assert found.notes == ("brokers 1, 2: 146 files in 4 folders: marked for deletion: left out",)


def test_a_leftover_that_cannot_be_read(tmp_path: Path) -> None:
    make(tmp_path, "t-0")
    swap = tmp_path / "t-0" / segment_name(0, "log.swap")
    swap.write_bytes(b"no batch at all, and longer than a header of one is: sixty-one bytes")
    with pytest.raises(UsageError, match=rf"broker 1 cannot be distinguished from its leftovers: {swap} at byte 0: "):
        find({1: [tmp_path]}, "t")
    # A topic that was not requested does not matter.
    make(tmp_path, "u-0", "t-1.AAAAAAAAAAAAAAAAAAAAAQ-stray")
    assert find({1: [tmp_path]}, "u").notes == ()


def test_topics_that_had_one_name_after_the_other(tmp_path: Path) -> None:
    brokers = {broker: [make(tmp_path / str(broker), "t-0", "t-1")] for broker in (1, 2, 3)}
    files = {(b, p): tmp_path / str(b) / f"t-{p}" / PARTITION_METADATA for b in brokers for p in (0, 1)}
    # Brokers before 2.8 wrote none.
    for file in files.values():
        file.unlink()
    for place in ((1, 0), (1, 1), (2, 0)):
        files[place].write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert len(find(brokers, "t").replicas) == 6
    files[2, 1].write_text(f"version: 0\ntopic_id: {'B' * 22}\n")
    named = f"two topics were named t: {files[1, 0]} says {'A' * 21}Q, {files[2, 1]} says {'B' * 22}"
    with pytest.raises(UsageError, match=f"^{named}; compare copies that were taken together$"):
        find(brokers, "t")
