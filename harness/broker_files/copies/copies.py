"""Folders that were copied from brokers: their topics and replicas."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.broker_files.copies import selection
from harness.broker_files.copies.identity import PARTITION_METADATA, topic_id, verify_identity
from harness.broker_files.internal_topics.decode import CLUSTER_METADATA, TRANSACTION_STATE
from harness.broker_files.metadata_log.history import ClusterMetadata
from harness.broker_files.metadata_log.join import JoinedLog, read_metadata_logs
from harness.broker_files.segments.batches import CorruptLogError
from harness.broker_files.segments.folder import Segment, live_segments
from harness.broker_files.side_files.checkpoints import read_checkpoint, read_leader_epochs
from harness.errors import UsageError, raised_as

LEADER_EPOCHS = "leader-epoch-checkpoint"
NO_EPOCHS = "records that a deposed leader never replicated are recognized by their epochs alone"

_PARTITION_FOLDER = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_SET_ASIDE = re.compile(r"(?P<topic>.+)-\d+\.[0-9A-Za-z_-]+-(delete|future|stray)")
"""A folder that is being deleted, moved in from another disk, or stray (`LocalLog`)."""
_OF_PARTITION = re.compile(rf"\d{{20}}\.log|{PARTITION_METADATA}")  # a copy may have lost all segments
_SHOWN = 10


@dataclass(frozen=True)
class ReplicaCopy:
    """One replica and its segments in order. ``stored``: the paths of segments that are not files in the folder."""

    broker: int
    topic: str
    partition: int
    folder: Path
    segments: tuple[Segment, ...] = ()
    stored: tuple[Path, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def logs(self) -> list[Path]:
        """The segments' log files, in order."""
        return list(self.stored) or [self.folder / segment.log for segment in self.segments]


@dataclass(frozen=True)
class Copies:
    """The copies to compare. ``notes``: the files that are left out, in sentences.

    ``transaction_states``: replicas of ``__transaction_state``. ``coordinator_answers``: files with the answers of
    transaction coordinators, by broker. ``served``: read from a running cluster, whose brokers' answers replace side
    files. ``metadata``: leaders and ISRs by metadata logs. ``cluster_id``: None if no log directory contains it.
    ``topic_ids``: by topic (KIP-516), as far as they are known.
    """

    run_id: str
    replicas: tuple[ReplicaCopy, ...]
    transaction_states: tuple[ReplicaCopy, ...] = ()
    coordinator_answers: Mapping[int, Path] = field(default_factory=dict)
    served: bool = False
    notes: tuple[str, ...] = ()
    metadata: ClusterMetadata | None = None
    cluster_id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def find_copies(brokers: Mapping[int, Sequence[Path]], topics: Sequence[str], run_id: str) -> Copies:
    """Return the replicas of the topics in these folders: log directories, or partition folders.

    ``topics``: names or patterns, as in `selection`; empty: every compacted topic (see `_compacted`). An unusable
    metadata log is noted. Raises `UsageError` for a folder that cannot be read, a broker without such a replica, a
    duplicate replica or one without segments, for different topics of one name, and as `verify_identity`.
    """
    replicas, states, notes = list[ReplicaCopy](), list[ReplicaCopy](), list[selection.Note]()
    paths_of = {
        broker: [path for folder in folders for path in _folders(broker, folder)] for broker, folders in brokers.items()
    }
    log_dirs = {broker: list(dict.fromkeys(path.parent for path in paths)) for broker, paths in paths_of.items()}
    copies_of = {
        broker: [
            ReplicaCopy(broker, named["topic"], int(named["partition"]), path)
            for path in paths
            if (named := _PARTITION_FOLDER.fullmatch(path.name)) and _is_partition(broker, path)
        ]
        for broker, paths in paths_of.items()
    }
    every = [copy for copies in copies_of.values() for copy in copies]
    metadata_logs = {copy.broker: copy.folder for copy in every if copy.topic == CLUSTER_METADATA}
    existing = {copy.topic for copy in every} - {CLUSTER_METADATA}
    if topics:
        selected = {topic for topic in existing if selection.is_named(topic, topics)}
        selection_notes = selection.internal_left_out(existing, topics)
    else:
        selected, selection_notes = _compacted(existing, metadata_logs, log_dirs)
    for broker, folders in brokers.items():
        copies = copies_of[broker]
        _raise_if_twice(copies)
        chosen = [copy for copy in copies if copy.topic in selected]
        if not chosen and topics:
            other_topics = sorted({copy.topic for copy in copies})
            content = f"are {selection.listed(other_topics, _SHOWN)}" if other_topics else "are no partition folders"
            names = ", ".join(map(str, folders))
            raise UsageError(f"broker {broker} has no replica of {', '.join(topics)} in {names}; there {content}")
        replicas += (_with_segments(copy, notes) for copy in chosen)
        states += (_with_segments(copy, notes) for copy in copies if copy.topic == TRANSACTION_STATE)
        notes += (
            selection.Note(broker, str(path), "not a replica in use: left out")
            for path in paths_of[broker]
            if (aside := _SET_ASIDE.fullmatch(path.name)) and selection.is_named(aside["topic"], topics or selected)
        )
    cluster_id, identity_notes = verify_identity(brokers, log_dirs, [*replicas, *states])
    topic_ids = _one_id_each(replicas)
    metadata = _metadata_of(metadata_logs, replicas)
    return Copies(
        run_id,
        tuple(replicas),
        tuple(states),
        notes=(*selection.in_sentences(notes), *identity_notes, *metadata.notes, *selection_notes),
        metadata=metadata.metadata,
        cluster_id=cluster_id,
        topic_ids=topic_ids,
    )


