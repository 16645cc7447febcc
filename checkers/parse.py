"""From a run folder's files to rows, in Spark's Python workers: one reader a table of evidence.

Files are looked for when a job runs, not when it is planned: a check can be planned before a run has ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.schemas import ABORTS, ENTRIES, HISTORY, OBSERVATIONS, STATES
from harness import store
from harness.history import HEADER_TXN
from harness.segments.batches import Batch, CorruptLogError, Record, iter_batches, iter_records, marker
from harness.segments.checkpoints import read_checkpoint
from harness.segments.txnindex import iter_txnindex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import types as t

    from harness.store import RunFolder

DISK, FETCH = "disk", "fetch"
ROWS_PER_ARROW_BATCH = 10_000

SAID = ("log_start", "high_watermark", "last_stable_offset", "aborted", "open")
"""What a broker says of a replica, in the order of `STATES`."""
CHECKPOINTS = ("log-start-offset", "replication-offset")
"""What tells the first two of them where the broker was not asked."""

Row = tuple[Any, ...]


class NotReadableError(Exception):
    """A file's content cannot be what a run wrote; the message names file and place."""


@dataclass(frozen=True)
class Reader:
    """How a table is read: its files with the columns that their places give, and the columns in each."""

    what: str
    schema: t.StructType
    files: Callable[[RunFolder], Iterator[tuple[Row, Path]]]
    rows: Callable[[Path], Iterator[Row]]


def read(reader: Reader, folders: Sequence[RunFolder], share: int, shares: int) -> Iterator[pa.RecordBatch]:
    """Yield the ``share``-th of ``shares`` parts of a table, in Arrow batches of bounded size.

    Where a file cannot be read from some place on, a row whose ``problem`` says so follows what comes before.
    """
    arrow = to_arrow_schema(reader.schema)
    files = [file for folder in folders for file in reader.files(folder)]
    held: list[Row] = []
    for head, path in files[share::shares]:
        for row in _rows(reader, head, path):
            held.append(row)
            if len(held) == ROWS_PER_ARROW_BATCH:
                yield _arrow_batch(held, arrow, reader.what)
                held = []
    if held:
        yield _arrow_batch(held, arrow, reader.what)


def _rows(reader: Reader, head: Row, path: Path) -> Iterator[Row]:
    try:
        for row in reader.rows(path):
            yield (*head, *row, None)
    except (CorruptLogError, NotReadableError) as error:
        yield (*head, *(None,) * (len(reader.schema) - len(head) - 1), str(error))


def _arrow_batch(rows: list[Row], schema: pa.Schema, what: str) -> pa.RecordBatch:
    columns = []
    for field, column in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            columns.append(pa.array(column, field.type))
        except (pa.ArrowException, OverflowError) as error:
            problem = f"{what} has an entry whose {field.name} is no {field.type}: {error}"
            return pa.RecordBatch.from_pylist([{"problem": problem}], schema=schema)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _replica_files(*suffixes: str) -> Callable[[RunFolder], Iterator[tuple[Row, Path]]]:
    """Give run, snapshot, source, broker, topic, partition of every such file, stored or fetched."""

    def files(folder: RunFolder) -> Iterator[tuple[Row, Path]]:
        for source, top in ((DISK, "brokers"), (FETCH, "fetched")):
            for path in sorted((folder.path / top).glob("*/*/*/*")):
                if path.suffix in suffixes:
                    broker, snapshot, name = path.parts[-4:-1]
                    topic, partition = _topic_partition(name)
                    yield (folder.run_id, snapshot, source, int(broker), topic, partition), path

    return files


