"""Read the brokers' answers that lie beside the logs of a running cluster (`harness.audit`) as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkers.evidence.parse import STATE_FIELDS, NotReadableError, fields_of, json_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPOOL_FIELDS = ("read_from", "read_to", "settled", "until")
TRANSACTIONS = "transactions"

Row = tuple[Any, ...]


def read_state(path: Path) -> Iterator[Row]:
    """Yield a replica's state with the columns of `STATES`.

    ``served`` is true where the broker's answer is about the log as it was read: nothing was appended meanwhile, and
    reading began at the log start offset. The high watermark is at most the offset up to which the log was read.
    Offsets below the first one that was read count as offsets below the log start: their absence proves nothing.
    """
    content = json_object(path.read_bytes(), str(path))
    log_start, high_watermark, *transactions = fields_of(content, STATE_FIELDS, str(path))
    read_from, read_to, settled, until = fields_of(content, SPOOL_FIELDS, str(path))
    served = settled and read_from <= log_start
    yield (
        served, max(log_start, read_from), min(high_watermark, read_to),
        *(transactions if served else (None,) * len(transactions)),
        None, None, None, read_to, until is not None,
    )  # fmt: skip


def read_transactions(path: Path) -> Iterator[Row]:
    """Yield the latest state of each transactional id of a coordinator with the columns of `COORDINATORS`."""
    (transactions,) = fields_of(json_object(path.read_bytes(), str(path)), (TRANSACTIONS,), str(path))
    for one in transactions:
        try:
            transactional_id, producer_id, state = one
        except (TypeError, ValueError) as error:
            raise NotReadableError(f"{path}: {one} is not a transactional id, a producer id and a state") from error
        yield 0, transactional_id, producer_id, state
