"""The end of a broker's log, for error messages."""

from __future__ import annotations

LINES = 12
ERROR_WORDS = ("ERROR", "FATAL", "Exception")


def tail(log: str) -> str:
    """Return the log's last lines with errors, or its last lines without errors; indented."""
    lines = log.splitlines()
    errors = [line for line in lines if any(word in line for word in ERROR_WORDS)]
    return "\n".join(f"  {line}" for line in (errors or lines)[-LINES:])
