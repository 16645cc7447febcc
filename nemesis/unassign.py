"""Replicas are unassigned, and assigned again at the end."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from harness.cluster.cluster import Cluster
from nemesis.fault import ON_ASSIGNMENT, Fault, FaultContext

if TYPE_CHECKING:
    from harness.kafka_api.metadata import PartitionState


def unassign(context: FaultContext) -> None:
    """Remove the brokers' replicas of every second partition whose other replicas are all in the ISR."""
    cluster, brokers = context.cluster, set(context.brokers)
    orders = {
        tp: others
        for tp, state in cluster.states().items()
        if tp[1] % 2 == 0 and brokers & set(state.replicas)
        if (others := [b for b in state.replicas if b not in brokers]) and set(others) <= set(state.isr)
    }
    if orders:
        cluster.admin.reassign(orders)


def assign_again(cluster: Cluster) -> None:
    """Add the replicas that partitions began with, behind the replicas of now.

    Also to a partition with a replica out of the ISR: that replica may still be being removed, which metadata do not
    show.
    """
    orders = {
        tp: [*state.replicas, *(b for b in cluster.replicas[tp] if b not in state.replicas)]
        for tp, state in cluster.states().items()
        if not is_placed(state, cluster.replicas[tp])
    }
    if orders:
        cluster.admin.reassign(orders)


def is_placed(state: PartitionState, replicas: Collection[int]) -> bool:
    """Return whether a partition has these replicas, and all of them are in the ISR."""
    return set(state.replicas) == set(state.isr) == set(replicas)


FAULT = Fault(
    name="unassign",
    summary="replicas of every second partition are unassigned, and assigned again at the end",
    inject=unassign,
    heal=lambda context: assign_again(context.cluster),
    alone_in=ON_ASSIGNMENT,
)
