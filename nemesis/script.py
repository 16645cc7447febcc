"""Scripts: how a run uses faults."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from harness.cluster.cluster import Cluster
from harness.schedules.placement import Placement
from nemesis.fault import BrokerState, Fault, FaultContext

Members: TypeAlias = Placement | Cluster
Topology: TypeAlias = set[tuple[int, int]]
"""Links between brokers: (u, v) says that messages of u reach v."""


@dataclass(frozen=True)
class Act:
    """One act of a script. ``words``: the progress message, in which ``{broker}`` stands for the absent brokers."""

    words: str
    perform: Callable[[FaultContext], None]


@dataclass(frozen=True, kw_only=True)
class Script:
    """A run in which the absent brokers leave, miss what the others remove, and rejoin.

    `leave` comes before the critical records are written. `expose`, if any, comes once the replicas that stay have
    removed them. `rejoin` comes after the snapshot that shows every replica as it is then. ``resume`` brings the absent
    brokers, all down, back to the state in which `leave` left them, for a run that was interrupted; None if that is
    impossible.

    ``faults``: the faults that it uses. ``joins``: absent brokers have no replica before `leave`. ``hands_over``: the
    leader of each copy on an absent broker changes during the copy, so that the log of each leader counts. ``quorum``:
    the number of controllers. ``shape``: the topology that the faults leave. ``why_unfit`` returns the reason why a
    placement is unfit, or None. ``soak_excluded``: see `Fault`, for a script without a fault of the same name.
    """

    name: str
    summary: str
    faults: tuple[Fault, ...] = ()
    leave: Act
    rejoin: Act
    expose: Act | None = None
    resume: Callable[[FaultContext], None] | None = None
    joins: bool = False
    hands_over: bool = False
    quorum: int = 1
    shape: Callable[[Placement], Topology] | None = None
    why_unfit: Callable[[Placement], str | None] = lambda _: None
    soak_excluded: str = ""

    @property
    def needs(self) -> frozenset[str]:
        """The abilities that the runtime must have."""
        return frozenset[str]().union(*(fault.needs for fault in self.faults))

    @property
    def broker_settings(self) -> dict[str, str]:
        """The settings of brokers without which the faults have no effect."""
        return {name: value for fault in self.faults for name, value in fault.broker_settings.items()}

    @property
    def is_outage(self) -> bool:
        """Return whether the absent brokers are out of the ISR between `leave` and `rejoin`."""
        return self.joins or any(fault.leaves_isr for fault in self.faults)

    @property
    def keeps_processes(self) -> bool:
        """Return whether the absent brokers are out of the ISR although their processes run."""
        states = {fault.broker_state for fault in self.faults}
        return BrokerState.OUT_OF_SYNC in states and BrokerState.DOWN not in states


def nothing(_context: FaultContext) -> None:
    """Do nothing. As `Script.resume`: leave the absent brokers down."""


def script_of(fault: Fault, *, leaving: str = "", rejoining: str = "", **more: Any) -> Script:
    """Return the script that injects a fault on the absent brokers, and heals it.

    ``leaving`` and ``rejoining``: the words of both acts. ``more``: fields of `Script` with other values.
    """
    script = Script(
        name=fault.name,
        summary=fault.summary,
        faults=(fault,),
        leave=Act(leaving, fault.inject),
        rejoin=Act(rejoining, fault.heal),
        resume=nothing if fault.broker_state is BrokerState.DOWN else None,
    )
    return replace(script, **more)
