"""Read a run folder's files as rows, in Spark's Python workers: one reader for each table of evidence.

Files are listed when a job runs, not when it is planned: a check can be planned before the run has ended.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.schemas import ABORTS, ENTRIES, HISTORY, OBSERVATIONS, SETTINGS, STATES
from harness.broker_files.segments.batches import Batch, CorruptLogError, iter_entries, iter_records, marker, until_cut
from harness.broker_files.side_files.checkpoints import read_checkpoint
from harness.broker_files.side_files.producer_state import iter_txnindex
from harness.errors import raised_as
from harness.kafka_api import partition_named
from harness.run_folder import store
from harness.run_folder.history import HEADER_TXN, key_of
from harness.run_folder.store import RunFolder
from harness.schedules.timers import DAYS

DISK, FETCH = "disk", "fetch"
ROWS_PER_ARROW_BATCH = 10_000
STATE_FIELDS = ("log_start", "high_watermark", "last_stable_offset", "aborted", "open")
"""Fields of a broker's answer about a replica."""
RETENTIONS = (
    ("delete.retention.ms", "log.cleaner.delete.retention.ms", 86_400_000),
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", 0),
)
"""Topic setting, broker setting and Kafka's default, in the order of `SETTINGS` and of precedence."""
CLOCK_SKEW = "clock-skew"
"""The nemesis that sets clocks forward, as `DAYS` do."""

Row = tuple[Any, ...]


class NotReadableError(Exception):
    """Raised for a file with content that no run writes; the message names the file and the position."""


@dataclass(frozen=True)
class TableReader:
    """Reads a table. ``files`` yields each file and the columns from its path, ``rows`` the other columns of a file.

    ``rows`` yields all columns in order, or dictionaries, where columns that are missing are null.
    """

    description: str
    schema: t.StructType
    files: Callable[[Any], Iterator[tuple[Row, Any]]]
    rows: Callable[[Any], Iterator[Row | dict[str, Any]]]


def read(reader: TableReader, folders: Sequence[Any], share: int, shares: int) -> Iterator[pa.RecordBatch]:
    """Yield the ``share``-th of ``shares`` parts of a table, in Arrow batches of bounded size.

    ``folders``: objects that ``reader.files`` accepts. The last row of a file that is unreadable from some position on
    has the reason in ``problem``.
    """
    arrow = to_arrow_schema(reader.schema)
    files = [file for folder in folders for file in reader.files(folder)]
    rows = (row for head, source in files[share::shares] for row in _rows(reader, head, source))
    while batch := list(islice(rows, ROWS_PER_ARROW_BATCH)):
        yield _arrow_batch(batch, arrow, reader.description)


def _rows(reader: TableReader, head: Row, source: Any) -> Iterator[Row]:
    columns = reader.schema.names[len(head) : -1]
    try:
        for row in reader.rows(source):
            yield (*head, *(map(row.get, columns) if isinstance(row, dict) else row), None)
    except (CorruptLogError, NotReadableError, OSError) as error:
        yield (*head, *(None,) * len(columns), str(error))


def _arrow_batch(rows: list[Row], schema: pa.Schema, description: str) -> pa.RecordBatch:
    columns = []
    for field, column in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            columns.append(pa.array(column, field.type))
        except (pa.ArrowException, OverflowError) as error:
            problem = f"{description} has an entry whose {field.name} is not of type {field.type}: {error}"
            return pa.RecordBatch.from_pylist([{"problem": problem}], schema=schema)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _logs(folder: RunFolder) -> Iterator[tuple[Row, Path]]:
    """Yield each log with the columns of `_replica_files` and ``judged``; logs on disk come first."""
    stored = set()
    for head, path in _replica_files((".log", ".bin"), folder):
        _, snapshot, source, *replica = head
        if source == DISK:
            stored.add((snapshot, *replica))
        yield (*head, source == DISK or (snapshot, *replica) not in stored), path


