"""Faults that a round composes: several at once, each begun and ended by itself, and what cannot be combined.

Where a file of `nemesis` has the fault, it is taken from there, and acts on one broker. A fault of that package that is
a whole script (it waits for what the runner does) is not drawn: it is listed in `NOT_DRAWN`, and so is what makes up
for it. What a target or a host cannot have is listed by `available`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from harness.errors import HarnessError, WaitTimeoutError
from harness.soak.draw.operations import Heal, Inject
from nemesis import NEMESES, crash_in_cleaning, power_failure, throttle
from nemesis.fault import NemesisContext, kill, nothing, start, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.cluster.cluster import Cluster
    from harness.kafka_api.admin import PartitionState
    from harness.soak.draw.generators import Context
    from harness.soak.draw.operations import Operation

PROCESS, LINKS, THROTTLE, ASSIGNMENT = "process", "links", "throttle", "assignment"
HOLD_S: Final = 4.0
"""The least time that a fault lasts: longer than sessions and retentions of the fast timers."""
MOST_AT_ONCE: Final = 4
LEAD_WAIT_S: Final = 5.0
LATE_CLEANER: Final = "late-cleaner"
LATE_CLEANER_MS: Final = 15_000


@dataclass(frozen=True)
class Fault:
    """A fault on one broker.

    ``takes_away``: the broker leaves the ISR. ``alone_in``: at most one fault of that name at a time in the cluster.
    ``asks``: it is begun and ended by asking the broker, which has to be there. ``needs``: see `Nemesis.needs`.
    """

    name: str
    inject: Callable[[NemesisContext], None]
    heal: Callable[[NemesisContext], None]
    takes_away: bool = False
    alone_in: str | None = None
    asks: bool = False
    needs: frozenset[str] = frozenset()
    broker_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def cuts_off(self) -> bool:
        """Whether administrators may be left without an answer while it lasts."""
        return self.takes_away or self.alone_in == LINKS


def _of(name: str, *, alone_in: str | None = None) -> Fault:
    nemesis = NEMESES[name]
    return Fault(
        name,
        nemesis.inject,
        nemesis.heal,
        takes_away=nemesis.takes_away,
        alone_in=alone_in,
        needs=nemesis.needs,
        broker_settings=nemesis.broker_settings,
    )


def _unassign(context: NemesisContext) -> None:
    """Take the broker's replicas away, of every second partition whose other replicas are all in the ISR."""
    cluster = context.cluster
    gone = set(context.absent)
    orders = {
        tp: others
        for tp, state in cluster.states().items()
        if tp[1] % 2 == 0 and gone & set(state.replicas) and (others := [b for b in state.replicas if b not in gone])
        if set(others) <= set(state.isr)
    }
    if orders:
        cluster.admin.reassign(orders)


def _assign(context: NemesisContext) -> None:
    """Give every partition the replicas that it began with, in the order of now.

    Also where one of them is out of the ISR: it may be one that is being removed still, and no metadata show that.
    """
    cluster = context.cluster
    orders = {
        tp: [*state.replicas, *(b for b in cluster.replicas[tp] if b not in state.replicas)]
        for tp, state in cluster.states().items()
        if not is_placed(state, cluster.replicas[tp])
    }
    if orders:
        cluster.admin.reassign(orders)


def is_placed(state: PartitionState, replicas: Collection[int]) -> bool:
    """Whether a partition has these replicas, and all of them in the ISR."""
    return set(state.replicas) == set(state.isr) == set(replicas)


def _lead(context: NemesisContext) -> None:
    """Have the broker lead every partition of which it is in the ISR, as far as it comes to that."""
    cluster = context.cluster
    (broker,) = context.absent
    orders = {
        tp: [broker, *(b for b in state.replicas if b != broker)]
        for tp, state in cluster.states().items()
        if broker in state.isr and state.leader != broker
    }
    if not orders:
        return
    cluster.control.lead(orders)
    try:
        cluster.wait(lambda: cluster.control.leads(orders), f"broker {broker} to lead", LEAD_WAIT_S)
    except WaitTimeoutError:
        return  # another fault is in the way


def _set_clock_right(context: NemesisContext) -> None:
    """Kill the broker, and start it with a clock that is right.

    One that runs on does not connect, for as long as its clock was ahead, to whom it was just about to connect to when
    its clock is put back: connections are backed off by the wall clock (``ClusterConnectionStates``). Seen on 4.4.0: a
    controller that got no answer from its leader for the rest of the round, and one that did not shut down any more.
    """
    kill(context)
    NEMESES["clock-skew"].heal(context)
    start(context)


def _delay_cleaner(context: NemesisContext) -> None:
    context.cluster.control.rest(context.absent, LATE_CLEANER_MS)


def _restore_cleaner(context: NemesisContext) -> None:
    context.cluster.control.wake(context.absent)