def _topic_partition(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def _entries(path: Path) -> Iterator[Row]:
    """Yield a log's records and empty batches.

    A cut at the end of a file that a broker was appending to when it was copied or killed is normal; what is
    missing then shows as a log end behind what the broker served, see `doubts`.
    """
    try:
        for batch in iter_batches(path.read_bytes(), source=str(path)):
            yield from _batch_rows(batch, str(path))
    except CorruptLogError as error:
        if not error.cut:
            raise


def _batch_rows(batch: Batch, source: str) -> Iterator[Row]:
    told = marker(batch, source=source)
    head = (
        batch.base_offset,
        batch.last_offset,
        batch.crc,
        batch.producer_id,
        batch.producer_epoch,
        batch.is_transactional,
        batch.is_control,
        told.type if told else None,
        batch.delete_horizon_ms,
        batch.max_timestamp_ms,
    )
    if batch.is_control or batch.is_empty:
        yield (*head, True, None, None, None, None)
        return
    for index, record in enumerate(iter_records(batch, source=source)):
        yield (*head, index == 0, record.offset, record.key, record.value is None, _txn(record))


def _txn(record: Record) -> str | None:
    for name, value in record.headers:
        if name == HEADER_TXN and value is not None:
            return value.decode("utf-8", "backslashreplace")
    return None


def _aborts(path: Path) -> Iterator[Row]:
    for aborted in iter_txnindex(path.read_bytes(), source=str(path)):
        yield (aborted.producer_id, aborted.first_offset, aborted.last_offset)


def _held_replicas(folder: RunFolder) -> Iterator[tuple[Row, Path]]:
    """Give run, snapshot, broker, topic, partition of every replica that has files."""
    for path in sorted((folder.path / "brokers").glob("*/*/*/")):
        broker, snapshot, name = path.parts[-3:]
        yield (folder.run_id, snapshot, int(broker), *_topic_partition(name)), path


def _state(path: Path) -> Iterator[Row]:
    """Yield what the replica's broker said of it, else what its checkpoints say."""
    broker, snapshot, name = path.parts[-3:]
    partition = _topic_partition(name)
    checkpoints = path.parent
    answer = path.parents[3] / "fetched" / broker / snapshot / name / "state.json"
    if answer.exists():
        said = _json_object(answer.read_bytes(), str(answer))
        missing = [name for name in SAID if name not in said]
        if missing:
            raise NotReadableError(f"{answer} lacks {', '.join(missing)}")
        told = (True, *(said[name] for name in SAID))
    else:
        log_start, high_watermark = (_checkpoint(checkpoints, name, partition) for name in CHECKPOINTS)
        told = (False, log_start, high_watermark, None, None, None)
    yield (
        *told,
        _checkpoint(checkpoints, "cleaner-offset", partition),
        _directory_id(checkpoints / "meta.properties"),
    )


def _checkpoint(folder: Path, name: str, partition: tuple[str, int]) -> int:
    path = folder / f"{name}-checkpoint"
    return read_checkpoint(path.read_bytes(), source=str(path)).get(partition, 0) if path.exists() else 0


def _directory_id(path: Path) -> str | None:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return next((line.partition("=")[2] for line in lines if line.startswith("directory.id=")), None)


def _json_file(name: str) -> Callable[[RunFolder], Iterator[tuple[Row, Path]]]:
    def files(folder: RunFolder) -> Iterator[tuple[Row, Path]]:
        path = folder.path / name
        if path.exists():
            yield (folder.run_id,), path

    return files


def _json_lines(schema: t.StructType) -> Callable[[Path], Iterator[Row]]:
    names = schema.names[1:-1]

    def rows(path: Path) -> Iterator[Row]:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                told = _json_object(line, f"{path} line {number}")
                yield tuple(told.get(name) for name in names)

    return rows


def _json_object(text: bytes, place: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError as error:
        raise NotReadableError(f"{place} is not JSON: {error}") from error
    if not isinstance(told, dict):
        raise NotReadableError(f"{place} is no JSON object")
    return told


READERS = {
    "entries": Reader("a log", ENTRIES, _replica_files(".log", ".bin"), _entries),
    "aborts": Reader("a .txnindex", ABORTS, _replica_files(".txnindex"), _aborts),
    "states": Reader("a state.json", STATES, _held_replicas, _state),
    "history": Reader(store.HISTORY, HISTORY, _json_file(store.HISTORY), _json_lines(HISTORY)),
    "observations": Reader(store.OBSERVATIONS, OBSERVATIONS, _json_file(store.OBSERVATIONS), _json_lines(OBSERVATIONS)),
}
"""By name of the `Evidence` field."""
