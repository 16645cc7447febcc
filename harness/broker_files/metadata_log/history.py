"""The history of partitions and brokers by metadata records: leaders, ISRs and broker registrations over time.

Records are replayed as brokers do: ``PartitionRegistration.merge`` for the changes of a partition,
``MetadataBatchLoader`` for the transactions of the log itself (KIP-868).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.internal_topics.message_format import uuid_text
from harness.broker_files.metadata_log.copy import RecordType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from harness.broker_files.metadata_log.copy import Message

NO_LEADER: Final = -1

_CLEANUP_POLICY: Final = "cleanup.policy"
_RECOVERING = 1
_UNCHANGED_RECOVERY = -1
_UNCHANGED_LEADER = -2
"""``NO_LEADER_CHANGE``: a PartitionChangeRecord changes neither leader nor leader epoch."""
_TOPIC_RESOURCE = 2
"""``ConfigResource.Type.TOPIC``"""
_MIGRATING = uuid_text(None)
"""``DirectoryId.MIGRATING``: the directory of a replica is unknown."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition from the record at metadata offset ``offset`` until the next state.

    ``leader`` may be `NO_LEADER`. ``recovering``: an unclean election chose the leader, which has not recovered yet
    (``LeaderRecoveryState``). ``directories``: the id of the log directory of each of ``replicas``, as in its
    ``meta.properties`` (KIP-858); empty if they are unknown.
    """

    offset: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    recovering: bool = False
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """The states of a partition in order. ``topic_id``: as in ``partition.metadata``.

    ``since_creation``: whether the first state is the partition's creation. Else earlier states are lost, the first
    state is from a snapshot, and its ``offset`` is the last one before the snapshot's end.
    """

    topic: str
    topic_id: str
    partition: int
    since_creation: bool
    states: tuple[PartitionState, ...]


@dataclass(frozen=True)
class ClusterMetadata:
    """Partitions and brokers by a metadata log, from ``start_offset`` to before ``end_offset``.

    ``source``: the folder of the copy that ends last. ``histories``: by topic and partition, of the last topic of each
    name. ``topics``: the topics that exist at the end. ``registrations``: by broker, the metadata offsets at which a
    process of the broker first registered, which are its broker epochs. ``cleanup_policies``: by topic, explicit
    policies at the end.
    """

    source: Path
    histories: Mapping[tuple[str, int], PartitionHistory]
    registrations: Mapping[int, tuple[int, ...]]
    topics: frozenset[str]
    start_offset: int
    end_offset: int
    cleanup_policies: Mapping[str, str] = field(default_factory=dict)


@dataclass
class MetadataReplay:
    """The state after the records replayed so far. ``topics``: the topics whose partitions are kept; None: all.

    ``names``: by topic id. ``existing``: topic ids by name; ``last_ids``: also of deleted topics. ``states``: by topic
    id and partition.
    """

    topics: Collection[str] | None = None
    names: dict[str, str] = field(default_factory=dict)
    existing: dict[str, str] = field(default_factory=dict)
    last_ids: dict[str, str] = field(default_factory=dict)
    states: dict[tuple[str, int], list[PartitionState]] = field(default_factory=dict)
    registrations: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    cleanup_policies: dict[str, str] = field(default_factory=dict)

    def histories(self) -> dict[tuple[str, int], PartitionHistory]:
        """Return the history of each partition of the last topic of its name."""
        return {
            (topic, partition): PartitionHistory(topic, topic_id, partition, _is_creation(states[0]), tuple(states))
            for (topic_id, partition), states in self.states.items()
            if self.last_ids[topic := self.names[topic_id]] == topic_id
        }


def replay(messages: Iterable[Message], topics: Collection[str] | None = None) -> MetadataReplay:
    """Replay records in order, and keep the partitions of these topics, or of all.

    Changes of an unknown partition are left out: the log may begin after the partition's creation.
    """
    replayed = MetadataReplay(topics)
    for message in _committed(messages):
        _RULES[message.type](replayed, message.offset, message.fields)
    return replayed


def _committed(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the committed records: records of a transaction when it ends, not if it is aborted or open."""
    pending: list[Message] | None = None
    for message in messages:
        match message.type:
            case RecordType.BEGIN_TRANSACTION:
                pending = []
            case RecordType.END_TRANSACTION:
                yield from pending or ()
                pending = None
            case RecordType.ABORT_TRANSACTION:
                pending = None
            case _ if pending is not None:
                pending.append(message)
            case _:
                yield message


