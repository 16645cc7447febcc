"""What a Kafka broker would need for coordinated compaction, rule by rule.

This is our reading of Kafka 3.9 to 4.4, and not a proposal. Followers send Fetch requests to their leader anyway, and
get responses, so the offsets that replicas exchange fit into two fields of Fetch, and no new request is needed. The
controller takes part only with the assignment. The last two rules are Redpanda's (`models.redpanda.RULES`): without
them an added replica can miss a marker, and Kafka's cleaner has neither in `models.state_space`. Classes have their
names of 4.x; ``Partition`` and ``ReplicaFetcherThread`` are Scala classes in core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Change(NamedTuple):
    """What one rule requires: fields of messages, state that a broker keeps, and the classes that change."""

    message: str
    state: str
    concerns: str


CHANGES: Final[Mapping[str, Change]] = {
    "mtro-includes-offline": Change(
        "Fetch request: a follower's MCCO and MXFO, as a tagged field of each partition",
        "the leader keeps both for every assigned replica, in the ISR or not",
        "Partition, Replica (ReplicaState)",
    ),
    "all-have-reported": Change(
        "none",
        "forgotten with each leader epoch; bounds stay until all assigned replicas have fetched in it",
        "Partition.makeLeader",
    ),
    "starts-from-distributed": Change(
        "Fetch response: MTRO and MXRO, as a tagged field of each partition, to followers only",
        "each replica keeps the last ones, and takes up from them as leader; a checkpoint beside the cleaner's",
        "ReplicaFetcherThread.processPartitionData, Partition.makeLeader",
    ),
    "never-backward": Change("none", "a log takes the later of what it has and what it is told", "UnifiedLog"),
    "late-rpc-ignored": Change(
        "none: Fetch has the leader epoch, and an answer belongs to one request of the fetcher of that epoch",
        "none",
        "Partition.readRecords (FENCED_LEADER_EPOCH), AbstractFetcherThread",
    ),
    "added-is-counted": Change(
        "none: PartitionChangeRecord has addingReplicas",
        "one that is added counts with the bounds of that moment, before it has fetched",
        "Partition.updateAssignmentAndIsr, ReplicaManager.applyDelta",
    ),
    "tombstones-wait": Change(
        "none", "none", "Cleaner.shouldRetainRecord: an offset at or above MTRO stays, whatever its delete horizon"
    ),
    "markers-wait": Change(
        "none", "none", "Cleaner.shouldDiscardBatch, CleanedTransactionMetadata: a marker at or above MXRO stays"
    ),
    "clean-not-copied": Change(
        "none",
        "MCCO is the cleaner's checkpoint, not the log end",
        "LogCleanerManager.doneCleaning",
    ),
    "free-not-ended": Change(
        "none", "MXFO is up to where the cleaned part has no transactional data left", "Cleaner, LogCleanerManager"
    ),
    "committed-is-plain": Change(
        "none",
        "none; or one committed value that is never overwritten keeps MXFO where it is for ever",
        "MemoryRecords.filterTo: what is left of a committed batch is written without its transactional bit",
    ),
}
