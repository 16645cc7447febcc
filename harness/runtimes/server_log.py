"""What of a broker's log belongs into an error message."""

from __future__ import annotations

LINES = 12
TELLING = ("ERROR", "FATAL", "Exception")


def tail(log: str) -> str:
    """Return a log's last telling lines, indented: those with an error where there are any."""
    lines = log.splitlines()
    telling = [line for line in lines if any(word in line for word in TELLING)]
    return "\n".join(f"  {line}" for line in (telling or lines)[-LINES:])
