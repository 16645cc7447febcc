"""Causes that give what is wrong a name of their own, whatever it looks like: power failures, and markers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.schedules.catalog import Anomaly
from harness.soak.causes.losses import LOST, hole_keys, lost_keys
from harness.soak.causes.skipped_markers import skipped_in, skipped_keys
from harness.soak.causes.stale_markers import stale_keys
from harness.soak.judge.expectations import HOLE, SKIPPED_MARKER, STALE_MARKER, UNCLEAN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harness.kafka_api.messages import TopicPartition
    from harness.soak.causes.losses import Loss, LostKeys
    from harness.soak.causes.skipped_markers import SkippedMarker
    from harness.soak.causes.stale_markers import StaleMarker
    from harness.soak.evidence.replica_log import Replica
    from harness.soak.judge.truth import Truth, Wrong

OF_TRANSACTIONS: Final = frozenset({Anomaly.ABORTED_TO_COMMITTED, Anomaly.COMMITTED_TO_ABORTED, Anomaly.STUCK_LSO})
"""What groups' offsets may look like where a transaction has no marker, or that of another one."""


@dataclass(frozen=True)
class Causes:
    """The names that causes give to what is wrong about a key, and which loss or marker it was."""

    lost: LostKeys
    holes: Mapping[Replica, Mapping[str, Loss]]
    stale: Mapping[TopicPartition, Mapping[str, StaleMarker]]
    skipped: Mapping[TopicPartition, Mapping[str, SkippedMarker]]
    unclean: Mapping[TopicPartition, Loss]

    def of(self, replica: Replica, key: str | None) -> tuple[str, Loss | StaleMarker | SkippedMarker] | None:
        """Return the name, and what it was; None for what none of them explains."""
        if key is None:
            return None
        if loss := self.lost.get(replica[1], {}).get(key):
            return LOST, loss
        if hole := self.holes.get(replica, {}).get(key):
            return HOLE, hole
        if marker := self.stale.get(replica[1], {}).get(key):
            return STALE_MARKER, marker
        if skipped := self.skipped.get(replica[1], {}).get(key):
            return SKIPPED_MARKER, skipped
        election = self.unclean.get(replica[1])
        return (UNCLEAN, election) if election else None


def causes_of(truth: Truth, losses: Sequence[Loss], skipped: Sequence[Mapping[str, Any]] = ()) -> Causes:
    """Return the names that power failures and markers give. ``skipped``: lines of ``skipped-markers.jsonl``."""
    unclean = {loss.partition: loss for loss in losses if loss.led_uncleanly}
    holes, left_out = hole_keys(truth, losses), skipped_keys(truth, skipped)
    return Causes(lost_keys(truth, losses), holes, stale_keys(truth), left_out, unclean)


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


def named_offsets(
    findings: Iterable[Mapping[str, Any]],
    losses: Iterable[Loss],
    skipped: Iterable[Mapping[str, Any]],
    brokers: Collection[int],
) -> list[dict[str, Any]]:
    """Return findings about groups' offsets, with the name of a cause where every broker has the same one after it.

    ``skipped``: lines of ``skipped-markers.jsonl``; they explain only what is wrong about transactions.
    """
    losses_by_partition = {loss.partition: loss for loss in losses if loss.is_followed}
    skipped_by_partition = {one.partition: one for one in skipped_in(skipped)}
    every, by_brokers = list(findings), defaultdict[tuple[int, str], set[int]](set)
    for one in every:
        by_brokers[one["partition"], one["anomaly"]].add(one["broker"])

    def named(one: Mapping[str, Any]) -> dict[str, Any]:
        partition = (one["topic"], one["partition"])
        loss = losses_by_partition.get(partition)
        marker = skipped_by_partition.get(partition) if one["anomaly"] in OF_TRANSACTIONS else None
        name, cause = (LOST, loss) if loss else (SKIPPED_MARKER, marker)
        if cause is None or by_brokers[one["partition"], one["anomaly"]] != set(brokers):
            return dict(one)
        return {**one, "anomaly": name, "explanation": f"{one['explanation']}; {cause}"}

    return [named(one) for one in every]
