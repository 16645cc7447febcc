"""Causes that give what is wrong a name of their own, whatever it looks like: power failures, and stale markers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.soak.expectations import HOLE, STALE_MARKER, UNCLEAN
from harness.soak.losses import LOST, hole_keys, lost_keys
from harness.soak.stale_markers import stale_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.brokers.protocol.replica import TopicPartition
    from harness.soak.losses import Loss, LostKeys
    from harness.soak.replica_log import Replica
    from harness.soak.stale_markers import StaleMarker
    from harness.soak.truth import Truth, Wrong


@dataclass(frozen=True)
class Causes:
    """The names that causes give to what is wrong about a key, and which loss or marker it was."""

    lost: LostKeys
    holes: Mapping[Replica, Mapping[str, Loss]]
    stale: Mapping[TopicPartition, Mapping[str, StaleMarker]]
    unclean: Mapping[TopicPartition, Loss]

    def of(self, replica: Replica, key: str | None) -> tuple[str, Loss | StaleMarker] | None:
        """Return the name, and what it was; None for what none of them explains."""
        if key is None:
            return None
        if loss := self.lost.get(replica[1], {}).get(key):
            return LOST, loss
        if hole := self.holes.get(replica, {}).get(key):
            return HOLE, hole
        if marker := self.stale.get(replica[1], {}).get(key):
            return STALE_MARKER, marker
        election = self.unclean.get(replica[1])
        return (UNCLEAN, election) if election else None


def causes_of(truth: Truth, losses: Sequence[Loss]) -> Causes:
    """Return the names that these power failures give, and stale markers."""
    unclean = {loss.partition: loss for loss in losses if loss.led_uncleanly}
    return Causes(lost_keys(truth, losses), hole_keys(truth, losses), stale_keys(truth), unclean)


def renamed(
    names: Mapping[Replica, Mapping[str, Iterable[Wrong]]], causes: Causes
) -> dict[Replica, dict[str, list[Wrong]]]:
    """Return what replicas are wrong about with the names of its causes, whatever it looks like."""
    found: dict[Replica, dict[str, list[Wrong]]] = {}
    for replica, by_name in names.items():
        own: dict[str, list[Wrong]] = defaultdict(list)
        for name, wrongs in by_name.items():
            for wrong in wrongs:
                cause = causes.of(replica, wrong.key)
                own[cause[0] if cause else name].append(wrong)
        found[replica] = dict(own)
    return found
