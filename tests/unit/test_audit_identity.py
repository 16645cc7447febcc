"""Whose folders are compared: the same folder under two ids, other brokers' folders and other clusters are refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from copied import copy, segment_name, write_copies
from fakes.storage import InMemoryFiles, remote_path
from literal import put

from harness.broker_files.copies.copies import find_copies
from harness.broker_files.copies.identity import META_PROPERTIES, PARTITION_METADATA
from harness.errors import UsageError

Folders = dict[int, list[Path]]


def notes(brokers: Mapping[int, Sequence[Path]]) -> tuple[str, ...]:
    return find_copies(brokers, ["t"], "run").notes


def refusal(brokers: Mapping[int, Sequence[Path]]) -> str:
    with pytest.raises(UsageError) as caught:
        find_copies(brokers, ["t"], "run")
    return str(caught.value)


@pytest.fixture
def two(tmp_path: Path) -> Folders:
    """Two brokers' log directories with a replica of t-0 each, and all ids."""
    return write_copies(tmp_path, *(copy(broker, put(0, "K"), put(1, "end"), epochs={0: 0}) for broker in (1, 2)))


def write_ids(log_dir: Path, *lines: str) -> Path:
    path = log_dir / META_PROPERTIES
    path.write_text("\n".join(("#", "#Mon Nov 23 07:45:00 UTC 2026", *lines, "")))
    return path


