"""The durable part of a repair, in the topic of the guard (`guard.channel`): progress, holds, who repairs.

Notes have the names ``repair entry T-P``, ``repair throttle`` and ``repair owner``. A hold has the cluster's paused
topics stay paused, also by a guard that runs; without a guard the repair pauses them, by the same steps.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from harness.errors import HarnessError, UsageError, WaitTimeoutError
from harness.protect.guard import decide
from harness.protect.guard.changes import carry_out, keep_in
from harness.protect.guard.journal import HOLD, NOTE, UNHOLD, PausePhase
from harness.protect.guard.journal import Entry as ChannelEntry
from harness.protect.repair.cluster import TakenOverError
from harness.protect.repair.state import PartitionRepair, ReplicaCopying

if TYPE_CHECKING:
    from collections.abc import Collection

    from harness.host.clock import Clock
    from harness.protect.guard.journal import Pause
    from harness.protect.guard.ports import Channel, GuardedCluster
    from harness.protect.repair.state import Partition

REPAIR: Final = "repair"
ENTRY: Final = f"{REPAIR} entry "
OWNER: Final = f"{REPAIR} owner"
SIGN_S: Final = 4.0
"""How often the repair that runs gives a sign of life."""
SILENT_S: Final = 3 * SIGN_S
"""Without a sign for this long, the repair was killed."""


def to_json(entry: PartitionRepair) -> dict[str, Any]:
    """Return an entry as the value of a note."""
    return asdict(entry)


def from_json(value: dict[str, Any]) -> PartitionRepair:
    """Return the entry of a note's value."""
    lists = {name: tuple(one) for name, one in value.items() if isinstance(one, list)}
    topic, number = value["partition"]
    copy = None if value["copy"] is None else ReplicaCopying(**value["copy"])
    return PartitionRepair(**{**value, **lists, "partition": (topic, number), "copy": copy})


@dataclass
class Notes:
    """Notes of repairs in the channel. ``writer`` names this repair."""

    channel: Channel
    clock: Clock
    writer: str

    def read(self) -> dict[str, Any]:
        """Return every note by its name. Raises `HarnessError`."""
        return dict(self.channel.read().notes)

    def write(self, name: str, value: Any, topic: str = "") -> None:
        """Store a note; None forgets it. Raises `HarnessError`."""
        content = {"name": name, "value": value}
        self.channel.append([ChannelEntry(NOTE, topic, self.clock.time_ms(), self.writer, content)])


@dataclass
class ChannelJournal:
    """Implements `harness.protect.repair.cluster.Journal`."""

    notes: Notes

    def entries(self) -> dict[Partition, PartitionRepair]:
        """Return the progress of every partition that a repair began."""
        stored = [from_json(value) for name, value in self.notes.read().items() if name.startswith(ENTRY)]
        return {entry.partition: entry for entry in stored}

    def store(self, entry: PartitionRepair) -> None:
        """Append a note."""
        self.notes.write(f"{ENTRY}{entry.name}", to_json(entry), entry.partition[0])

    def remove(self, partition: Partition) -> None:
        """Append a note that forgets it."""
        self.notes.write(f"{ENTRY}{partition[0]}-{partition[1]}", None, partition[0])


@dataclass
class ChannelHolds:
    """Implements `harness.protect.repair.cluster.Holds`, by the steps of the guard (`harness.protect.guard.decide`).

    A pause that a repair began has a cycle that begins with `REPAIR`: the repair ends that pause. Any other one is
    ended by a guard.
    """

    channel: Channel
    cluster: GuardedCluster
    clock: Clock
    writer: str

    def held(self) -> frozenset[str]:
        """Return the topics with a hold of a repair."""
        return frozenset(topic for topic, holders in self.channel.read().holds.items() if REPAIR in holders)

    def hold(self, topics: Collection[str]) -> None:
        """Keep the hold, keep what is found, then pause. Raises `HarnessError` where a topic cannot be paused."""
        state = self.channel.read()
        self._mark(HOLD, [topic for topic in topics if REPAIR not in state.holds.get(topic, ())])
        self._carry_out(topics, to_pause=topics)

    def release(self, topics: Collection[str]) -> None:
        """Put back what was found, then end the hold: a repair that is killed between both does it again.

        A topic that another command holds, or that a guard paused, stays paused.
        """
        state = self.channel.read()
        own = [
            topic
            for topic in topics
            if (pause := state.pauses.get(topic)) is not None
            and pause.cycle.startswith(REPAIR)
            and not state.holds.get(topic, frozenset()) - {REPAIR}
        ]
        self._carry_out(own, to_pause=())
        self._mark(UNHOLD, topics)

    def _mark(self, kind: str, topics: Collection[str]) -> None:
        now_ms = self.clock.time_ms()
        if topics:
            self.channel.append([ChannelEntry(kind, t, now_ms, self.writer, {"by": REPAIR}) for t in topics])

    def _carry_out(self, topics: Collection[str], to_pause: Collection[str]) -> None:
        """Announce each topic's step, change its settings if they are as expected, and say that it is done."""
        if not topics:
            return
        now_ms, state = self.clock.time_ms(), self.channel.read()
        read = self.cluster.settings(topics)
        steps = decide.steps(to_pause, state, read.settings, f"{self.writer} {now_ms}", now_ms)

        def keep(pauses: Collection[Pause]) -> None:
            keep_in(self.channel, pauses, now_ms, self.writer)

        # What was found for a topic that does not exist any more is for nobody.
        gone = read.gone & state.pauses.keys()
        keep([replace(state.pauses[topic], phase=PausePhase.RELEASED) for topic in sorted(gone)])
        refused = {**read.refused, **carry_out(steps, self.cluster, keep)}
        if refused:
            topic = min(refused)
            raise HarnessError(f"settings of topic {topic}: {refused[topic]}")


@dataclass
class RepairOwner:
    """Only one repair works on a cluster, and gives signs of life in the channel. The last one to claim it owns it."""

    notes: Notes
    due_s: float = 0.0
    sign: int = 0

    def claim(self) -> None:
        """Become the owner; where another repair may be running, wait whether it gives a sign.

        Raises `UsageError` where another repair is under way, `HarnessError` where the channel cannot be read.
        """
        last = self.notes.read().get(OWNER)
        if last is not None:
            try:
                self.notes.clock.wait_until(
                    lambda: self.notes.read().get(OWNER) != last, SILENT_S, "a sign of another repair"
                )
            except WaitTimeoutError:
                pass  # it was killed
            else:
                now = self.notes.read().get(OWNER)
                if now is not None:
                    raise UsageError(f"another repair of this cluster is under way: {now['writer']}")
        self._give_sign()
        self.check()

    def check(self) -> None:
        """Raise `TakenOverError` where another repair took over; give a sign when it is due."""
        owner = self.notes.read().get(OWNER)
        if owner is None or owner["writer"] != self.notes.writer:
            raise TakenOverError("another repair of this cluster has taken over: this one ends")
        if self.notes.clock.now_s() >= self.due_s:
            self._give_sign()

    def leave(self) -> None:
        """Let another repair begin at once; on an error, it waits for `SILENT_S`."""
        with suppress(HarnessError):
            owner = self.notes.read().get(OWNER)
            if owner is not None and owner["writer"] == self.notes.writer:
                self.notes.write(OWNER, None)

    def _give_sign(self) -> None:
        self.sign += 1
        self.notes.write(OWNER, {"writer": self.notes.writer, "sign": self.sign})
        self.due_s = self.notes.clock.now_s() + SIGN_S
