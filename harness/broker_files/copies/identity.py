"""Verify that folders are copies of different brokers of one cluster, each declared with its broker's id.

A broker writes ``meta.properties`` into each of its log directories (`MetaProperties`): version 0 with ``broker.id``,
version 1 (KRaft) with ``node.id``; ``cluster.id``; ``directory.id`` since KIP-858. Version 0 guarantees none of them.
The topic's id is in ``partition.metadata`` of each partition folder (KIP-516); `copies` compares it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import javaproperties

from harness.broker_files.copies.selection import listed
from harness.broker_files.storage import lineage
from harness.errors import UsageError, raised_as

if TYPE_CHECKING:
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
    """A log directory that was declared for ``broker``; the ids in its ``meta.properties``, and the first id's name."""

    broker: int
    path: Path
    node_id_name: str | None = None
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None

    @property
    def properties_path(self) -> Path:
        """The file of the ids."""
        return self.path / META_PROPERTIES

    @property
    def missing_ids(self) -> str | None:
        """A sentence on the ids that the log directory does not have; None if it has all."""
        if self.node_id_name is None:
            return f"{self.path} has no {META_PROPERTIES}"
        ids = {"node id": self.node_id, CLUSTER_ID: self.cluster_id}
        missing = [name for name, value in ids.items() if value is None]
        return f"{self.properties_path} has no {' and no '.join(missing)}" if missing else None


def verify_identity(
    brokers: Mapping[int, Sequence[Path]], log_dirs: Mapping[int, Sequence[Path]], replicas: Sequence[ReplicaCopy]
) -> tuple[str | None, list[str]]:
    """Return the cluster's id, None if no folder contains it, and why the identity of a broker is not certain.

    ``brokers``: the declared folders. ``log_dirs``: these folders, or the log directories that contain them. Raises
    `UsageError` if one folder is declared for two brokers (also by another path, or inside another folder), for a
    folder of another broker than declared or of another cluster, and if ``meta.properties`` cannot be read.
    """
    _raise_if_one_folder(brokers, replicas)
    directories = [_read(broker, path) for broker, paths in log_dirs.items() for path in paths]
    _raise_if_other_broker(directories)
    clusters: dict[str, LogDirectory] = {}
    for directory in directories:
        if directory.cluster_id is not None:
            clusters.setdefault(directory.cluster_id, directory)
    if len(clusters) > 1:
        says = "; ".join(f"{other.properties_path} says {CLUSTER_ID}={name}" for name, other in clusters.items())
        raise UsageError(f"the folders belong to {len(clusters)} clusters: {says}; give copies of one cluster")
    _raise_if_one_directory(directories)
    notes = []
    for broker in brokers:
        missing = [text for other in directories if other.broker == broker and (text := other.missing_ids)]
        folders = [copy.folder for copy in replicas if copy.broker == broker]
        if nameless := [folder.name for folder in folders if not (folder / PARTITION_METADATA).exists()]:
            missing.append(f"{listed(nameless)} without {PARTITION_METADATA}")
        if missing:
            notes.append(f"broker {broker}: its identity could not be checked in full: {'; '.join(missing)}")
    return next(iter(clusters), None), notes


def topic_id(folder: Path) -> str | None:
    """Return the topic id in a partition's folder, or None. Raises OSError."""
    path = folder / PARTITION_METADATA
    match = _TOPIC_ID.search(path.read_text(errors="replace")) if path.exists() else None
    return match[1] if match else None


def _read(broker: int, path: Path) -> LogDirectory:
    file = path / META_PROPERTIES
    with raised_as(UsageError, f"broker {broker}: {file} cannot be read", OSError, ValueError):
        if not file.exists():
            return LogDirectory(broker, path)
        ids = javaproperties.loads(file.read_text(encoding="iso-8859-1"))
    version = ids.get("version", "0").strip()
    if version not in NODE_ID:
        raise UsageError(f"broker {broker}: {file} has version={version}; known versions are {', '.join(NODE_ID)}")
    name = NODE_ID[version]
    node_id = ids.get(name, "").strip()
    if node_id and not (node_id.isascii() and node_id.isdigit()):
        raise UsageError(f"broker {broker}: {file} says {name}={node_id}, which is not the id of a broker")
    number = int(node_id) if node_id else None
    return LogDirectory(broker, path, name, number, ids.get(CLUSTER_ID), ids.get(DIRECTORY_ID))


def _raise_if_one_folder(brokers: Mapping[int, Sequence[Path]], replicas: Iterable[ReplicaCopy]) -> None:
    lineages = [(broker, folder, list(lineage(folder))) for broker, folders in brokers.items() for folder in folders]
    for (inner, inner_folder, inner_lineage), (outer, outer_folder, outer_lineage) in permutations(lineages, 2):
        if inner != outer and inner_lineage[0] == outer_lineage[0]:
            raise UsageError(
                f"one folder was given for brokers {inner} and {outer}: {inner_folder} and {outer_folder} are the"
                " same; give each broker's own copy"
            )
        if inner != outer and outer_lineage[0] in inner_lineage:
            raise UsageError(
                f"the folder of broker {inner}, {inner_folder}, lies inside the folder of broker {outer},"
                f" {outer_folder}; give each broker's own copy"
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
    wrong = [other for other in directories if other.node_id not in {None, other.broker}]
    if wrong:
        nodes, first = {other.node_id for other in wrong}, wrong[0]
        says = (
            f"{other.properties_path} says {other.node_id_name}={other.node_id} and was given for broker {other.broker}"
            for other in directories
            if other.node_id in nodes
        )
        raise UsageError(
            f"a folder was given for another broker than its own: {'; '.join(says)}; give {first.path} with"
            f" --broker {first.node_id}=…, or broker {first.broker}'s own folder with --broker {first.broker}=…"
        )


def _raise_if_one_directory(directories: Sequence[LogDirectory]) -> None:
    """Raise `UsageError` if two brokers were given copies of one log directory, whose ids do not name the broker."""
    by_id: dict[str, LogDirectory] = {}
    for directory in directories:
        first = by_id.setdefault(directory.directory_id, directory) if directory.directory_id else directory
        if first.broker != directory.broker:
            raise UsageError(
                f"brokers {first.broker} and {directory.broker} were given copies of one log directory:"
                f" {first.properties_path} and {directory.properties_path} say {DIRECTORY_ID}={directory.directory_id};"
                " give each broker's own copy"
            )
