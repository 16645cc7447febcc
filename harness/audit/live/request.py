"""The request for an audit of a running cluster. It needs neither Spark nor numpy: a watch may run without both."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.kafka_api.address import Address

SPOOL_LIMIT_BYTES: Final = 4 << 30


@dataclass(frozen=True)
class AuditRequest:
    """The topics of a cluster to audit. Times are milliseconds since the epoch. ``save``: a new folder for the data.

    ``config``: the properties file that ``bootstrap`` was read with, for printed commands. ``spool_limit_bytes``: how
    much is read before it is judged and deleted, unless ``save`` is set. ``controllers``: where to fetch the metadata
    log; none: without.
    """

    bootstrap: Sequence[Address]
    topics: Sequence[str]
    rate_limit_bytes_s: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    save: Path | None = None
    config: str | None = None
    spool_limit_bytes: int = SPOOL_LIMIT_BYTES
    controllers: Sequence[Address] = ()

    @property
    def is_limited(self) -> bool:
        """True if only the records of a part of the time are read."""
        return self.since_ms is not None or self.until_ms is not None
