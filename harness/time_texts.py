"""Times and durations for people."""

from datetime import UTC, datetime
from typing import Final

UNITS_S: Final = {"days": 86_400, "h": 3_600, "min": 60}


def time_text(time_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration_text(seconds: float) -> str:
    """Return a duration, in the largest unit of which it has two."""
    unit, unit_s = next(((unit, unit_s) for unit, unit_s in UNITS_S.items() if seconds >= unit_s * 2), ("s", 1))
    return f"{round(seconds / unit_s, 1):g} {unit}"
