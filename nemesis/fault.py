"""Faults: their effect on brokers, their end, and their requirements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

from harness.cluster.cluster import Cluster
from harness.kafka_api import TopicPartition
from harness.runtimes.base import Need, ability

Ability = TypeVar("Ability")

LINK, FIREWALL = frozenset({Need.LINK}), frozenset({Need.FIREWALL})
ON_LINKS, ON_ASSIGNMENT = "links", "assignment"
"""Groups of faults for `Fault.alone_in`."""


@dataclass(frozen=True)
class FaultContext:
    """The cluster, and the ``brokers`` that a fault acts on.

    ``copy_bytes_per_s``: the pace per partition for a fault that throttles copying. ``window_s`` bounds the time that a
    fault waits for its moment. ``note(f, **fields)`` writes an observation of the fault to the history.

    For scripts, whose ``brokers`` are the absent brokers: ``write_ballast`` writes records that keep a replica or a
    cleaner busy. ``payload_ends`` returns, for each partition, the offset after the payload that was written before
    `Script.leave`.
    """

    cluster: Cluster
    brokers: tuple[int, ...]
    copy_bytes_per_s: int
    window_s: float
    note: Callable[..., None]
    write_ballast: Callable[[], None] = lambda: None
    payload_ends: Callable[[], Mapping[TopicPartition, int]] = dict

    def ability(self, protocol: Callable[..., Ability]) -> Ability:
        """Return the runtime as an implementation of the protocol. Raises `HarnessError` for a runtime without it."""
        return ability(self.cluster.runtime, protocol)

    @property
    def exposed(self) -> list[TopicPartition]:
        """The partitions with replicas on these brokers."""
        return [tp for tp, replicas in self.cluster.replicas.items() if set(self.brokers) & set(replicas)]

    def have_copied_payload(self) -> bool:
        """Return whether the replicas on every broker have the payload."""
        cluster, ends = self.cluster, self.payload_ends()
        return all(cluster.reaches(b, tp, ends[tp]) for tp in cluster.exposed for b in self.brokers)


class BrokerState(Enum):
    """The state of a broker during a fault."""

    IN_SYNC = auto()
    OUT_OF_SYNC = auto()
    """The broker's process runs, and the broker leaves the ISR."""
    DOWN = auto()


@dataclass(frozen=True)
class Fault:
    """A fault on one broker or several.

    ``needs``: abilities that the runtime must have. ``broker_settings``: settings without which it has no effect.
    ``broker_state``: the state of its brokers until it is healed. ``needs_broker_up``: brokers must be running when the
    fault is injected and healed. ``alone_in``: a group of faults of which at most one is active in the cluster.
    ``soak_excluded``: the reason why soak cannot draw it, empty if soak can.
    """

    name: str
    summary: str
    inject: Callable[[FaultContext], None]
    heal: Callable[[FaultContext], None]
    needs: frozenset[str] = frozenset()
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    broker_state: BrokerState = BrokerState.IN_SYNC
    needs_broker_up: bool = False
    alone_in: str = ""
    soak_excluded: str = ""

    @property
    def leaves_isr(self) -> bool:
        """Return whether the brokers of the fault leave the ISR."""
        return self.broker_state is not BrokerState.IN_SYNC

    @property
    def cuts_off(self) -> bool:
        """Return whether administrators may get no answer until the fault is healed."""
        return self.leaves_isr or self.alone_in == ON_LINKS


def each(act: Callable[[FaultContext, int], None]) -> Callable[[FaultContext], None]:
    """Return a function that applies ``act`` to each broker of its context in turn."""

    def apply(context: FaultContext) -> None:
        for broker in context.brokers:
            act(context, broker)

    return apply


kill = each(lambda context, broker: context.cluster.runtime.kill(broker))
stop = each(lambda context, broker: context.cluster.runtime.stop(broker))
start = each(lambda context, broker: context.cluster.runtime.start(broker))
