"""Faults of a round, several at once: which of `nemesis.FAULTS` it can draw, and what cannot be combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.schedules.operations.faults import Heal, Inject
from nemesis import FAULTS, SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.schedules.generators import Context
    from harness.schedules.operations.operation import Operation
    from nemesis.fault import Fault

HOLD_S: Final = 4.0
"""The least time that a fault lasts: longer than sessions and retentions of the fast timers."""
MOST_AT_ONCE: Final = 4


def available(
    unsupported: Collection[str], why_lacking: Callable[[frozenset[str]], str | None]
) -> tuple[dict[str, Fault], dict[str, str]]:
    """Return the faults that can be drawn, and the reason for each other fault or script, by name.

    ``unsupported``: names that the system does not support. ``why_lacking`` returns the reason why the host or the
    runtime does not have what a fault needs, or None.
    """
    left_out = {name: script.soak_excluded for name, script in SCRIPTS.items() if name not in FAULTS}
    drawn = {}
    for name, fault in FAULTS.items():
        reason = fault.soak_excluded or ("not supported by this target" if name in unsupported else None)
        reason = reason or (why_lacking(fault.needs) if fault.needs else None)
        if reason is None:
            drawn[name] = fault
        else:
            left_out[name] = reason
    return drawn, left_out


def why_not(
    fault: Fault, broker: int, active: Collection[tuple[str, int]], brokers: Sequence[int], faults: Mapping[str, Fault]
) -> str | None:
    """Return why a fault cannot begin beside those that are active; None if it can."""
    if (fault.name, broker) in active:
        return "it is active"
    if len(active) >= MOST_AT_ONCE:
        return f"{MOST_AT_ONCE} faults are active"
    out = {other for name, other in active if faults[name].leaves_isr}
    if (fault.leaves_isr or fault.needs_broker_up) and broker in out:
        return f"broker {broker} is out of the ISR"
    if fault.leaves_isr and len(out) >= (len(brokers) - 1) // 2:
        return "a quorum of controllers has to stay"
    if fault.alone_in and any(faults[name].alone_in == fault.alone_in for name, _ in active):
        return f"there is one of {fault.alone_in} at a time"
    return None


def choose_fault(
    faults: Mapping[str, Fault], brokers: Sequence[int], hold_s: float = HOLD_S
) -> Callable[[Context], Operation | None]:
    """Return a function that begins a fault which can be combined with those that are active, or ends one of them."""

    def choose(context: Context) -> Operation | None:
        active, random = context.situation.faults, context.random("fault")
        out = {broker for name, broker in active if faults[name].leaves_isr}
        ends: list[Operation] = [
            Heal(name, broker)
            for (name, broker), since_s in sorted(active.items())
            if context.now_s - since_s >= hold_s and not (faults[name].needs_broker_up and broker in out)
        ]
        begins: list[Operation] = [
            Inject(name, broker)
            for name, fault in sorted(faults.items())
            for broker in brokers
            if why_not(fault, broker, active.keys(), brokers, faults) is None
        ]
        options = [operations for operations in (ends, begins) if operations]
        return random.choice(random.choice(options)) if options else None

    return choose