def _compacted(
    existing: Iterable[str], metadata_logs: Mapping[int, Path], log_dirs: Mapping[int, Sequence[Path]]
) -> tuple[set[str], list[str]]:
    """Return the compacted topics, and notes. Raises `UsageError` if no topic is known to be compacted.

    A topic without a cleanup policy in a metadata log is compacted if a cleaner has cleaned it: checkpoints of cleaners
    have partitions of compacted topics only (``LogCleanerManager``). Kafka's internal topics are compacted.
    """
    if not existing:
        raise UsageError("the folders have no partition folders (TOPIC-N): give each broker's log directory")
    metadata = read_metadata_logs(metadata_logs, ()).metadata
    settings = {} if metadata is None else metadata.settings
    policies = {topic: own["cleanup.policy"] for topic, own in settings.items() if "cleanup.policy" in own}
    cleaned = {topic for folders in log_dirs.values() for folder in folders for topic in _cleaned(folder)}
    unknown = cleaned - policies.keys()
    topics = {topic for topic in existing if selection.is_compacted(topic, policies.get(topic)) or topic in unknown}
    if not topics:
        raise UsageError("no topic in the folders is known to be compacted: name topics by --topic")
    source = f"{'the metadata log and ' if metadata else ''}the checkpoints of the brokers' cleaners"
    notes = [selection.audited(topics, len(set(existing) - topics), source)]
    if metadata is None:
        notes.append("without a metadata log, compacted topics that no cleaner has cleaned are left out")
    return topics, notes


def _cleaned(log_dir: Path) -> set[str]:
    path = log_dir / "cleaner-offset-checkpoint"
    with raised_as(UsageError, f"{path} cannot be read", CorruptLogError, OSError):
        return {topic for topic, _ in read_checkpoint(path.read_bytes(), source=str(path))} if path.exists() else set()


def _with_segments(copy: ReplicaCopy, notes: list[selection.Note]) -> ReplicaCopy:
    """Return the replica with its segments, and add notes on other files in its folder."""
    broker, name = copy.broker, copy.folder.name
    unclear = f"the log of broker {broker} cannot be distinguished from its leftovers"
    with _reading(broker, copy.folder), raised_as(UsageError, unclear, CorruptLogError):
        live = live_segments(copy.folder)
    if not live.segments:
        raise UsageError(f"broker {broker}: {copy.folder} has no segment that is in use")
    notes += (selection.Note(broker, name, f"{why}: left out", file) for file, why in live.left_out.items())
    if not (copy.folder / LEADER_EPOCHS).exists():
        notes.append(selection.Note(broker, name, f"no {LEADER_EPOCHS}: {NO_EPOCHS}"))
    return replace(copy, segments=tuple(live.segments))


