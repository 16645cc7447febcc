"""Replicas of a real broker: the answers of the broker about them, and their files."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from harness.broker_files.segments.batches import CorruptLogError, iter_batches
from harness.broker_files.side_files.checkpoints import read_checkpoint, read_leader_epochs
from harness.broker_files.side_files.producer_state import iter_txnindex, read_producer_snapshot
from harness.errors import HarnessError
from harness.kafka_api import groups as groups_api
from harness.kafka_api.connection import Connection
from harness.kafka_api.error_names import UNSTABLE_OFFSET
from harness.kafka_api.fetch import CONSUMER_REPLICA_ID
from harness.kafka_api.groups import fetch_offsets_of_groups
from harness.kafka_api.replica import WireReader
from harness.kafka_api.transactions import describe_producers
from harness.model_checking.conform.picture import (
    ALL_KEYS,
    NO_OFFSET,
    UNSTABLE,
    FetchedOffset,
    ReplicaPicture,
    aborts_of,
    log_fields,
    states_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.kafka_api.messages import Caller, TopicPartition
    from harness.model_checking.conform.picture import Named, ProducerState
    from harness.runtimes.base import Runtime

CLEANED, EPOCHS = "cleaner-offset-checkpoint", "leader-epoch-checkpoint"


def read_replicas(
    runtime: Runtime,
    broker: int,
    partitions: Iterable[TopicPartition],
    named: Mapping[TopicPartition, Named],
    scratch: Path,
) -> dict[TopicPartition, ReplicaPicture]:
    """Return the pictures of a broker's replicas, by partition, as for a consumer that reads from the log start on.

    Replicas that the broker does not report, or whose folder is changing, are left out. Raises OSError.
    """
    with closing(Connection(runtime.address(broker))) as connection:
        answers = WireReader(connection).read(partitions, replica_id=CONSUMER_REPLICA_ID)
        states = {tp: answer for tp, answer in answers.items() if not isinstance(answer, str)}
        producers = {
            tp: states_of(map(astuple, answer), named[tp])
            for tp, answer in connection.ask(describe_producers(states)).items()
            if not isinstance(answer, str)
        }
    folders = _read_folders(runtime, broker, producers, named, scratch)
    return {
        tp: ReplicaPicture(
            log_start=state.log_start,
            high_watermark=state.high_watermark,
            last_stable_offset=state.last_stable_offset,
            listed_aborts=aborts_of(state.aborted, named[tp]),
            producers=producers[tp],
            **folders[tp],
        )
        for tp, state in states.items()
        if tp in folders
    }


def _read_folders(
    runtime: Runtime,
    broker: int,
    partitions: Iterable[TopicPartition],
    named: Mapping[TopicPartition, Named],
    scratch: Path,
) -> dict[TopicPartition, dict[str, Any]]:
    """Copy a broker's folders of these partitions, and read them; folders that are changing are left out."""
    folder = scratch / str(broker)
    folders = {}
    runtime.copy_checkpoints(broker, folder)
    try:
        path = folder / CLEANED
        cleaned = read_checkpoint(path.read_bytes(), source=path.name) if path.exists() else {}
        for tp in partitions:
            copied = folder / f"{tp[0]}-{tp[1]}"
            try:
                runtime.copy_partition(broker, *tp, copied)
                folders[tp] = read_folder(copied, named[tp], cleaned.get(tp))
            except (HarnessError, CorruptLogError):
                continue
    finally:
        shutil.rmtree(folder)
    return folders


def read_folder(folder: Path, named: Named, cleaned_to: int | None) -> dict[str, Any]:
    """Return the fields of a `ReplicaPicture` that a partition's folder gives. Raises `CorruptLogError`."""
    logs = sorted(folder.glob("*.log"))
    batches = [batch for path in logs for batch in iter_batches(path.read_bytes(), source=path.name)]
    indexes = {path: iter_txnindex(path.read_bytes(), source=path.name) for path in sorted(folder.glob("*.txnindex"))}
    epochs = folder / EPOCHS
    return {
        **log_fields(batches, ((int(path.stem), txn) for path, index in indexes.items() for txn in index), named),
        "segments": tuple(int(path.stem) for path in logs),
        "cleaned_to": cleaned_to,
        "epochs": tuple(sorted(read_leader_epochs(epochs.read_bytes(), source=EPOCHS).items()))
        if epochs.exists()
        else (),
        "snapshots": tuple(
            (int(log.stem), _snapshot(snapshot, named))
            for log in logs[1:]
            if (snapshot := log.with_suffix(".snapshot")).exists()
        ),
    }


def _snapshot(path: Path, named: Named) -> tuple[ProducerState, ...]:
    entries = read_producer_snapshot(path.read_bytes(), source=path.name)
    return states_of(
        ((it.producer_id, it.producer_epoch, it.last_sequence, it.current_txn_first_offset) for it in entries), named
    )


def fetch_offsets(coordinator: Caller, groups: Sequence[str]) -> dict[str, tuple[FetchedOffset, ...]]:
    """Return a coordinator's answers to OffsetFetch about groups, with ``require_stable`` and without.

    Groups that the broker does not coordinate yet are left out. Raises OSError.
    """
    partitions = [(name, 0) for name in sorted(ALL_KEYS)]
    stable, current = (
        coordinator.ask(fetch_offsets_of_groups(dict.fromkeys(groups, partitions), require_stable=is_stable))
        for is_stable in (True, False)
    )
    return {
        group: tuple(FetchedOffset(tp[0], _text(stable[group][tp]), _text(current[group][tp])) for tp in partitions)
        for group in stable.keys() & current.keys()
    }


def _text(answer: int | str) -> str:
    return {groups_api.NO_OFFSET: NO_OFFSET, UNSTABLE_OFFSET: UNSTABLE}.get(answer, str(answer))