def _replica_files(suffixes: Collection[str], folder: RunFolder) -> Iterator[tuple[Row, Path]]:
    """Yield each such file with run, snapshot, source, broker, topic and partition."""
    for source, top in ((DISK, store.BROKERS), (FETCH, store.FETCHED)):
        for path in sorted((folder.path / top).glob("*/*/*/*")):
            if path.suffix in suffixes and folder.has(path):
                broker, snapshot, name = path.parts[-4:-1]
                yield (folder.run_id, snapshot, source, int(broker), *partition_named(name)), path


def log_rows(path: Path, *, may_be_cut: bool = True) -> Iterator[Row]:
    """Yield the columns of `ENTRIES` that a log file gives; raise at its end if it has entries of older formats.

    ``may_be_cut``: whether the file may end inside a batch or in zeros, as the broker was appending when the file was
    copied, or was killed. `doubts` reports a batch that is missing because of that, as the broker served a longer log.
    """
    skipped = 0
    entries = iter_entries(path.read_bytes(), source=str(path), is_last=may_be_cut)
    for entry in until_cut(entries) if may_be_cut else entries:
        if isinstance(entry, Batch):
            yield from batch_rows(entry, str(path))
        else:
            skipped += 1
    if skipped:
        raise NotReadableError(f"{path}: {skipped} entries of magic 0 or 1 are not read")


def batch_rows(batch: Batch, source: str) -> Iterator[Row]:
    """Yield the columns of `ENTRIES` that a batch gives: a row for each record, or one for a batch without records."""
    control_record = marker(batch, source=source)
    head = (
        batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc,
        batch.producer_id, batch.producer_epoch, batch.is_transactional, batch.is_control,
        control_record.type if control_record else None, batch.delete_horizon_ms, batch.max_timestamp_ms,
    )  # fmt: skip
    if batch.is_control or batch.is_empty:
        yield (*head, True, None, None, None, None)
        return
    for index, record in enumerate(iter_records(batch, source=source)):
        values = (value for name, value in record.headers if name == HEADER_TXN and value is not None)
        txn = next((value.decode("utf-8", "backslashreplace") for value in values), None)
        yield (*head, index == 0, record.offset, record.key, record.is_tombstone, txn)


def _aborts(path: Path) -> Iterator[Row]:
    aborts = iter_txnindex(path.read_bytes(), source=str(path))
    return ((aborted.producer_id, aborted.first_offset, aborted.last_offset) for aborted in aborts)


def _replicas(folder: RunFolder) -> Iterator[tuple[Row, tuple[RunFolder, Path, Path]]]:
    """Yield run, snapshot and REPLICA that has files or answers, with the folders of checkpoints and of answers."""
    stored, fetched = folder.path / store.BROKERS, folder.path / store.FETCHED
    places = {path.parts[-3:] for top in (stored, fetched) for path in top.glob("*/*/*/") if folder.has(path)}
    for broker, snapshot, name in sorted(places):
        head = (folder.run_id, snapshot, int(broker), *partition_named(name))
        yield head, (folder, stored / broker / snapshot, fetched / broker / snapshot / name)


