"""What lies beside the logs that were read from a running cluster, as rows: what its brokers said (`harness.audit`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkers.evidence.parse import SAID, NotReadableError, fields_of, json_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ = ("read_from", "read_to", "settled", "until")
TRANSACTIONS = "transactions"

Row = tuple[Any, ...]


def told_state(path: Path) -> Iterator[Row]:
    """Yield a replica's state as `STATES` has it.

    The broker's word counts as such (``served``) where it is about what was read: nothing was appended meanwhile, and
    the reading began at the log's start. Of the high watermark it counts as far as the log was read. What came before
    the reading's first offset is taken for what came before the log's start: nothing follows from its absence.
    """
    told = json_object(path.read_bytes(), str(path))
    log_start, high_watermark, *words = fields_of(told, SAID, str(path))
    read_from, read_to, settled, until = fields_of(told, READ, str(path))
    served = settled and read_from <= log_start
    yield (
        served, max(log_start, read_from), min(high_watermark, read_to), *(words if served else (None,) * len(words)),
        None, None, None, read_to, until is not None,
    )  # fmt: skip


def told_transactions(path: Path) -> Iterator[Row]:
    """Yield what a coordinator said of its transactional ids as `COORDINATORS` has it: each is its latest word."""
    (transactions,) = fields_of(json_object(path.read_bytes(), str(path)), (TRANSACTIONS,), str(path))
    for one in transactions:
        try:
            transactional_id, producer_id, state = one
        except (TypeError, ValueError) as error:
            raise NotReadableError(f"{path}: {one} is not a transactional id, a producer id and a state") from error
        yield 0, transactional_id, producer_id, state
