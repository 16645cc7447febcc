"""The beginning and the end of faults, by the names of `nemesis` and of models."""

from collections.abc import Mapping
from typing import Final

from harness.schedules.operations.operation import operation

NEMESIS = "nemesis"
"""The process of faults."""
OUTAGE, LAG, LOST_DISK, RESTARTED = "outage", "lag", "lost-disk", "restart"
UNCLEAN_ELECTION, LATE_METADATA, ISOLATED = "unclean-election", "late-metadata", "isolated"
"""Faults of models. An outage is any in which a broker is down and comes back with its log: kill, pause, partition …"""
OUTAGES: Final = frozenset({OUTAGE, "kill", "stop", "pause", "partition", "power-failure", "crash-in-cleaning"})
"""Faults by which a broker leaves the ISR; it comes back with its log."""
BEGINNINGS: Final[Mapping[str, str]] = {
    OUTAGE: "{broker} leaves",
    LAG: "{broker} lags",
    LOST_DISK: "{broker} loses its disk",
    RESTARTED: "{broker} restarts",
    UNCLEAN_ELECTION: "{broker} leads uncleanly",
    LATE_METADATA: "{broker}'s image is late",
    ISOLATED: "{broker} is cut off from the controller",
}
ENDINGS: Final[Mapping[str, str]] = {
    OUTAGE: "{broker} returns",
    LAG: "{broker} catches up",
    LATE_METADATA: "{broker}'s image arrives",
    ISOLATED: "{broker} is reconnected",
}
"""Templates for faults by name, where their names alone would not say enough."""


@operation(lambda it: BEGINNINGS.get(it.fault, "{fault} begins on broker {broker}").format_map(vars(it)))
class Inject:
    """A fault begins on a broker."""

    fault: str
    broker: int
    process: str = NEMESIS


@operation(lambda it: ENDINGS.get(it.fault, "{fault} ends on broker {broker}").format_map(vars(it)))
class Heal:
    """A fault ends on a broker."""

    fault: str
    broker: int
    process: str = NEMESIS


@operation("{broker} loses power, and its log from {offset} on")
class LosePower:
    """A broker loses power, and the end of its log that is not on disk yet."""

    broker: int
    offset: int
    process: str = NEMESIS


@operation("{script}: broker {broker} is exposed to the removal")
class Expose:
    """The second act of a script, once records were removed: a broker copies them, or rejoins."""

    script: str
    broker: int
    process: str = NEMESIS
