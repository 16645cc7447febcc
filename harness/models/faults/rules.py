"""The faults that may happen to a small cluster, and the rules that keep its replicas from diverging, by their names.

A name of `FAULTS` switches events on, a name of `RULES` a rule: so each rule can be walked without, to see what goes
wrong then.
"""

from collections.abc import Mapping
from typing import Final

from harness.schedules import operations as faults

OUTAGE, LATE, ISOLATED, LAG, POWER = faults.OUTAGE, faults.LATE_METADATA, faults.ISOLATED, faults.LAG, "power-failure"
DISK, RESTART, UNCLEAN = faults.LOST_DISK, faults.RESTARTED, faults.UNCLEAN_ELECTION
RELAY, REASSIGN = "added", "reassigned"

FAULTS: Final[Mapping[str, str]] = {
    OUTAGE: "broker 2 goes down, and comes back with its log",
    LATE: "the metadata image of one broker stays behind for a while",
    ISOLATED: "one follower is cut off from the controller: it is out of the ISR, and still fetches and cleans",
    LAG: "the replica on broker 2 lags inside the ISR, and catches up or falls out of it",
    POWER: "broker 2 loses power, and the end of its log that is not on disk yet",
    DISK: "broker 2 loses its disk, and copies from an empty log",
    RESTART: "broker 2 restarts in the middle of that copy",
    UNCLEAN: "broker 2 leads although it is out of the ISR, and the others truncate their logs to its log end",
    RELAY: "a replica is added on another broker",
    REASSIGN: "the replica of broker 2 is unassigned while it is down, and assigned again before it starts",
}
"""The faults that may happen once each, in addition to writes, cleaners, time and a number of elections."""

NOT_IN_SYNC, ADDING_COUNTS, IMAGE_AGE = "not-in-sync", "adding-counts", "image-age"
ADDED_BEGINS_EMPTY, ANEW_WITH_LEADER = "added-begins-empty", "anew-with-leader"
BELOW_HIGH_WATERMARK: Final = "below-high-watermark"
ANEW_AFTER_TRUNCATION, ANEW_AFTER_LOSS = "anew-after-truncation", "anew-after-loss"
FIRST_COPY_ON_DISK: Final = "first-copy-on-disk"

KAFKAS_RULES: Final[Mapping[str, str]] = {
    BELOW_HIGH_WATERMARK: "no cleaner passes the last stable offset, and so the high watermark"
}
"""A rule of Kafka's cleaner (``LogCleanerManager.cleanableOffsets``)."""

GATE_RULES: Final[Mapping[str, str]] = {
    NOT_IN_SYNC: "compaction waits while an assigned replica is out of the ISR",
    ADDING_COUNTS: "a replica that is being added counts as assigned",
    IMAGE_AGE: "compaction waits while the broker's metadata image is older than a bound below delete.retention.ms",
    ADDED_BEGINS_EMPTY: "a replica that is added begins with an empty log",
    ANEW_WITH_LEADER: "a first copy begins from scratch when the leader changes",
    FIRST_COPY_ON_DISK: "a broker that restarts still knows from which leader a first copy began",
    ANEW_AFTER_TRUNCATION: "a replica that truncates its log below its high watermark begins with an empty log",
    ANEW_AFTER_LOSS: "a replica whose log ends below an earlier high watermark when its broker starts begins with an "
    "empty log",
}
"""The rules of the gate (``compaction.gate.Decision``)."""

FURTHER_RULES: Final = (FIRST_COPY_ON_DISK, ANEW_AFTER_TRUNCATION, ANEW_AFTER_LOSS)
"""Rules of the gate that coordination can have, too."""

NOTHING_WAITS, ALL_WAITS, REMOVALS_WAIT, COORDINATED = "nothing", "all", "removals", "coordinated"
"""The compaction that waits while a partition is held: none, all, or only removals of tombstones and markers.

`COORDINATED`: these removals wait for every assigned replica's cleaner instead (`harness.models.world.coordination`).
"""
