"""Takes a named snapshot of every broker: its files, and what it serves."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.replica import CONSUMER_REPLICA_ID, DEBUG_REPLICA_ID, ReplicaState, fetch_all, open_transactions
from harness.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.replica import TopicPartition
    from harness.runtimes.base import Runtime
    from harness.store import RunFolder


def take(runtime: Runtime, folder: RunFolder, name: str, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Copy every replica's files and, from brokers that are up, fetch the same batches.

    Raises `HarnessError` or OSError where a replica cannot be read: half a snapshot is none.
    """
    for broker in runtime.brokers:
        held = [tp for tp, brokers in replicas.items() if broker in brokers]
        for topic, partition in held:
            destination = folder.broker_snapshot(broker, name) / f"{topic}-{partition}"
            runtime.copy_partition(broker, topic, partition, destination)
        runtime.copy_checkpoints(broker, folder.broker_snapshot(broker, name))
        if runtime.is_up(broker):
            with closing(Connection(runtime.address(broker))) as connection:
                _fetch(connection, folder, broker, name, held)


def _fetch(connection: Connection, folder: RunFolder, broker: int, name: str, held: Sequence[TopicPartition]) -> None:
    """Store ``batches.bin`` (to the log end) and ``state.json``: what the broker says of itself.

    state.json: log_start, high_watermark, last_stable_offset, aborted [[producer id, first offset]],
    open [[producer id, epoch, first offset]].
    """
    opened = open_transactions(connection, held)
    whole = _states(fetch_all(connection, held, replica_id=DEBUG_REPLICA_ID), broker)
    consumed = _states(fetch_all(connection, held, replica_id=CONSUMER_REPLICA_ID), broker)
    for topic, partition in held:
        tp = (topic, partition)
        destination = folder.fetched_snapshot(broker, name) / f"{topic}-{partition}"
        destination.mkdir(parents=True, exist_ok=True)
        (destination / "batches.bin").write_bytes(whole[tp].records)
        said = {
            "log_start": consumed[tp].log_start,
            "high_watermark": consumed[tp].high_watermark,
            "last_stable_offset": consumed[tp].last_stable_offset,
            "aborted": [list(pair) for pair in consumed[tp].aborted],
            "open": [[t.producer_id, t.producer_epoch, t.first_offset] for t in opened[tp]],
        }
        (destination / "state.json").write_text(json.dumps(said) + "\n")


def _states(answers: dict[TopicPartition, ReplicaState | str], broker: int) -> dict[TopicPartition, ReplicaState]:
    states = {}
    for (topic, partition), answer in answers.items():
        if isinstance(answer, str):
            raise HarnessError(f"broker {broker} does not serve {topic}-{partition}: {answer}")
        states[topic, partition] = answer
    return states
