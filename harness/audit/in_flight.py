"""Transactions in flight while their logs were copied from running brokers: they look like hanging transactions.

A transaction may end after the data was copied and before ``__transaction_state`` was. Or it begins after
``__transaction_state`` was copied, which then has the end of the producer's transaction before. It hangs only if the
coordinator's log has a later record than the transaction's first one (a coordinator writes Ongoing before a producer
writes data), and each replica has a later record than the coordinator's last state.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.internal_topics.decode import transaction_state
from harness.broker_files.segments.batches import Batch, CorruptLogError, iter_batches, iter_records
from harness.judge.finding import CheckerRow, Place, place_of
from harness.judge.verdict import UnknownReason

CLOCKS_MS: Final = 60_000
"""By how much the clocks of clients and brokers may differ."""
TABLE: Final = "hanging_transaction"
_Headers: TypeAlias = Callable[[Path], Sequence[tuple[int, int, int]]]


def without_in_flight(
    copies: Copies, rows: Mapping[str, Sequence[CheckerRow]]
) -> tuple[dict[str, Sequence[CheckerRow]], dict[Place, tuple[UnknownReason, ...]]]:
    """Return the checkers' rows without transactions that may have been in flight, and the reasons by partition."""
    transactions = defaultdict[tuple[Place, int], list[CheckerRow]](list)
    for row in rows[TABLE]:
        transactions[place_of(row), row["producer_id"]].append(row)
    ends = _last_states(copies.transaction_states) if transactions else {}
    headers = cache(_headers_of)  # many transactions may be open in one segment
    replicas = {(copy.place, copy.broker): copy for copy in copies.replicas}
    hanging: list[CheckerRow] = []
    reasons: dict[Place, tuple[UnknownReason, ...]] = {}
    for (place, producer_id), of_replicas in transactions.items():
        name = json.loads(of_replicas[0]["witness"])["transactional_id"]
        if all(_is_proven(ends.get(name), replicas[place, r["broker"]], r["offset"], headers) for r in of_replicas):
            hanging += of_replicas
        else:
            why = UnknownReason(
                "in-flight",
                f"the transaction of producer {producer_id} ({name}) may hang, or may have been in flight while the "
                "files were copied: ask the brokers (harness audit live --quick)",
            )
            reasons[place] = (*reasons.get(place, ()), why)
    return {**rows, TABLE: hanging}, reasons


def _is_proven(end_ms: tuple[int, int] | None, replica: ReplicaCopy, offset: int, headers: _Headers) -> bool:
    containing = replica.logs[sum(segment.base_offset <= offset for segment in replica.segments) - 1]
    begin_ms = (time_ms for base_offset, last, time_ms in headers(containing) if base_offset <= offset <= last)
    latest_ms = (max((time_ms for *_, time_ms in headers(path)), default=-1) for path in reversed(replica.logs))
    first_ms, last_ms = next(begin_ms, None), next((time_ms for time_ms in latest_ms if time_ms >= 0), -1)
    if first_ms is None or end_ms is None:
        return False
    decided_ms, coordinator_ms = end_ms
    return first_ms + CLOCKS_MS <= coordinator_ms and decided_ms + CLOCKS_MS <= last_ms


def _headers_of(path: Path) -> list[tuple[int, int, int]]:
    """Return base offset, last offset and latest time of each batch."""
    return [(batch.base_offset, batch.last_offset, batch.max_timestamp_ms) for batch in _batches(path)]


def _last_states(logs: Sequence[ReplicaCopy]) -> dict[str, tuple[int, int]]:
    """Return the time of the last state of each transactional id, and of the last record of its coordinator's log."""
    found: dict[str, tuple[int, int, int]] = {}
    for copy in logs:
        last_ms, states = -1, dict[str, tuple[int, int]]()
        for batch in chain.from_iterable(map(_batches, copy.logs)):
            last_ms = max(last_ms, batch.max_timestamp_ms)
            with suppress(CorruptLogError, ValueError):  # the checkers report it
                for record in () if batch.is_control else iter_records(batch, source=str(copy.folder)):
                    if (state := transaction_state(record)) is not None:
                        states[state.transactional_id] = record.offset, record.timestamp_ms
        found |= {name: max(found.get(name, (-1, 0, 0)), (*state, last_ms)) for name, state in states.items()}
    return {name: (decided_ms, last_ms) for name, (_, decided_ms, last_ms) in found.items()}


def _batches(path: Path) -> Iterator[Batch]:
    """Yield the batches of a segment up to its first damage, which the checkers report."""
    with suppress(CorruptLogError):
        yield from iter_batches(path.read_bytes(), source=str(path), verify_crc=False)
