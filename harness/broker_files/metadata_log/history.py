"""The history of partitions and brokers by metadata records: leaders, ISRs and broker registrations over time.

Records are replayed as brokers do: ``PartitionRegistration.merge`` for the changes of a partition,
``MetadataBatchLoader`` for the transactions of the log itself (KIP-868).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final

from harness.broker_files.internal_topics.message_format import uuid_text
from harness.broker_files.metadata_log.copy import Message, RecordType
from harness.host.clock import time_text

NO_LEADER: Final = -1

_RECOVERING, _UNCHANGED_RECOVERY = 1, -1
_UNCHANGED_LEADER = -2
"""``NO_LEADER_CHANGE``: a PartitionChangeRecord changes neither leader nor leader epoch."""
_TOPIC_RESOURCE = 2
"""``ConfigResource.Type.TOPIC``."""
_MIGRATING = uuid_text(None)
"""``DirectoryId.MIGRATING``: the directory of a replica is unknown."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition from the record at metadata offset ``offset`` until the next state.

    ``leader`` may be `NO_LEADER`. ``recovering``: an unclean election chose the leader, which has not recovered yet
    (``LeaderRecoveryState``). ``directories``: the id of the log directory of each of ``replicas``, as in its
    ``meta.properties`` (KIP-858); empty if they are unknown. ``time_ms``: of the record; None if it is unknown.
    """

    offset: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    recovering: bool = False
    directories: tuple[str, ...] = ()
    time_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """The states of a partition in order. ``topic_id``: as in ``partition.metadata``.

    ``since_creation``: whether the first state is the partition's creation, as every change increments the partition
    epoch. Else the first state is from a snapshot, and its ``offset`` is the last one before the snapshot's end.
    """

    topic_id: str
    since_creation: bool
    states: tuple[PartitionState, ...]


@dataclass(frozen=True)
class ClusterMetadata:
    """Partitions and brokers by a metadata log, from ``start_offset`` to before ``end_offset``.

    ``source``: the folder of the copy that ends last. ``histories``: by topic and partition, of the last topic of each
    name. ``topics``: the topics that exist at the end. ``registrations``: by broker, the metadata offsets at which a
    process of the broker first registered, which are its broker epochs. ``settings``: of each topic itself, at the end.
    """

    source: Path
    histories: Mapping[tuple[str, int], PartitionHistory]
    registrations: Mapping[int, tuple[int, ...]]
    topics: frozenset[str]
    start_offset: int
    end_offset: int
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass
class MetadataReplay:
    """The state after the records replayed so far. ``topics``: the topics whose partitions are kept; None: all.

    ``names``: by topic id. ``existing``: topic ids by name; ``last_ids``: also of deleted topics. ``states``: by topic
    id and partition. ``registrations``, ``settings``: as in `ClusterMetadata`.
    """

    topics: Collection[str] | None = None
    names: dict[str, str] = field(default_factory=dict)
    existing: dict[str, str] = field(default_factory=dict)
    last_ids: dict[str, str] = field(default_factory=dict)
    states: dict[tuple[str, int], list[PartitionState]] = field(default_factory=dict)
    registrations: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    def apply(self, message: Message) -> None:
        """Replay a record. Changes of an unknown partition are left out: the log may begin after its creation."""
        fields = message.fields
        match message.type:
            case RecordType.TOPIC:
                self.names[fields["topic_id"]] = fields["name"]
                self.existing[fields["name"]] = self.last_ids[fields["name"]] = fields["topic_id"]
            case RecordType.REMOVE_TOPIC:
                name = self.names.get(fields["topic_id"], "")
                if self.existing.get(name) == fields["topic_id"]:
                    del self.existing[name]
                    # The settings are deleted with the topic (``ConfigurationControlManager.deleteTopicConfigs``).
                    self.settings.pop(name, None)
            case RecordType.CONFIG if fields["resource_type"] == _TOPIC_RESOURCE:
                own = self.settings.setdefault(fields["resource_name"], {})
                own.pop(fields["name"], None)
                own |= {} if fields["value"] is None else {fields["name"]: fields["value"]}
            case RecordType.PARTITION:
                name = self.names.get(fields["topic_id"], "")
                if name and (self.topics is None or name in self.topics):
                    self.states[fields["topic_id"], fields["partition_id"]] = [_created(message)]
            case RecordType.PARTITION_CHANGE:
                if states := self.states.get((fields["topic_id"], fields["partition_id"])):
                    states.append(_changed(states[-1], message))
            case RecordType.REGISTER_BROKER:
                # A process that registers again keeps its broker epoch. The offset in a snapshot is unknown.
                self.registrations[fields["broker_id"]].add(fields["broker_epoch"])

    def histories(self) -> dict[tuple[str, int], PartitionHistory]:
        """Return the history of each partition of the last topic of its name."""
        return {
            (topic, partition): PartitionHistory(
                topic_id, states[0].partition_epoch == states[0].leader_epoch == 0, tuple(states)
            )
            for (topic_id, partition), states in self.states.items()
            if self.last_ids[topic := self.names[topic_id]] == topic_id
        }


def committed(messages: Iterable[Message]) -> Iterator[Message]:
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


def _created(message: Message) -> PartitionState:
    fields = message.fields
    return PartitionState(
        message.offset,
        leader=fields["leader"],
        leader_epoch=fields["leader_epoch"],
        partition_epoch=fields["partition_epoch"],
        replicas=tuple(fields["replicas"]),
        isr=tuple(fields["isr"]),
        recovering=fields.get("leader_recovery_state") == _RECOVERING,
        directories=_directories(fields.get("directories", ())),
        time_ms=message.time_ms,
    )


def _changed(last: PartitionState, message: Message) -> PartitionState:
    fields = message.fields
    lists = ("replicas", "isr", "directories")
    changed: dict[str, Any] = {name: tuple(fields[name]) for name in lists if fields.get(name) is not None}
    if "directories" in changed:
        changed["directories"] = _directories(changed["directories"])
    if (leader := fields.get("leader", _UNCHANGED_LEADER)) != _UNCHANGED_LEADER:
        # Also for the same leader: in this way a controller increments only the leader epoch.
        changed |= {"leader": leader, "leader_epoch": last.leader_epoch + 1}
    if (recovery := fields.get("leader_recovery_state", _UNCHANGED_RECOVERY)) != _UNCHANGED_RECOVERY:
        changed["recovering"] = recovery == _RECOVERING
    epoch = last.partition_epoch + 1
    return replace(last, offset=message.offset, time_ms=message.time_ms, partition_epoch=epoch, **changed)


@dataclass(frozen=True)
class Absence:
    """A time in which a broker was out of the ISR. None: before the first state, of unknown time; or until now."""

    since_ms: int | None
    until_ms: int | None

    @property
    def took_s(self) -> float:
        """The duration; infinite if it is unknown."""
        return inf if self.since_ms is None or self.until_ms is None else (self.until_ms - self.since_ms) / 1000

    def __str__(self) -> str:
        """Return the absence as the end of a sentence."""
        start = "" if self.since_ms is None else f" from {time_text(self.since_ms)}"
        return f"out of the ISR{start}" + (" on" if self.until_ms is None else f" until {time_text(self.until_ms)}")


def absences(states: Iterable[PartitionState], broker: int) -> list[Absence]:
    """Return when a broker was out of the ISR, in order."""
    result: list[Absence] = []
    is_out = False
    for state in states:
        if broker not in state.isr:
            result += [] if is_out else [Absence(state.time_ms, None)]
        elif is_out:
            result[-1] = replace(result[-1], until_ms=state.time_ms)
        is_out = broker not in state.isr
    return result


def _directories(ids: Iterable[str]) -> tuple[str, ...]:
    """Return the ids; empty if every id is `_MIGRATING`, as before KIP-858."""
    directories = tuple(ids)
    return directories if set(directories) != {_MIGRATING} else ()
