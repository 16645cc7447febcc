"""The leader epochs that a replica provably received in full: the strongest evidence of which replica is wrong.

Rules (Kafka 3.9 - 4.4):

* the leader of an epoch appends every record of that epoch to its own log (`Partition.appendRecordsToLeader`);
* a member of the ISR has every record below the high watermark, and copied each record before its compaction: the high
  watermark is the smallest log end of the ISR, and no cleaner goes beyond it (`Partition.maybeIncrementLeaderHW`,
  `LogCleanerManager.cleanableOffsets`);
* a replica enters the ISR once its log end reaches the high watermark, even if it has missed records before
  (`Partition.isFollowerInSync`): records that it copied before that prove nothing;
* ISR changes carry no offset, and from metadata version 3.6 on a shrink does not increment the leader epoch. So
  membership counts for whole epochs only, and for the last records of an epoch only where it lasted until the high
  watermark had passed them: until this replica led itself, or until now.

These rules apply to one log: a replica that was unassigned in between, or whose log is in another directory, proves
nothing about earlier epochs, and no replica proves anything across an unclean election. Facts that are missing in the
metadata log are returned as assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.broker_files.metadata_log.history import NO_LEADER, PartitionHistory, PartitionState

_RESERVED = "A" * 20
"""``DirectoryId`` reserves the first hundred ids for directories that are unassigned, lost or unknown."""


@dataclass(frozen=True)
class Proof:
    """The reason why a replica had every record, a clause without its subject, and the assumptions of this proof."""

    reason: str
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class EpochCoverage:
    """The leaders of a partition and the members of its ISR, over time. ``history`` is None without a metadata log.

    ``registrations``: metadata offsets at which each broker registered; None where restarts are unknown.
    """

    history: PartitionHistory | None = None
    registrations: Mapping[int, Sequence[int]] | None = None

    def received(self, broker: int, first_epoch: int, last_epoch: int | None = None) -> Proof | None:
        """Return the proof that a replica received every record of these leader epochs below the bound, else None.

        ``last_epoch``: None means the newest epoch.
        """
        states = () if self.history is None else self.history.states
        epochs: dict[int, list[int]] = {}
        for index, state in enumerate(states):
            epochs.setdefault(state.leader_epoch, []).append(index)
        newest = max(epochs, default=-1)
        if first_epoch not in epochs or (last_epoch or 0) > newest:
            return None
        needed = [epoch for epoch in epochs if first_epoch <= epoch <= (newest if last_epoch is None else last_epoch)]
        since = states[epochs[first_epoch][0] :]
        if _is_interrupted(since, broker):
            return None
        led = [epoch for epoch in needed if states[epochs[epoch][0]].leader == broker]
        followed = [epoch for epoch in needed if states[epochs[epoch][0]].leader not in {broker, NO_LEADER}]
        if not all(self._followed(epochs[epoch], broker) for epoch in followed):
            return None
        return Proof(_reason(led, followed), self._assumptions(broker, since[0].offset))

    def _followed(self, indexes: Sequence[int], broker: int) -> bool:
        """Return whether a broker was in the ISR for the whole epoch, and after that until it led or until now."""
        assert self.history is not None  # noqa: S101  (the caller has epochs)
        states = self.history.states
        if indexes[0] == 0 and not self.history.since_creation:
            return False
        for state in states[indexes[0] :]:
            if state.leader == broker:
                return True
            if broker not in state.isr:
                return False
        return True

    def _assumptions(self, broker: int, since_offset: int) -> tuple[str, ...]:
        if self.registrations is not None and all(
            offset <= since_offset for offset in self.registrations.get(broker, ())
        ):
            return ()
        when = "if it was restarted since" if self.registrations is None else "when it was restarted since"
        lost = "no unsynced data in a power failure, no folder that was deleted or restored"
        return (f"broker {broker} lost nothing of this log {when}: {lost}",)


def _is_interrupted(states: Sequence[PartitionState], broker: int) -> bool:
    """Return whether a broker's log may have been replaced, or truncated below the high watermark."""
    directories = {directory for state in states if (directory := _directory(state, broker))}
    unclean = any(
        later.recovering or later.leader not in {NO_LEADER, *before.isr} for before, later in pairwise(states)
    )
    return unclean or len(directories) > 1 or any(broker not in state.replicas for state in states)


def _directory(state: PartitionState, broker: int) -> str | None:
    """Return the id of the log directory of a broker's replica; None where it is unknown."""
    directory = dict(zip(state.replicas, state.directories, strict=False)).get(broker)
    return None if directory is None or directory.startswith(_RESERVED) else directory


def _reason(led: Sequence[int], followed: Sequence[int]) -> str:
    parts = [
        f"{verb} leader epoch{'s' if len(epochs) > 1 else ''} {', '.join(map(str, epochs))}"
        for verb, epochs in (("led", led), ("was in the ISR throughout", followed))
        if epochs
    ]
    return " and ".join(parts) or "no leader wrote anything since"
