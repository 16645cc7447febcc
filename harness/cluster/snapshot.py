"""Take a named snapshot of every broker: its files, and the batches that it serves."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from harness.cluster.cluster import Cluster
from harness.cluster.observe import as_lists
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.kafka_api.fetch import CONSUMER_REPLICA_ID, ReplicaReader, ReplicaState
from harness.kafka_api.transactions import OpenTransaction
from harness.run_folder.store import BATCHES, BROKER_UUID, STATE, RunFolder

FETCH_ATTEMPTS = 5

More: TypeAlias = "dict[TopicPartition, dict[str, Any]]"


def take(cluster: Cluster, folder: RunFolder, name: str) -> None:
    """Copy every replica's files, and fetch the batches that live brokers serve. Raises if a replica cannot be read."""
    runtime = cluster.runtime
    identities, states = cluster.control.identities(), cluster.states()
    compaction = {tp: cluster.control.compaction(tp) for tp in cluster.replicas}
    for broker in runtime.brokers:
        partitions = [tp for tp, brokers in cluster.replicas.items() if broker in brokers]
        stored, is_up = folder.broker_snapshot(broker, name), runtime.is_up(broker)
        for topic, partition in partitions:
            destination = stored / f"{topic}-{partition}"
            runtime.copy_partition(broker, topic, partition, destination)
            cluster.control.file_logs(destination, is_up=is_up)
        runtime.copy_checkpoints(broker, stored)
        if broker in identities:
            (stored / BROKER_UUID).write_text(identities[broker])
        if is_up:
            more = {
                tp: {
                    **({"leader": states[tp].leader, "leader_epoch": states[tp].leader_epoch} if tp in states else {}),
                    **({"compaction": compaction[tp][broker]} if broker in compaction[tp] else {}),
                }
                for tp in partitions
            }
            _fetch(cluster, folder.fetched_snapshot(broker, name), broker, partitions, more)


def _fetch(cluster: Cluster, fetched: Path, broker: int, partitions: list[TopicPartition], more: More) -> None:
    """Store ``batches.bin`` (to the log end offset) and ``state.json``: the broker's status of the replica.

    A stalled request is repeated on a new connection, as the link may lose packets. state.json: see `write_state`.
    """

    def fetch() -> None:
        with closing(cluster.control.reader(broker)) as reader:
            _store(reader, fetched, broker, partitions, more)

    for _ in range(FETCH_ATTEMPTS - 1):
        with suppress(OSError):
            return fetch()
    return fetch()


def _store(reader: ReplicaReader, fetched: Path, broker: int, partitions: list[TopicPartition], more: More) -> None:
    opened = reader.open_transactions(partitions)
    complete = states_of(reader.read(partitions), broker)
    consumed = states_of(reader.read(partitions, replica_id=CONSUMER_REPLICA_ID), broker)
    for topic, partition in partitions:
        tp = (topic, partition)
        destination = fetched / f"{topic}-{partition}"
        destination.mkdir(parents=True, exist_ok=True)
        (destination / BATCHES).write_bytes(complete[tp].records)
        write_state(destination, consumed[tp], opened[tp], more[tp])


def write_state(
    folder: Path, consumed: ReplicaState, opened: Sequence[OpenTransaction] | None, more: Mapping[str, Any]
) -> None:
    """Write ``state.json``: log_start, high_watermark, last_stable_offset, aborted [[producer id, first offset]].

    Then open [[producer id, epoch, first offset]], or null if the broker lists none, and ``more``: ``leader``,
    ``leader_epoch``, and ``compaction`` (`harness.systems.Control.compaction`).
    """
    content = {
        "log_start": consumed.log_start,
        "high_watermark": consumed.high_watermark,
        "last_stable_offset": consumed.last_stable_offset,
        "aborted": [list(pair) for pair in consumed.aborted],
        "open": as_lists(opened),
        **more,
    }
    (folder / STATE).write_text(json.dumps(content) + "\n")


def states_of(answers: dict[TopicPartition, ReplicaState | str], broker: int) -> dict[TopicPartition, ReplicaState]:
    """Return a broker's answers. Raises `HarnessError` for a partition that the broker does not serve."""
    states = {}
    for (topic, partition), answer in answers.items():
        if isinstance(answer, str):
            raise HarnessError(f"broker {broker} does not serve {topic}-{partition}: {answer}")
        states[topic, partition] = answer
    return states
