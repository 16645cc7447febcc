"""Verify that folders are copies of different brokers of one cluster, each declared with its broker's id.

A broker writes ``meta.properties`` into each of its log directories (`MetaProperties`): version 0 with ``broker.id``,
version 1 (KRaft) with ``node.id``; ``cluster.id``; ``directory.id`` since KIP-858. Version 0 guarantees none of them.
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
    """A log directory that was declared for ``broker``, and the ids in its ``meta.properties``, or None.

    ``node_id``: name and value.
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
    """``cluster_id``: None if no folder contains it. ``notes``: why the identity of a broker is not certain."""

    cluster_id: str | None
    notes: tuple[str, ...]


def verify_identity(
    brokers: Mapping[int, Sequence[Path]], log_dirs: Mapping[int, Sequence[Path]], replicas: Sequence[ReplicaCopy]
) -> Identity:
    """Return the id of the cluster, and a note for each broker whose identity could not be checked completely.

    ``brokers``: the declared folders. ``log_dirs``: these folders, or the log directories that contain them.

    Raises `UsageError` if one folder is declared for two brokers (also by another path, or inside another folder), for
    a folder of another broker than declared or of another cluster, and if ``meta.properties`` cannot be read.
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
    return Identity(
        next((directory.cluster_id for directory in directories if directory.cluster_id is not None), None), notes
    )


def topic_id(folder: Path) -> str | None:
    """Return the topic id in a partition's folder, or None. Raises OSError."""
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
    folder_lineages = [
        (broker, folder, list(lineage(folder))) for broker, folders in brokers.items() for folder in folders
    ]
    for (first, first_folder, first_lineage), (second, second_folder, second_lineage) in combinations(
        folder_lineages, 2
    ):
        if first == second:
            continue
        if first_lineage[0] == second_lineage[0]:
            raise UsageError(
                f"one folder was given for brokers {first} and {second}: {first_folder} and {second_folder} are the"
                " same; give each broker's own copy"
            )
        for inner, inner_broker, outer, outer_broker, is_inside in (
            (second_folder, second, first_folder, first, first_lineage[0] in second_lineage),
            (first_folder, first, second_folder, second, second_lineage[0] in first_lineage),
        ):
            if is_inside:
                raise UsageError(
                    f"the folder of broker {inner_broker}, {inner}, lies inside the folder of broker {outer_broker},"
                    f" {outer}; give each broker's own copy"
                )
    first_copies: dict[object, ReplicaCopy] = {}
    for copy in replicas:
        first_copy = first_copies.setdefault(next(lineage(copy.folder)), copy)
        if first_copy.broker != copy.broker:
            raise UsageError(
                f"brokers {first_copy.broker} and {copy.broker} have one folder: {first_copy.folder} and"
                f" {copy.folder} are the same; give each broker's own copy"
            )


def _raise_if_other_broker(directories: Sequence[LogDirectory]) -> None:
    wrong = [
        (directory, *directory.node_id)
        for directory in directories
        if directory.node_id and directory.node_id[1] != directory.broker
    ]
    if not wrong:
        return
    nodes = {node for _, _, node in wrong}
    says = [
        f"{declared.properties_path} says {'='.join(map(str, declared.node_id))} and was given for broker"
        f" {declared.broker}"
        for declared in directories
        if declared.node_id and declared.node_id[1] in nodes
    ]
    first, _, node = wrong[0]
    raise UsageError(
        f"a folder was given for another broker than its own: {'; '.join(says)}; give {first.path} with"
        f" --broker {node}=…, or broker {first.broker}'s own folder with --broker {first.broker}=…"
    )


def _raise_if_other_cluster(directories: Sequence[LogDirectory]) -> None:
    clusters: dict[str, LogDirectory] = {}
    for directory in directories:
        if directory.cluster_id is not None:
            clusters.setdefault(directory.cluster_id, directory)
    if len(clusters) > 1:
        says = [f"{directory.properties_path} says {CLUSTER_ID}={name}" for name, directory in clusters.items()]
        raise UsageError(
            f"the folders belong to {len(clusters)} clusters: {'; '.join(says)}; give copies of one cluster"
        )


def _raise_if_one_directory(directories: Sequence[LogDirectory]) -> None:
    """Raise `UsageError` if two brokers were given copies of one log directory, whose ids do not name the broker."""
    by_id: dict[str, LogDirectory] = {}
    for directory in directories:
        if directory.directory_id is None:
            continue
        first = by_id.setdefault(directory.directory_id, directory)
        if first.broker != directory.broker:
            raise UsageError(
                f"brokers {first.broker} and {directory.broker} were given copies of one log directory:"
                f" {first.properties_path} and {directory.properties_path} say {DIRECTORY_ID}={directory.directory_id};"
                " give each broker's own copy"
            )


def _missing_ids(broker: int, directories: Iterable[LogDirectory]) -> Iterator[str]:
    for directory in directories:
        if directory.broker != broker:
            continue
        if not directory.has_properties:
            yield f"{directory.path} has no {META_PROPERTIES}"
            continue
        missing = [
            name
            for name, value in (("node id", directory.node_id), (CLUSTER_ID, directory.cluster_id))
            if value is None
        ]
        if missing:
            yield f"{directory.properties_path} has no {' and no '.join(missing)}"


def _missing_topic_ids(broker: int, replicas: Iterable[ReplicaCopy]) -> Iterator[str]:
    missing = [
        copy.folder.name
        for copy in replicas
        if copy.broker == broker and not (copy.folder / PARTITION_METADATA).exists()
    ]
    if missing:
        yield f"{listed(missing)} without {PARTITION_METADATA}"
