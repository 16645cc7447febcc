"""Folders that were copied from brokers: their topics and replicas."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.broker_files.copies.identity import PARTITION_METADATA, topic_id, verify_identity
from harness.broker_files.copies.notes import Note, in_sentences, listed
from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.broker_files.internal_topics.selection import audited, internal_left_out, is_compacted, is_named
from harness.broker_files.metadata_log.join import JoinedLog, read_metadata_logs
from harness.broker_files.segments.batches import CorruptLogError
from harness.broker_files.segments.folder import live_segments
from harness.broker_files.side_files.checkpoints import read_checkpoint
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.broker_files.metadata_log.history import ClusterMetadata
    from harness.broker_files.segments.folder import Segment

CLUSTER_METADATA = "__cluster_metadata"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
NO_EPOCHS = "records that a deposed leader never replicated are recognized by their epochs alone"

_PARTITION_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_SET_ASIDE = re.compile(r"(?P<topic>.+)-\d+\.[0-9A-Za-z_-]+-(delete|future|stray)")
"""A folder that is being deleted, moving in from another disk, or stray (`LocalLog`)."""
_SEGMENT = re.compile(r"\d{20}\.log")
_SHOWN = 10


@dataclass(frozen=True)
class ReplicaCopy:
    """One replica: its partition folder, next to which the broker's checkpoints may be, and its segments in order."""

    broker: int
    topic: str
    partition: int
    folder: Path
    segments: tuple[Segment, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def logs(self) -> list[Path]:
        """The segments' log files, in order."""
        return [self.folder / segment.log for segment in self.segments]


@dataclass(frozen=True)
class Copies:
    """The copies to compare. ``notes``: what was left out, in sentences.

    ``transaction_states``: the coordinators' own logs, where they were copied too. ``words``: coordinators' answers,
    where they were asked; files by broker. ``served``: read from a running cluster, whose brokers' answers replace
    their files. ``metadata``: leaders and ISRs by the brokers' metadata logs, where those were copied too.
    ``cluster_id``: None where no log directory names it.
    """

    run_id: str
    replicas: tuple[ReplicaCopy, ...]
    transaction_states: tuple[ReplicaCopy, ...] = ()
    words: Mapping[int, Path] = field(default_factory=dict)
    served: bool = False
    notes: tuple[str, ...] = ()
    metadata: ClusterMetadata | None = None
    cluster_id: str | None = None


def find_copies(brokers: Mapping[int, Sequence[Path]], topics: Sequence[str], run_id: str) -> Copies:
    """Return the replicas of the topics in these folders: log directories, or partition folders themselves.

    ``topics`` are names or patterns, as in `selection`; none: every topic that is compacted (see `_compacted`). Raises
    `UsageError` for a folder that cannot be read, a broker without any such replica, a replica twice or without a
    segment, for different topics of one name, and as `verify_identity`. The metadata log is no replica to compare; an
    unusable one is a note.
    """
    replicas: list[ReplicaCopy] = []
    states: list[ReplicaCopy] = []
    notes: list[Note] = []
    paths_of = {broker: [path for one in given for path in _folders(broker, one)] for broker, given in brokers.items()}
    log_dirs = {broker: list(dict.fromkeys(path.parent for path in paths)) for broker, paths in paths_of.items()}
    found_on = {broker: list(_partitions(broker, paths)) for broker, paths in paths_of.items()}
    every = [copy for found in found_on.values() for copy in found]
    metadata_logs = {copy.broker: copy.folder for copy in every if copy.topic == CLUSTER_METADATA}
    there = {copy.topic for copy in every} - {CLUSTER_METADATA}
    named = _named(topics, there) if topics else _compacted(there, metadata_logs, log_dirs)
    for broker, folders in brokers.items():
        found, paths = found_on[broker], paths_of[broker]
        _raise_if_twice(found)
        wanted = [copy for copy in found if copy.topic in named.topics]
        if not wanted and topics:
            topics_found = sorted({copy.topic for copy in found})
            rest = f"are {listed(topics_found, _SHOWN)}" if topics_found else "is no partition folder at all"
            given = ", ".join(map(str, folders))
            raise UsageError(f"broker {broker} has no replica of {', '.join(topics)} in {given}; there {rest}")
        replicas += (_with_segments(copy, notes) for copy in wanted)
        states += (_with_segments(copy, notes) for copy in found if copy.topic == TRANSACTION_STATE)
        notes += (
            Note(broker, str(path), "no replica in use: left out")
            for path in paths
            if (aside := _SET_ASIDE.fullmatch(path.name)) and is_named(aside["topic"], topics or named.topics)
        )
    identity = verify_identity(brokers, log_dirs, [*replicas, *states])
    _raise_if_other_topics(replicas)
    metadata = _metadata_of(metadata_logs, replicas)
    return Copies(
        run_id,
        tuple(replicas),
        tuple(states),
        notes=(*in_sentences(notes), *identity.notes, *metadata.notes, *named.notes),
        metadata=metadata.metadata,
        cluster_id=identity.cluster_id,
    )


@dataclass(frozen=True)
class _Selection:
    """The topics to compare; ``notes``: which they are, where that is not what the user named."""

    topics: frozenset[str]
    notes: tuple[str, ...]


def _named(patterns: Sequence[str], there: Iterable[str]) -> _Selection:
    topics = frozenset(topic for topic in there if is_named(topic, patterns))
    return _Selection(topics, tuple(internal_left_out(there, patterns)))


def _compacted(
    there: Iterable[str], metadata_logs: Mapping[int, Path], log_dirs: Mapping[int, Sequence[Path]]
) -> _Selection:
    """Return the compacted topics: by their own cleanup policy in a metadata log, else by what cleaners have cleaned.

    A broker's ``cleaner-offset-checkpoint`` has the partitions that its cleaner has cleaned, and so those of compacted
    topics only (``LogCleanerManager``). Kafka's own topics are compacted. Raises `UsageError` where there is none.
    """
    metadata = read_metadata_logs(metadata_logs, ()).metadata
    policies = {} if metadata is None else metadata.cleanup_policies
    cleaned = {topic for folders in log_dirs.values() for folder in folders for topic in _cleaned(folder)}
    topics = frozenset(
        topic
        for topic in there
        if is_compacted(topic, policies.get(topic)) or (topic not in policies and topic in cleaned)
    )
    if not topics:
        raise UsageError("no topic in the folders is known to be compacted: name topics by --topic")
    source = f"{'the metadata log and ' if metadata else ''}the checkpoints of the brokers' cleaners"
    notes = [audited(topics, len(set(there) - topics), source)]
    if metadata is None:
        notes.append("there is no metadata log: a compacted topic that no cleaner has cleaned is not among them")
    return _Selection(topics, tuple(notes))


def _cleaned(log_dir: Path) -> set[str]:
    path = log_dir / CLEANER_CHECKPOINT
    try:
        return {topic for topic, _ in read_checkpoint(path.read_bytes(), source=str(path))} if path.exists() else set()
    except (CorruptLogError, OSError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _partitions(broker: int, paths: Iterable[Path]) -> Iterator[ReplicaCopy]:
    for path in paths:
        named = _PARTITION_FOLDER.fullmatch(path.name)
        if named and _has_segments(broker, path):
            yield ReplicaCopy(broker, named["topic"], int(named["partition"]), path)


def _with_segments(copy: ReplicaCopy, notes: list[Note]) -> ReplicaCopy:
    """Return the replica with the segments in its folder, and note the other files in it."""
    try:
        live = live_segments(copy.folder)
    except OSError as error:
        raise UsageError(_unreadable(copy.broker, copy.folder, error)) from error
    except CorruptLogError as error:
        raise UsageError(
            f"the log of broker {copy.broker} cannot be distinguished from its leftovers: {error}"
        ) from error
    if not live.segments:
        raise UsageError(f"broker {copy.broker}: {copy.folder} has no segment that is in use")
    name = copy.folder.name
    notes += (Note(copy.broker, name, f"{why}: left out", file) for file, why in live.left_out.items())
    if not (copy.folder / LEADER_EPOCHS).exists():
        notes.append(Note(copy.broker, name, f"no {LEADER_EPOCHS}: {NO_EPOCHS}"))
    return replace(copy, segments=tuple(live.segments))


def _unreadable(broker: int, folder: Path, error: OSError) -> str:
    return f"the folder of broker {broker} cannot be read: {folder}: {error.strerror}"


def _folders(broker: int, folder: Path) -> list[Path]:
    if _has_segments(broker, folder):
        return [folder.absolute()]
    return [path.absolute() for path in _listed(broker, folder) if path.is_dir()]


def _has_segments(broker: int, folder: Path) -> bool:
    return any(_SEGMENT.match(path.name) for path in _listed(broker, folder))


def _listed(broker: int, folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UsageError(_unreadable(broker, folder, error)) from error


def _metadata_of(logs: Mapping[int, Path], replicas: Iterable[ReplicaCopy]) -> JoinedLog:
    """Read the metadata logs, by broker, of the cluster of these replicas.

    A topic has no history where the ``partition.metadata`` of a replica is missing or has another topic id (KIP-516):
    a topic that was created after another of the same name was deleted. Raises ``OSError``.
    """
    joined = read_metadata_logs(logs, {copy.topic for copy in replicas})
    if joined.metadata is None:
        return joined
    ids = {topic: history.topic_id for (topic, _), history in joined.metadata.histories.items()}
    notes: dict[str, str] = {}
    for copy in replicas:
        own_id = topic_id(copy.folder)
        if copy.topic in ids and own_id != ids[copy.topic]:
            has = f"is of topic id {own_id}" if own_id else "has no topic id"
            notes[copy.topic] = (
                f"{copy.folder.name} of broker {copy.broker} {has}, the metadata log has topic id {ids[copy.topic]}: "
                f"the history of {copy.topic} is left out"
            )
    kept = {place: history for place, history in joined.metadata.histories.items() if place[0] not in notes}
    return JoinedLog(replace(joined.metadata, histories=kept), (*joined.notes, *notes.values()))


def _raise_if_twice(copies: Iterable[ReplicaCopy]) -> None:
    """Raise where one broker's folders contain a partition twice."""
    seen: dict[tuple[str, int], Path] = {}
    for copy in copies:
        if copy.place in seen:
            both = f"{seen[copy.place]} and {copy.folder}"
            raise UsageError(f"broker {copy.broker} has {copy.topic}-{copy.partition} twice: {both}")
        seen[copy.place] = copy.folder


def _raise_if_other_topics(copies: Iterable[ReplicaCopy]) -> None:
    """Raise where two brokers' folders are of successive topics of one name (KIP-516)."""
    ids: dict[str, tuple[str, Path]] = {}
    for copy in copies:
        path = copy.folder / PARTITION_METADATA
        try:
            own_id = topic_id(copy.folder)
        except OSError as error:
            raise UsageError(f"broker {copy.broker}: {path} cannot be read: {error.strerror}") from error
        if own_id is None:
            continue
        first_id, first_path = ids.setdefault(copy.topic, (own_id, path))
        if own_id != first_id:
            raise UsageError(
                f"two topics were named {copy.topic}: {first_path} says {first_id}, {path} says {own_id}; "
                "compare copies that were taken together"
            )