def test_one_folder_for_two_brokers_or_inside_of_another(
    two: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = two[1]
    link = tmp_path / "link"
    link.symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    assert notes(two) == ()
    for path in (folder, link, Path("1"), tmp_path / "2" / ".." / "1"):
        assert refusal({1: [folder], 2: [path]}) == (
            f"one folder was given for brokers 1 and 2: {folder} and {path} are the same; give each broker's own copy"
        )
    for brokers in ({1: [folder], 2: [link / "t-0"]}, {2: [link / "t-0"], 1: [folder]}):
        text = f"the folder of broker 2, {link / 't-0'}, lies inside the folder of broker 1, {folder}; "
        assert refusal(brokers).startswith(text)
    (tmp_path / "2").rename(folder / "2")
    assert "lies inside" in refusal({1: [folder], 2: [folder / "2"]})
    # Without any id in it, too.
    (folder / META_PROPERTIES).unlink()
    assert "one folder was given for brokers 1 and 2" in refusal({1: [folder], 2: [link]})


def test_a_replica_that_is_a_link_to_that_of_another_broker(two: Folders) -> None:
    first, other = two[1][0] / "t-0", two[2][0] / "t-0"
    other.rename(other.with_name("aside"))
    other.symlink_to(first)
    assert refusal(two).startswith(f"brokers 1 and 2 have one folder: {first} and {other} are the same; ")


@pytest.mark.parametrize(
    "lines", [("version=1", "node.id=1"), ("version=0", "broker.id=1"), ("broker.id=1",)], ids=["1", "0", "none"]
)
def test_a_node_under_another_id(two: Folders, lines: tuple[str, ...]) -> None:
    (folder,) = two[1]
    path = write_ids(folder, *lines)
    assert refusal({7: [folder]}) == (
        f"a folder was given for another broker than its own: {path} says {lines[-1]} and was given for broker 7; "
        f"give {folder} with --broker 1=…, or broker 7's own folder with --broker 7=…"
    )


def test_a_node_under_another_id_than_the_given_one(two: Folders) -> None:
    path = write_ids(two[2][0], "version=1", "node.id=1", "cluster.id=literal")
    message = refusal(two)
    assert f"{two[1][0] / META_PROPERTIES} says node.id=1 and was given for broker 1; " in message
    assert f"{path} says node.id=1 and was given for broker 2; give {two[2][0]} with --broker 1=…" in message
    # Given bare, partition folders still lie in a log directory that says whose they are.
    message = refusal({1: [two[1][0] / "t-0"], 3: [two[2][0] / "t-0"]})
    assert f"{path} says node.id=1 and was given for broker 3" in message


def test_two_clusters(two: Folders) -> None:
    path = write_ids(two[2][0], "version=1", "node.id=2", "cluster.id=other")
    assert refusal(two) == (
        f"the folders belong to 2 clusters: {two[1][0] / META_PROPERTIES} says cluster.id=literal; "
        f"{path} says cluster.id=other; give copies of one cluster"
    )


def test_several_log_directories_of_one_broker(two: Folders, tmp_path: Path) -> None:
    second = tmp_path / "second"
    (second / "t-1").mkdir(parents=True)
    for file in (two[1][0] / "t-0").iterdir():
        (second / "t-1" / file.name).write_bytes(file.read_bytes())
    for broker, log_dir, name in ((1, two[1][0], "a"), (1, second, "b"), (2, two[2][0], "c")):
        write_ids(log_dir, "version=1", f"node.id={broker}", "cluster.id=x", f"directory.id={name}")
    assert notes({1: [two[1][0], second], 2: two[2]}) == ()


def test_copies_of_one_log_directory(two: Folders) -> None:
    paths = [write_ids(two[broker][0], "version=0", "cluster.id=x", "directory.id=d") for broker in (1, 2)]
    assert refusal(two).startswith(
        f"brokers 1 and 2 were given copies of one log directory: {paths[0]} and {paths[1]} say directory.id=d; "
    )


@pytest.mark.parametrize(("lines", "expected"), [
    (("version=2", "node.id=1"), "has version=2; known versions are 0, 1"),
    (("version=1", "node.id=one"), "says node.id=one, which is not the id of a broker"),
    (("version=1", "node.id=\\uXYZ"), "cannot be read: "),
])  # fmt: skip
def test_ids_that_cannot_be_read(two: Folders, lines: tuple[str, ...], expected: str) -> None:
    assert f"broker 1: {write_ids(two[1][0], *lines)} {expected}" in refusal(two)


@pytest.mark.parametrize(("lines", "missing"), [
    (("version=0", "broker.id=1"), "cluster.id"),
    (("version=0", "cluster.id=literal"), "node id"),
    # `MetaProperties` does not read the id of the other version, either.
    (("version=1", "broker.id=5", "cluster.id=literal"), "node id"),
])  # fmt: skip
def test_ids_that_are_left_out_are_noted(two: Folders, lines: tuple[str, ...], missing: str) -> None:
    path = write_ids(two[1][0], *lines)
    assert notes(two) == (f"broker 1: its identity could not be checked in full: {path} has no {missing}",)


def test_bare_folders_are_noted_once_for_each_broker(tmp_path: Path) -> None:
    brokers = {broker: [tmp_path / str(broker) / f"t-{partition}" for partition in range(5)] for broker in (1, 2)}
    for folder in (*brokers[1], *brokers[2]):
        folder.mkdir(parents=True)
        for name in (segment_name(0), "leader-epoch-checkpoint"):
            (folder / name).touch()
    assert notes(brokers) == tuple(
        f"broker {broker}: its identity could not be checked in full: {tmp_path / str(broker)} has no meta.properties; "
        f"t-0, t-1, t-2 and 2 more without {PARTITION_METADATA}"
        for broker in (1, 2)
    )


def test_one_remote_folder_for_two_brokers(two: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the scheme; the bucket's content is that of a folder here."""
    top = two[1][0].parent
    files = InMemoryFiles({
        f"bucket/{path.relative_to(top)}": path.read_bytes() for path in top.rglob("*") if path.is_file()
    })  # fmt: skip

    def there(scheme: str, path: str) -> Path:
        return remote_path(monkeypatch, files, f"/{path}", f"{scheme}://bucket", "bucket")

    assert notes({1: [there("s3", "1")], 2: [there("s3a", "2")]}) == ()
    assert refusal({1: [there("s3", "1")], 2: [there("s3a", "1")]}).startswith(
        "one folder was given for brokers 1 and 2: s3://bucket/1 and s3a://bucket/1 are the same; "
    )
    assert "lies inside the folder of broker 1" in refusal({1: [there("s3", "1")], 2: [there("s3", "1/t-0")]})
    assert "s3://bucket/2/meta.properties says node.id=2" in refusal({1: [there("s3", "2")]})
