"""The durable part of a repair, in the topic of the guard (`guard.channel`): progress, holds, the owner of repairs.

Notes have the names ``repair entry T-P``, ``repair throttle`` and ``repair owner``. A hold keeps a topic paused, also
by a guard that runs; without a guard the repair pauses the topic, by the same steps.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from harness.errors import HarnessError, UsageError, WaitTimeoutError
from harness.protect.guard import decide
from harness.protect.guard.journal import HOLD, NOTE, UNHOLD, Entry, PausePhase
from harness.protect.repair.state import PartitionRepair, ReplicaCopying

if TYPE_CHECKING:
    from collections.abc import Collection

    from harness.host.clock import Clock
    from harness.kafka_api.messages import TopicPartition
    from harness.protect.guard.journal import Pause
    from harness.protect.guard.ports import Channel, GuardedCluster

REPAIR: Final = "repair"
PROGRESS: Final = f"{REPAIR} entry "
OWNER: Final = f"{REPAIR} owner"
SIGN_S: Final = 4.0
"""The interval of the signs of life."""
SILENT_S: Final = 3 * SIGN_S
"""A repair without a sign for this long was killed."""


class TakenOverError(HarnessError):
    """Another repair works on the cluster by now."""


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
        """Store a note; None removes it. Raises `HarnessError`."""
        content = {"name": name, "value": value}
        self.channel.append([Entry(NOTE, topic, self.clock.time_ms(), self.writer, content)])


@dataclass
class ChannelJournal:
    """Implements `harness.protect.repair.service.Journal`."""

    notes: Notes

    def entries(self) -> dict[TopicPartition, PartitionRepair]:
        """Return the progress of every partition whose repair was begun."""
        stored = [_progress(value) for name, value in self.notes.read().items() if name.startswith(PROGRESS)]
        return {entry.partition: entry for entry in stored}

    def store(self, entry: PartitionRepair) -> None:
        """Append a note."""
        self.notes.write(f"{PROGRESS}{entry.name}", asdict(entry), entry.partition[0])

    def remove(self, partition: TopicPartition) -> None:
        """Append a note that removes the partition."""
        self.notes.write(f"{PROGRESS}{partition[0]}-{partition[1]}", None, partition[0])


def _progress(value: dict[str, Any]) -> PartitionRepair:
    """Return the progress of a note's value."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in value.items()}
    fields["copy"] = value["copy"] and ReplicaCopying(**value["copy"])
    return PartitionRepair(**fields)


@dataclass
class ChannelHolds:
    """Implements `harness.protect.repair.service.Holds`, by the steps of the guard (`harness.protect.guard.decide`).

    A pause that a repair began has a cycle that begins with `REPAIR`: a repair ends that pause. A guard ends any other.
    """

    channel: Channel
    cluster: GuardedCluster
    clock: Clock
    writer: str

    def held(self) -> frozenset[str]:
        """Return the topics with a hold of a repair."""
        return frozenset(topic for topic, holders in self.channel.read().holds.items() if REPAIR in holders)

    def hold(self, topics: Collection[str]) -> None:
        """Store the hold and the previous settings, then pause. Raises `HarnessError` for a topic that is refused."""
        state = self.channel.read()
        self._mark(HOLD, [topic for topic in topics if REPAIR not in state.holds.get(topic, ())])
        self._carry_out(topics, to_pause=topics)

    def release(self, topics: Collection[str]) -> None:
        """Restore the previous settings, then end the hold: a repair that is killed between both does it again.

        A topic that another command holds, or that a guard paused, stays paused.
        """
        state = self.channel.read()
        ours = [
            topic
            for topic in topics
            if (pause := state.pauses.get(topic)) is not None
            and pause.cycle.startswith(REPAIR)
            and not state.holds.get(topic, frozenset()) - {REPAIR}
        ]
        self._carry_out(ours, to_pause=())
        self._mark(UNHOLD, topics)

    def _mark(self, kind: str, topics: Collection[str]) -> None:
        now_ms = self.clock.time_ms()
        if topics:
            self.channel.append([Entry(kind, topic, now_ms, self.writer, {"by": REPAIR}) for topic in topics])

    def _carry_out(self, topics: Collection[str], to_pause: Collection[str]) -> None:
        """Announce each topic's step, change its settings if they are as expected, and store the new phase."""
        if not topics:
            return
        now_ms, state = self.clock.time_ms(), self.channel.read()
        read = self.cluster.settings(topics)
        steps = decide.steps(to_pause, state, read.settings, f"{self.writer} {now_ms}", now_ms)

        def store(pauses: Collection[Pause]) -> None:
            decide.store_in(self.channel, pauses, now_ms, self.writer)

        # Nobody needs the previous settings of a deleted topic.
        gone = read.gone & state.pauses.keys()
        store([replace(state.pauses[topic], phase=PausePhase.RELEASED) for topic in sorted(gone)])
        refused = {**read.refused, **decide.carry_out(steps, self.cluster, store)}
        if refused:
            topic = min(refused)
            raise HarnessError(f"settings of topic {topic}: {refused[topic]}")


@dataclass
class RepairOwner:
    """The ownership of a cluster's repairs, with signs of life in the channel. The last claim counts."""

    notes: Notes
    due_s: float = 0.0
    sign: int = 0

    def claim(self) -> None:
        """Become the owner; where another repair may be running, wait for its next sign.

        Raises `UsageError` where another repair is under way, `HarnessError` where the channel cannot be read.
        """
        last = self.notes.read().get(OWNER)
        # Without a sign, the other repair was killed.
        with suppress(WaitTimeoutError):
            if last is not None:
                self.notes.clock.wait_until(
                    lambda: self.notes.read().get(OWNER) != last, SILENT_S, "a sign of another repair"
                )
                if (owner := self.notes.read().get(OWNER)) is not None:
                    raise UsageError(f"another repair of this cluster is under way: {owner['writer']}")
        self._give_sign()
        self.check()

    def check(self) -> None:
        """Raise `TakenOverError` where another repair took over; give a sign when it is due."""
        if not self._owns():
            raise TakenOverError("another repair of this cluster has taken over: this repair ends")
        if self.notes.clock.now_s() >= self.due_s:
            self._give_sign()

    def leave(self) -> None:
        """Let another repair begin at once; after an error, it waits for `SILENT_S`."""
        with suppress(HarnessError):
            if self._owns():
                self.notes.write(OWNER, None)

    def _owns(self) -> bool:
        owner = self.notes.read().get(OWNER)
        return owner is not None and owner["writer"] == self.notes.writer

    def _give_sign(self) -> None:
        self.sign += 1
        self.notes.write(OWNER, {"writer": self.notes.writer, "sign": self.sign})
        self.due_s = self.notes.clock.now_s() + SIGN_S
