"""When faults began and ended, by the history of a soak's round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

INJECT: Final = "inject"
HEAL: Final = "heal"


@dataclass(frozen=True)
class FaultTimes:
    """A fault on a broker, in milliseconds since the epoch; None for what the history does not have.

    ``inject_ms``, ``heal_ms``: when it was first asked for, and when its end was. ``active_ms``, ``healed_ms``: when
    that was done.
    """

    fault: str
    broker: int
    inject_ms: int
    active_ms: int | None = None
    heal_ms: int | None = None
    healed_ms: int | None = None


_TIMES: Final = {
    (INJECT, "invoke"): "inject_ms",
    (INJECT, "ok"): "active_ms",
    (HEAL, "invoke"): "heal_ms",
    (HEAL, "ok"): "healed_ms",
}


def event_name(verb: str, fault: str) -> str:
    """Return what an event of the history is named (``f``) that begins or ends a fault."""
    return f"{verb} {fault}"


def fault_times(events: Iterable[Mapping[str, Any]]) -> list[FaultTimes]:
    """Return the faults in the order in which they were asked for. What ends one that never began is left out."""
    found: list[tuple[str, int, dict[str, int]]] = []
    going_on: dict[tuple[str, int], dict[str, int]] = {}
    for event in events:
        verb, _, fault = event["f"].partition(" ")
        name = _TIMES.get((verb, event["type"]))
        if name is None:
            continue
        for broker in event["brokers"]:
            place = (fault, broker)
            if name == "inject_ms" and place not in going_on:
                going_on[place] = {}
                found.append((fault, broker, going_on[place]))
            if place in going_on:
                going_on[place].setdefault(name, event["time_ms"])
                if name == "healed_ms":
                    del going_on[place]
    return [FaultTimes(fault, broker, **times) for fault, broker, times in found]
