"""The times at which faults began and ended, by the history of a soak's round."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

INJECT: Final = "inject"
HEAL: Final = "heal"


@dataclass(frozen=True)
class FaultTimes:
    """A fault on a broker; times in milliseconds since the epoch, None if the history does not have them.

    ``inject_ms``, ``heal_ms``: the invocations. ``active_ms``, ``healed_ms``: their completions.
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
    """Return the name (``f``) of a history event that begins or ends a fault."""
    return f"{verb} {fault}"


def fault_times(events: Iterable[Mapping[str, Any]]) -> list[FaultTimes]:
    """Return the faults in the order of their invocations, without ends of faults that never began."""
    faults: list[tuple[str, int, dict[str, int]]] = []
    active: dict[tuple[str, int], dict[str, int]] = {}
    for event in events:
        verb, _, fault = event["f"].partition(" ")
        name = _TIMES.get((verb, event["type"]))
        for broker in event["brokers"] if name else ():
            if name == "inject_ms" and (fault, broker) not in active:
                active[fault, broker] = {}
                faults.append((fault, broker, active[fault, broker]))
            if name and (times := active.get((fault, broker))) is not None:
                times.setdefault(name, event["time_ms"])
                if name == "healed_ms":
                    del active[fault, broker]
    return [FaultTimes(fault, broker, **times) for fault, broker, times in faults]
