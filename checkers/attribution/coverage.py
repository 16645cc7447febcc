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

A replica that was unassigned in between, or whose log is in another directory, proves nothing about earlier epochs, and
no replica proves anything across an unclean election. Facts that the metadata log does not have become assumptions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.broker_files.metadata_log.history import NO_LEADER, PartitionHistory, PartitionState, absences
from harness.host.clock import time_text

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
        """Return the proof that a replica received every record of these epochs (to the newest for None), else None."""
        if self.gap(broker, first_epoch, last_epoch) is not None:
            return None
        needed, led, followed = self._epochs(broker, first_epoch, last_epoch)
        return Proof(_reason(led, followed), self._assumptions(broker, self._states[needed[0][0]].offset))

    def gap(self, broker: int, first_epoch: int, last_epoch: int | None = None) -> str | None:
        """Return why a replica is not shown to have received these epochs, a phrase; else None."""
        states = self._states
        epochs = [state.leader_epoch for state in states]
        if not epochs:
            return "no history in the metadata log"
        if first_epoch not in epochs or (last_epoch or 0) > epochs[-1]:
            return (
                f"its history begins in leader epoch {epochs[0]}, after epoch {first_epoch} of the record in question"
            )
        needed, _, followed = self._epochs(broker, first_epoch, last_epoch)
        if interruption := _interruption(states[needed[0][0] :], broker):
            return interruption
        return next((gap for epoch in followed if (gap := self._missed(epochs.index(epoch), broker))), None)

    @property
    def _states(self) -> Sequence[PartitionState]:
        return () if self.history is None else self.history.states

    def _epochs(
        self, broker: int, first_epoch: int, last_epoch: int | None
    ) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        """Return the first state's index and the number of each epoch; the epochs that the broker led, and others."""
        epochs: dict[int, int] = {}
        for index, state in enumerate(self._states):
            epochs.setdefault(state.leader_epoch, index)
        newest = max(epochs) if last_epoch is None else last_epoch
        needed = [(index, epoch) for epoch, index in epochs.items() if first_epoch <= epoch <= newest]
        led = [epoch for index, epoch in needed if self._states[index].leader == broker]
        followed = [epoch for index, epoch in needed if self._states[index].leader not in {broker, NO_LEADER}]
        return needed, led, followed

    def _missed(self, first: int, broker: int) -> str | None:
        """Return why a broker was not in the ISR for a whole epoch, and after that until it led or until now."""
        assert self.history is not None  # noqa: S101  (the caller has epochs)
        if first == 0 and not self.history.since_creation:
            return "members of the ISR before the start of the metadata log are unknown"
        states = self._states[first:]
        led = next((index for index, state in enumerate(states) if state.leader == broker), len(states))
        return next((str(absence) for absence in absences(states[:led], broker)), None)

    def _assumptions(self, broker: int, since_offset: int) -> tuple[str, ...]:
        registrations = None if self.registrations is None else self.registrations.get(broker, ())
        if registrations is not None and all(offset <= since_offset for offset in registrations):
            return ()
        when = "if it was restarted since" if registrations is None else "when it was restarted since"
        lost = "no unsynced data in a power failure, no folder that was deleted or restored"
        return (f"broker {broker} lost nothing of this log {when}: {lost}",)


def _interruption(states: Sequence[PartitionState], broker: int) -> str | None:
    """Return why a broker's log may have been replaced, or truncated below the high watermark, else None."""
    if len({directory for state in states if (directory := _directory(state, broker))}) > 1:
        return "its log is in another directory since"
    for before, later in pairwise(states):
        if later.recovering or later.leader not in {NO_LEADER, *before.isr}:
            return f"the unclean election of {_when(later)} may have lost records"
    return next((f"not assigned at {_when(state)}" for state in states if broker not in state.replicas), None)


def _when(state: PartitionState) -> str:
    return f"metadata offset {state.offset}" if state.time_ms is None else time_text(state.time_ms)


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