FAULTS: Final[Mapping[str, Fault]] = {
    one.name: one
    for one in (
        _of("kill"),
        _of("pause"),
        _of("partition"),
        _of("one-way", alone_in=LINKS),
        _of("lossy", alone_in=LINKS),
        _of("slow", alone_in=LINKS),
        # Put right only while the broker is there: it is restarted.
        replace(_of("clock-skew"), heal=_set_clock_right, asks=True),
        # Without what they do first to make something of it: clients write, and cleaners pass, all the time.
        replace(_of("power-failure"), inject=power_failure.cut_power),
        replace(_of("crash-in-cleaning"), inject=crash_in_cleaning.crash),
        Fault("stop", stop, start, takes_away=True),
        Fault(
            "throttle", throttle.throttle, throttle.lift, alone_in=THROTTLE, broker_settings=throttle.BROKER_SETTINGS
        ),
        Fault("unassign", _unassign, _assign, alone_in=ASSIGNMENT),
        Fault("lead", _lead, nothing, alone_in=ASSIGNMENT, asks=True),
        Fault(LATE_CLEANER, _delay_cleaner, _restore_cleaner, asks=True),
    )
}
"""Every fault that is drawn. Healing one of `LINKS` heals all of them, and one of `THROTTLE` likewise."""

NOT_DRAWN: Final[Mapping[str, str]] = {
    "none": "no fault",
    "join": "a script: comes of unassign under throttle",
    "catch-up": "a script: comes of kill under throttle",
    "reassigned": "a script: comes of unassign that ends while the broker is killed",
    "relay": "a script: comes of unassign, throttle, late-cleaner and lead",
    "rolling": "a script: comes of stop",
    "controller-kill": "comes of kill: every broker is a controller, too",
    "disk-full": "a script: it waits until the broker has ended by itself",
    "split": "takes two brokers of five out at once",
    "ring": "takes five brokers",
    "bridge": "takes five brokers",
}
"""Faults of `nemesis` that rounds do not draw, and why."""


def available(
    unsupported: Collection[str], why_lacking: Callable[[frozenset[str]], str | None]
) -> tuple[dict[str, Fault], dict[str, str]]:
    """Return the faults that can be drawn, and why not the others, by name.

    ``unsupported``: those that the system cannot be put through. ``why_lacking``: why the host or the runtime lacks
    what a fault needs, None where it does not.
    """
    left_out = dict(NOT_DRAWN)
    drawn = {}
    for name, fault in FAULTS.items():
        why = "not supported by this target" if name in unsupported else None
        why = why or (why_lacking(fault.needs) if fault.needs else None)
        if why is None:
            drawn[name] = fault
        else:
            left_out[name] = why
    return drawn, left_out


def why_not(
    fault: Fault, broker: int, active: Collection[tuple[str, int]], brokers: Sequence[int], faults: Mapping[str, Fault]
) -> str | None:
    """Return why a fault cannot begin beside those that are active; None where it can."""
    if (fault.name, broker) in active:
        return "it is active"
    if len(active) >= MOST_AT_ONCE:
        return f"{MOST_AT_ONCE} faults are active"
    away = {other for name, other in active if faults[name].takes_away}
    if (fault.takes_away or fault.asks) and broker in away:
        return f"broker {broker} is away"
    if fault.takes_away and len(away) >= (len(brokers) - 1) // 2:
        return "a quorum of controllers has to stay"
    if fault.alone_in is not None and any(faults[name].alone_in == fault.alone_in for name, _ in active):
        return f"there is one of {fault.alone_in} at a time"
    return None


def choose_fault(
    faults: Mapping[str, Fault], brokers: Sequence[int], hold_s: float = HOLD_S
) -> Callable[[Context], Operation | None]:
    """Return a function that begins a fault which can be combined with those that are active, or ends one of them."""

    def choose(context: Context) -> Operation | None:
        active, random = context.situation.faults, context.random("fault")
        away = {broker for name, broker in active if faults[name].takes_away}
        ends: list[Operation] = [
            Heal(name, broker)
            for (name, broker), since_s in sorted(active.items())
            if context.now_s - since_s >= hold_s and not (faults[name].asks and broker in away)
        ]
        begins: list[Operation] = [
            Inject(name, broker)
            for name, fault in sorted(faults.items())
            for broker in brokers
            if why_not(fault, broker, active.keys(), brokers, faults) is None
        ]
        options = [one for one in (ends, begins) if one]
        return random.choice(random.choice(options)) if options else None

    return choose


def _forget(_f: str, **_what: Any) -> None:
    """Note nothing."""


def context_for(
    cluster: Cluster, broker: int, copy_bytes_per_s: int, note: Callable[..., None] = _forget
) -> NemesisContext:
    """Return what a fault acts on: the cluster, with this broker as the absent one. ``note``: see `NemesisContext`."""

    def refuse() -> None:
        raise HarnessError("rounds write by their clients alone")

    return NemesisContext(
        replace(cluster, placement=replace(cluster.placement, absent=(broker,))),
        copy_bytes_per_s=copy_bytes_per_s,
        write_ballast=refuse,
        payload_ends=dict,
        window_s=HOLD_S,
        note=note,
    )