def _state(replica: tuple[RunFolder, Path, Path]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the broker's answer about the replica, or of the checkpoints without an answer."""
    folder, checkpoints, fetched = replica
    answer = fetched / store.STATE
    state: dict[str, Any] = {}

    def checkpoint(name: str) -> int:
        is_there = folder.has(checkpoints / f"{name}-checkpoint")
        return (read_log_checkpoint(checkpoints, name, fetched.name) if is_there else None) or 0

    if served := folder.has(answer):
        state = json_object(answer.read_bytes(), str(answer))
        offsets = dict(zip(STATE_FIELDS, fields_of(state, STATE_FIELDS, str(answer)), strict=True))
    else:
        offsets = {"log_start": checkpoint("log-start-offset"), "high_watermark": checkpoint("replication-offset")}
    yield {
        "served": served,
        **offsets,
        "cleaner_offset": state.get("compaction", {}).get("cleaner_offset", checkpoint("cleaner-offset")),
        "directory_id": _directory_id(folder, checkpoints),
        "leader": state.get("leader"),
        "leader_epoch": state.get("leader_epoch"),
    }


def read_log_checkpoint(folder: Path, name: str, log: str) -> int | None:
    """Return the offset of a partition, whose folder is ``log``, in a log directory's checkpoint, or None."""
    path = folder / f"{name}-checkpoint"
    return read_checkpoint(path.read_bytes(), source=str(path)).get(partition_named(log)) if path.exists() else None


def _directory_id(folder: RunFolder, checkpoints: Path) -> str | None:
    """Return the id of a broker's log directory; a broker that starts with an empty directory creates another id."""
    uuid, properties = checkpoints / store.BROKER_UUID, checkpoints / "meta.properties"
    if folder.has(uuid):
        return uuid.read_text().strip()
    lines = properties.read_text(errors="replace").splitlines() if folder.has(properties) else []
    return next((line.partition("=")[2] for line in lines if line.startswith("directory.id=")), None)


def _json_file(name: str, folder: RunFolder) -> Iterator[tuple[Row, Path]]:
    if folder.has(path := folder.path / name):
        yield (folder.run_id,), path


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            place = f"{path} line {number}"
            event = json_object(line, place)
            with raised_as(NotReadableError, f"{place} has an invalid key", ValueError):
                key = key_of(event)
            yield {**event, "key": key}


def retentions_ms(manifest: dict[str, Any]) -> tuple[int | None, ...]:
    """Return the `RETENTIONS`; None if unknown, or if clocks are set forward. Raises `ValueError` for other values."""
    has_wrong_clocks = manifest.get("nemesis") == CLOCK_SKEW or manifest.get("timers") == DAYS.name
    if "topic_settings" not in manifest or has_wrong_clocks:
        return (None,) * len(RETENTIONS)
    topic, broker = manifest["topic_settings"], manifest.get("broker_settings", {})

    def setting(name: str, of_broker: str, default: int) -> int:
        value = topic.get(name, broker.get(of_broker, default))
        try:
            return int(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} is not a number: {value!r}") from error

    return tuple(setting(*retention) for retention in RETENTIONS)


def _settings(path: Path) -> Iterator[Row]:
    with raised_as(NotReadableError, str(path), ValueError):
        yield retentions_ms(json_object(path.read_bytes(), str(path)))


def fields_of(content: dict[str, Any], names: Sequence[str], place: str) -> Row:
    """Return these fields of a JSON object. Raises `NotReadableError` where one is missing."""
    missing = [name for name in names if name not in content]
    if missing:
        raise NotReadableError(f"{place} does not have {', '.join(missing)}")
    return tuple(content[name] for name in names)


def json_object(text: bytes, place: str) -> dict[str, Any]:
    """Return a JSON object. Raises `NotReadableError`, which names the place, for anything else."""
    with raised_as(NotReadableError, f"{place} is not JSON", ValueError, RecursionError):
        content = json.loads(text)
    if not isinstance(content, dict):
        raise NotReadableError(f"{place} is not a JSON object")
    return content


READERS = {
    "entries": TableReader("a log", ENTRIES, _logs, log_rows),
    "aborts": TableReader("a .txnindex", ABORTS, partial(_replica_files, (".txnindex",)), _aborts),
    "states": TableReader("a state.json", STATES, _replicas, _state),
    "history": TableReader(store.HISTORY, HISTORY, partial(_json_file, store.HISTORY), _json_lines),
    "observations": TableReader(store.OBSERVATIONS, OBSERVATIONS, partial(_json_file, store.OBSERVATIONS), _json_lines),
    "settings": TableReader(store.MANIFEST, SETTINGS, partial(_json_file, store.MANIFEST), _settings),
}
"""By name of the `Evidence` field."""