def _reading(broker: int, folder: Path) -> AbstractContextManager[None]:
    return raised_as(UsageError, f"the folder of broker {broker} cannot be read: {folder}", OSError)


def _folders(broker: int, folder: Path) -> list[Path]:
    if _is_partition(broker, folder):
        return [folder.absolute()]
    return [path.absolute() for path in _listed(broker, folder) if path.is_dir()]


def _is_partition(broker: int, folder: Path) -> bool:
    return any(_OF_PARTITION.match(path.name) for path in _listed(broker, folder))


def _listed(broker: int, folder: Path) -> list[Path]:
    with _reading(broker, folder):
        return sorted(folder.iterdir())


def _metadata_of(logs: Mapping[int, Path], replicas: Iterable[ReplicaCopy]) -> JoinedLog:
    """Read the metadata logs, by broker, of the cluster of these replicas.

    The history of a topic is left out if the ``partition.metadata`` of a replica is missing or has another topic id
    (KIP-516), as the topic was deleted and created again; and if a replica has a leader epoch after the history's last
    one, as the log ends too early to show who received every record since. Raises ``OSError``.
    """
    joined = read_metadata_logs(logs, {copy.topic for copy in replicas})
    if joined.metadata is None:
        return joined
    ids = {topic: history.topic_id for (topic, _), history in joined.metadata.histories.items()}
    notes: dict[str, str] = {}
    for copy in replicas:
        topic, own_id = copy.topic, topic_id(copy.folder)
        if topic in ids and own_id != ids[topic]:
            has = f"is of topic id {own_id}" if own_id else "has no topic id"
            but = f"the metadata log has topic id {ids[topic]}: the history of {topic} is left out"
            notes[topic] = f"{copy.folder.name} of broker {copy.broker} {has}, {but}"
        history, newest = joined.metadata.histories.get(copy.place), _newest_leader_epoch(copy.folder)
        if history is not None and newest > (last := history.states[-1].leader_epoch):
            but = f"the metadata log ends in epoch {last}: the history of {topic} is left out, copy a newer log"
            notes[topic] = f"{copy.folder.name} of broker {copy.broker} has leader epoch {newest}, and {but}"
    histories = {place: history for place, history in joined.metadata.histories.items() if place[0] not in notes}
    return JoinedLog(replace(joined.metadata, histories=histories), (*joined.notes, *notes.values()))


def _newest_leader_epoch(folder: Path) -> int:
    path = folder / LEADER_EPOCHS
    with suppress(CorruptLogError, FileNotFoundError):  # the checkers report it
        return max(read_leader_epochs(path.read_bytes(), source=str(path)), default=-1)
    return -1


def _raise_if_twice(copies: Iterable[ReplicaCopy]) -> None:
    folders: dict[tuple[str, int], Path] = {}
    for copy in copies:
        if copy.place in folders:
            both = f"{folders[copy.place]} and {copy.folder}"
            raise UsageError(f"broker {copy.broker} has {copy.topic}-{copy.partition} twice: {both}")
        folders[copy.place] = copy.folder


def _one_id_each(copies: Iterable[ReplicaCopy]) -> dict[str, str]:
    """Return the topic ids (KIP-516). Raises `UsageError` if folders belong to successive topics of one name."""
    ids: dict[str, tuple[str, Path]] = {}
    for copy in copies:
        path = copy.folder / PARTITION_METADATA
        with raised_as(UsageError, f"broker {copy.broker}: {path} cannot be read", OSError):
            own_id = topic_id(copy.folder)
        first_id, first_path = (None, path) if own_id is None else ids.setdefault(copy.topic, (own_id, path))
        if own_id != first_id:
            raise UsageError(
                f"two topics were named {copy.topic}: {first_path} says {first_id}, {path} says {own_id}; "
                "compare copies that were taken together"
            )
    return {topic: own_id for topic, (own_id, _) in ids.items()}
