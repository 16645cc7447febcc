"""Whether folders are what the user declared: copies of different brokers, of one cluster, each under its own id.

A broker writes ``meta.properties`` into each of its log directories (`MetaProperties`): version 0 with ``broker.id``,
version 1 (KRaft) with ``node.id``; ``cluster.id``; ``directory.id`` since KIP-858. Nothing is guaranteed in version 0.
The topic's id is in ``partition.metadata`` of each partition folder (KIP-516); `copies` compares it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import javaproperties

from harness.broker_files.copies.notes import listed
from harness.broker_files.storage import lineage
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.broker_files.copies.copies import ReplicaCopy

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
NODE_ID = {"0": "broker.id", "1": "node.id"}
"""The name of the broker's id, by the version of ``meta.properties``."""
CLUSTER_ID = "cluster.id"
DIRECTORY_ID = "directory.id"

_TOPIC_ID = re.compile(r"^topic_id: *(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class LogDirectory:
    """A log directory that was given for ``broker``, and its ``meta.properties``; None where there is none.

    ``node_id`` has the name and the value. Ids are None where the file lacks them.
    """

    broker: int
    path: Path
    has_properties: bool = False
    node_id: tuple[str, int] | None = None
    cluster_id: str | None = None
    directory_id: str | None = None

    @property
    def properties_path(self) -> Path:
        """The file of the ids."""
        return self.path / META_PROPERTIES


@dataclass(frozen=True)
class Identity:
    """``cluster_id``: None where no folder names it. ``notes``: for each broker whose identity is not certain, why."""

    cluster_id: str | None
    notes: tuple[str, ...]


def verify_identity(
    brokers: Mapping[int, Sequence[Path]], log_dirs: Mapping[int, Sequence[Path]], replicas: Sequence[ReplicaCopy]
) -> Identity:
    """Return the id of the cluster, and a note for each broker whose identity could not be checked in full.

    ``brokers``: folders as they were given. ``log_dirs``: those folders, or the log directories that contain them.

    Raises `UsageError` where one folder was given for two brokers (also by another path, or inside the other), where
    a folder is of another broker than it was given for, or of another cluster than the rest, and where
    ``meta.properties`` cannot be read.
    """
    _raise_if_one_folder(brokers, replicas)
    directories = [_read(broker, path) for broker, paths in log_dirs.items() for path in paths]
    _raise_if_other_broker(directories)
    _raise_if_other_cluster(directories)
    _raise_if_one_directory(directories)
    notes = tuple(
        f"broker {broker}: its identity could not be checked in full: {'; '.join(missing)}"
        for broker in brokers
        if (missing := [*_missing_ids(broker, directories), *_missing_topic_ids(broker, replicas)])
    )
    return Identity(next((one.cluster_id for one in directories if one.cluster_id is not None), None), notes)


def topic_id(folder: Path) -> str | None:
    """Return the id of the topic of a partition's folder; None where the folder has none. Raises OSError."""
    path = folder / PARTITION_METADATA
    match = _TOPIC_ID.search(path.read_text(errors="replace")) if path.exists() else None
    return match[1] if match else None


def _read(broker: int, path: Path) -> LogDirectory:
    file = path / META_PROPERTIES
    try:
        if not file.exists():
            return LogDirectory(broker, path)
        ids = javaproperties.loads(file.read_text(encoding="iso-8859-1"))
    except (OSError, ValueError) as error:
        raise UsageError(f"broker {broker}: {file} cannot be read: {getattr(error, 'strerror', error)}") from error
    version = ids.get("version", "0").strip()
    if version not in NODE_ID:
        raise UsageError(f"broker {broker}: {file} has version={version}; known versions are {', '.join(NODE_ID)}")
    name = NODE_ID[version]
    node_id = ids.get(name, "").strip()
    if node_id and not (node_id.isascii() and node_id.isdigit()):
        raise UsageError(f"broker {broker}: {file} says {name}={node_id}, which is not the id of a broker")
    return LogDirectory(
        broker,
        path,
        has_properties=True,
        node_id=(name, int(node_id)) if node_id else None,
        cluster_id=ids.get(CLUSTER_ID),
        directory_id=ids.get(DIRECTORY_ID),
    )


def _raise_if_one_folder(brokers: Mapping[int, Sequence[Path]], replicas: Iterable[ReplicaCopy]) -> None:
    given = [(broker, folder, list(lineage(folder))) for broker, folders in brokers.items() for folder in folders]
    for (one, its_folder, its_lineage), (other, folder, of_other) in combinations(given, 2):
        if one == other:
            continue
        if its_lineage[0] == of_other[0]:
            raise UsageError(
                f"one folder was given for brokers {one} and {other}: {its_folder} and {folder} are the same;"
                " give each broker's own copy"
            )
        for inner, inner_broker, outer, outer_broker, is_inside in (
            (folder, other, its_folder, one, its_lineage[0] in of_other),
            (its_folder, one, folder, other, of_other[0] in its_lineage),
        ):
            if is_inside:
                raise UsageError(
                    f"the folder of broker {inner_broker}, {inner}, lies inside the folder of broker {outer_broker},"
                    f" {outer}; give each broker's own copy"
                )
    seen: dict[object, ReplicaCopy] = {}
    for copy in replicas:
        first = seen.setdefault(next(lineage(copy.folder)), copy)
        if first.broker != copy.broker:
            raise UsageError(
                f"brokers {first.broker} and {copy.broker} have one folder: {first.folder} and {copy.folder} are the"
                " same; give each broker's own copy"
            )


def _raise_if_other_broker(directories: Sequence[LogDirectory]) -> None:
    wrong = [(one, *one.node_id) for one in directories if one.node_id and one.node_id[1] != one.broker]
    if not wrong:
        return
    nodes = {node for _, _, node in wrong}
    says = [
        f"{one.properties_path} says {one.node_id[0]}={one.node_id[1]} and was given for broker {one.broker}"
        for one in directories
        if one.node_id and one.node_id[1] in nodes
    ]
    first, _, node = wrong[0]
    raise UsageError(
        f"a folder was given for another broker than its own: {'; '.join(says)}; give {first.path} with"
        f" --broker {node}=…, or broker {first.broker}'s own folder with --broker {first.broker}=…"
    )


def _raise_if_other_cluster(directories: Sequence[LogDirectory]) -> None:
    clusters: dict[str, LogDirectory] = {}
    for one in directories:
        if one.cluster_id is not None:
            clusters.setdefault(one.cluster_id, one)
    if len(clusters) > 1:
        says = [f"{one.properties_path} says {CLUSTER_ID}={name}" for name, one in clusters.items()]
        raise UsageError(f"the folders are of {len(clusters)} clusters: {'; '.join(says)}; give copies of one cluster")


def _raise_if_one_directory(directories: Sequence[LogDirectory]) -> None:
    """Raise where brokers were given copies of one log directory whose ids do not name the broker."""
    seen: dict[str, LogDirectory] = {}
    for one in directories:
        if one.directory_id is None:
            continue
        first = seen.setdefault(one.directory_id, one)
        if first.broker != one.broker:
            raise UsageError(
                f"brokers {first.broker} and {one.broker} were given copies of one log directory:"
                f" {first.properties_path} and {one.properties_path} say {DIRECTORY_ID}={one.directory_id};"
                " give each broker's own copy"
            )


def _missing_ids(broker: int, directories: Iterable[LogDirectory]) -> Iterator[str]:
    for one in directories:
        if one.broker != broker:
            continue
        if not one.has_properties:
            yield f"{one.path} has no {META_PROPERTIES}"
            continue
        missing = [name for name, value in (("node id", one.node_id), (CLUSTER_ID, one.cluster_id)) if value is None]
        if missing:
            yield f"{one.properties_path} has no {' and no '.join(missing)}"


def _missing_topic_ids(broker: int, replicas: Iterable[ReplicaCopy]) -> Iterator[str]:
    missing = [
        copy.folder.name
        for copy in replicas
        if copy.broker == broker and not (copy.folder / PARTITION_METADATA).exists()
    ]
    if missing:
        yield f"{listed(missing)} without {PARTITION_METADATA}"
