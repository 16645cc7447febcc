"""Read folders that were copied from brokers as the same tables as a run folder, without a history of clients.

Logs that were read from a running cluster have the same layout, with the brokers' answers instead of side files.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkers.evidence import parse
from checkers.evidence.schemas import COORDINATORS, EPOCHS, PRODUCERS
from harness.broker_files.internal_topics.decode import transaction_state
from harness.broker_files.segments.batches import CorruptLogError, iter_batches, iter_records, until_cut
from harness.broker_files.segments.folder import end_of_segment, live_segments
from harness.broker_files.side_files.checkpoints import read_leader_epochs
from harness.broker_files.side_files.producer_state import read_producer_snapshot
from harness.errors import raised_as
from harness.run_folder.store import AFTER_REJOIN, COORDINATOR, STATE

if TYPE_CHECKING:
    from harness.broker_files.copies.copies import Copies, ReplicaCopy

Row = tuple[Any, ...]


def _files(
    paths: Callable[["ReplicaCopy"], Iterable[Path]], copies: "Copies", *, more: Row = ()
) -> Iterator[tuple[Row, Path]]:
    """Yield each such file of every replica, with the columns from its path and ``more``."""
    for copy in copies.replicas:
        head = (copies.run_id, AFTER_REJOIN, parse.DISK, copy.broker, copy.topic, copy.partition, *more)
        yield from ((head, path) for path in paths(copy))


def _indexes(copy: "ReplicaCopy") -> Iterable[Path]:
    return (copy.folder / segment.txnindex for segment in copy.segments if segment.txnindex is not None)


def _last_segments_or_answers(copies: "Copies") -> Iterator[tuple[Row, Path]]:
    """Yield the broker's answer about each replica, or the replica's last segment if the broker was not asked."""
    for copy in copies.replicas:
        answer = copy.folder / STATE
        head = (copies.run_id, AFTER_REJOIN, copy.broker, copy.topic, copy.partition)
        yield head, answer if answer.exists() else copy.logs[-1]


def _entries(path: Path) -> Iterator[Row]:
    """Yield a segment's records and empty batches; only the log's last segment may end inside a batch."""
    last = live_segments(path.parent).segments[-1]
    return parse.log_rows(path, may_be_cut=path.name == last.log)


def _coordinator_logs(copies: "Copies") -> Iterator[tuple[Row, Path]]:
    for copy in copies.transaction_states:
        for path in copy.logs:
            yield (copies.run_id, copy.broker, copy.partition), path
    for broker, path in copies.coordinator_answers.items():
        yield (copies.run_id, broker, None), path


def _coordinators(path: Path) -> Iterator[Row]:
    """Yield the states of a log of transaction states, or the latest ones that a coordinator answered."""
    if path.name == COORDINATOR:
        (transactions,) = parse.fields_of(parse.json_object(path.read_bytes(), str(path)), ("transactions",), str(path))
        expected = "a transactional id, a producer id and a state"
        for entry in transactions:
            with raised_as(parse.NotReadableError, f"{path}: {entry} is not {expected}", TypeError, ValueError):
                transactional_id, producer_id, state = entry
            yield 0, transactional_id, producer_id, state
        return
    for batch in until_cut(iter_batches(path.read_bytes(), source=str(path))):
        for record in () if batch.is_control else iter_records(batch, source=str(path)):
            try:
                state = transaction_state(record)
            except ValueError as error:
                raise CorruptLogError(str(path), batch.position, str(error)) from error
            if state is not None:
                yield record.offset, state.transactional_id, state.producer_id, state.state


def _producers(path: Path) -> Iterator[Row]:
    entries = read_producer_snapshot(path.read_bytes(), source=str(path))
    as_of = int(path.stem)
    for entry in entries:
        yield as_of, entry.producer_id, entry.producer_epoch, entry.last_offset, entry.current_txn_first_offset
    if not entries:
        yield as_of, None, None, None, None


def replica_facts(folder: Path) -> dict[str, int | None]:
    """Return the offsets in the checkpoints of a partition's log directory.

    log_start (not before the first segment), last_segment (the last segment's first offset), and start_checkpoint,
    high_watermark, cleaner_offset: None without a checkpoint of the partition.
    """
    segments = live_segments(folder).segments
    start, high_watermark, cleaned = (
        parse.read_log_checkpoint(folder.parent, name, folder.name)
        for name in ("log-start-offset", "replication-offset", "cleaner-offset")
    )
    return {
        "log_start": max(segments[0].base_offset, start or 0),
        "start_checkpoint": start,
        "high_watermark": high_watermark,
        "cleaner_offset": cleaned,
        "last_segment": segments[-1].base_offset,
    }


def _state(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a replica's state (columns of `STATES`) by its broker's answer, else by its checkpoints.

    ``served`` is true where the answer covers the complete log: the replica was read from its log start offset to its
    end. The high watermark is at most the offset up to which the log was read. Offsets below the first offset that was
    read count as offsets below the log start: their absence proves nothing.
    """
    if path.name != STATE:
        yield {"served": False, "log_end": end_of_segment(path), **replica_facts(path.parent)}
        return
    content = parse.json_object(path.read_bytes(), str(path))
    log_start, high_watermark, *transactions = parse.fields_of(content, parse.STATE_FIELDS, str(path))
    fields = ("bound", "read_from", "read_to", "listed_to", "complete")
    bound, read_from, read_to, listed_to, complete = parse.fields_of(content, fields, str(path))
    served = complete and read_from <= log_start
    yield {
        "served": served,
        "log_start": max(log_start, read_from),
        "high_watermark": min(high_watermark, read_to),
        **(dict(zip(parse.STATE_FIELDS[2:], transactions, strict=True)) if served else {}),
        "log_end": read_to,
        "read_bound": bound,
        "listed_to": listed_to,
        "complete": complete,
    }


SIDE_READERS_OF_COPIES: dict[str, parse.TableReader] = {
    "aborts": replace(parse.READERS["aborts"], files=partial(_files, _indexes)),
    "producers": parse.TableReader(
        "a producer snapshot",
        PRODUCERS,
        partial(_files, lambda copy: sorted(copy.folder.glob("*.snapshot"))),
        _producers,
    ),
    "epochs": parse.TableReader(
        "a checkpoint of leader epochs",
        EPOCHS,
        partial(_files, lambda copy: copy.folder.glob("leader-epoch-checkpoint")),
        lambda path: iter(read_leader_epochs(path.read_bytes(), source=str(path)).items()),
    ),
    "coordinators": parse.TableReader("a log of transaction states", COORDINATORS, _coordinator_logs, _coordinators),
    "states": replace(parse.READERS["states"], files=_last_segments_or_answers, rows=_state),
}
READERS_OF_COPIES: dict[str, parse.TableReader] = {
    **SIDE_READERS_OF_COPIES,
    "entries": replace(
        parse.READERS["entries"], files=partial(_files, lambda copy: copy.logs, more=(True,)), rows=_entries
    ),
}
