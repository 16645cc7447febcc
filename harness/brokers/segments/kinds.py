"""The kinds of entries in a log, by the names that observations and checkers use."""

from __future__ import annotations

from typing import Final

COMMIT: Final = "commit"
ABORT: Final = "abort"
MARKERS: Final = (COMMIT, ABORT)
"""The control records that end a transaction, as `batches.marker` names them: no others, nor an emptied batch."""
DATA: Final = ("value", "tombstone")
"""The records of clients."""