def _topic(replayed: MetadataReplay, _: int, fields: Mapping[str, Any]) -> None:
    name, topic_id = fields["name"], fields["topic_id"]
    replayed.names[topic_id] = name
    replayed.existing[name] = replayed.last_ids[name] = topic_id


def _remove_topic(replayed: MetadataReplay, _: int, fields: Mapping[str, Any]) -> None:
    name = replayed.names.get(fields["topic_id"])
    if name is not None and replayed.existing.get(name) == fields["topic_id"]:
        del replayed.existing[name]
        # The settings are deleted with the topic (``ConfigurationControlManager.deleteTopicConfigs``).
        replayed.cleanup_policies.pop(name, None)


def _config(replayed: MetadataReplay, _: int, fields: Mapping[str, Any]) -> None:
    if (fields["resource_type"], fields["name"]) != (_TOPIC_RESOURCE, _CLEANUP_POLICY):
        return
    if fields["value"] is None:
        replayed.cleanup_policies.pop(fields["resource_name"], None)
    else:
        replayed.cleanup_policies[fields["resource_name"]] = fields["value"]


def _partition(replayed: MetadataReplay, offset: int, fields: Mapping[str, Any]) -> None:
    topic_id = fields["topic_id"]
    name = replayed.names.get(topic_id)
    if name is None or (replayed.topics is not None and name not in replayed.topics):
        return
    state = PartitionState(
        offset,
        leader=fields["leader"],
        leader_epoch=fields["leader_epoch"],
        partition_epoch=fields["partition_epoch"],
        replicas=tuple(fields["replicas"]),
        isr=tuple(fields["isr"]),
        recovering=fields.get("leader_recovery_state") == _RECOVERING,
        directories=_directories(fields.get("directories")) or (),
    )
    replayed.states[topic_id, fields["partition_id"]] = [state]


def _change_partition(replayed: MetadataReplay, offset: int, fields: Mapping[str, Any]) -> None:
    states = replayed.states.get((fields["topic_id"], fields["partition_id"]))
    if states is None:
        return
    last = states[-1]
    changed: dict[str, Any] = {
        name: tuple(fields[name]) for name in ("replicas", "isr") if fields.get(name) is not None
    }
    directories = _directories(fields.get("directories"))
    if directories is not None:
        changed["directories"] = directories
    leader = fields.get("leader", _UNCHANGED_LEADER)
    if leader != _UNCHANGED_LEADER:
        # Also for the same leader: in this way a controller increments only the leader epoch.
        changed |= {"leader": leader, "leader_epoch": last.leader_epoch + 1}
    recovery = fields.get("leader_recovery_state", _UNCHANGED_RECOVERY)
    if recovery != _UNCHANGED_RECOVERY:
        changed["recovering"] = recovery == _RECOVERING
    states.append(replace(last, offset=offset, partition_epoch=last.partition_epoch + 1, **changed))


def _register(replayed: MetadataReplay, _: int, fields: Mapping[str, Any]) -> None:
    # A process that registers again keeps its broker epoch. The offset of a record in a snapshot is unknown.
    replayed.registrations[fields["broker_id"]].add(fields["broker_epoch"])


_RULES: Final[Mapping[RecordType, Callable[[MetadataReplay, int, Mapping[str, Any]], None]]] = {
    RecordType.TOPIC: _topic,
    RecordType.REMOVE_TOPIC: _remove_topic,
    RecordType.CONFIG: _config,
    RecordType.PARTITION: _partition,
    RecordType.PARTITION_CHANGE: _change_partition,
    RecordType.REGISTER_BROKER: _register,
}


def _directories(ids: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the ids; empty if every id is `_MIGRATING`, as before KIP-858."""
    if ids is None:
        return None
    directories = tuple(ids)
    return directories if set(directories) != {_MIGRATING} else ()


def _is_creation(state: PartitionState) -> bool:
    """Return whether the partition has not changed since its creation: every change increments the partition epoch."""
    return state.partition_epoch == 0 and state.leader_epoch == 0
