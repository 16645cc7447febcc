"""The durable part of a repair, in the topic of the guard (`guard.channel`): progress, holds, throttle, owner.

Notes have the names ``repair entry T-P``, ``repair throttle`` and ``repair owner``. A hold keeps a topic paused, also
by a guard that runs; without a guard the repair pauses the topic, by the same steps.

The throttle limits the rate of copies (KIP-73), as ``kafka-reassign-partitions --throttle`` does. Only the replicas of
the repair are named, so that a follower that lags is not held back. Members of the ISR are exempt
(``ReplicaFetcherThread.shouldFollowerThrottle``, ``ReplicaManager.shouldLeaderThrottle``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harness.errors import HarnessError, UsageError, WaitTimeoutError
from harness.json_codec import from_json
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import NotRegisteredError
from harness.protect.guard import decide
from harness.protect.guard.cluster import PAUSE
from harness.protect.guard.journal import HOLD, NOTE, UNHOLD, Entry, PausePhase, entry_of
from harness.protect.repair.steps import PartitionRepair

if TYPE_CHECKING:
    from harness.protect.guard.channel import KafkaChannel
    from harness.protect.guard.cluster import LiveCluster
    from harness.protect.repair.live import LiveRepairCluster


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
class RepairJournal:
    """Notes of repairs, which survive a crash: the progress of each partition, and the owner of a cluster's repairs.

    The owner gives signs of life; the last claim counts. ``channel.writer`` names this repair.
    """

    channel: KafkaChannel
    sign_due_s: float = 0.0
    sign: int = 0

    def notes(self) -> Mapping[str, Any]:
        """Return every note by its name."""
        return self.channel.read().notes

    def write(self, name: str, value: Any, topic: str = "") -> None:
        """Store a note; None removes it."""
        self.channel.append([Entry(NOTE, topic, content={"name": name, "value": value})])

    def entries(self) -> dict[TopicPartition, PartitionRepair]:
        """Return the progress of every partition whose repair was begun."""
        notes = self.notes().items()
        stored = [from_json(PartitionRepair, value) for name, value in notes if name.startswith(PROGRESS)]
        return {entry.partition: entry for entry in stored}

    def store(self, entry: PartitionRepair) -> None:
        """Store progress in place of the partition's earlier progress."""
        self.write(f"{PROGRESS}{name_of(entry.partition)}", asdict(entry), entry.partition[0])

    def remove(self, partition: TopicPartition) -> None:
        """Remove the progress of a partition."""
        self.write(f"{PROGRESS}{name_of(partition)}", None, partition[0])

    def claim(self) -> None:
        """Become the owner once no other repair gives signs. Raises `UsageError` where another repair is under way."""
        last = self._owner()
        # Without a sign, the other repair was killed.
        with suppress(WaitTimeoutError):
            if last:
                self.channel.clock.wait_until(lambda: self._owner() != last, SILENT_S, "a sign of another repair")
                if owner := self._owner():
                    raise UsageError(f"another repair of this cluster is under way: {owner['writer']}")
        self._give_sign()
        self.check()

    def check(self) -> None:
        """Raise `TakenOverError` where another repair took over; give a sign when it is due."""
        if not self._owns():
            raise TakenOverError("another repair of this cluster has taken over: this repair ends")
        if self.channel.clock.now_s() >= self.sign_due_s:
            self._give_sign()

    def leave(self) -> None:
        """Let another repair begin at once; after an error, it waits for `SILENT_S`."""
        with suppress(HarnessError):
            if self._owns():
                self.write(OWNER, None)

    def _owner(self) -> dict[str, Any]:
        return self.notes().get(OWNER) or {}

    def _owns(self) -> bool:
        return self._owner().get("writer") == self.channel.writer

    def _give_sign(self) -> None:
        self.sign += 1
        self.write(OWNER, {"writer": self.channel.writer, "sign": self.sign})
        self.sign_due_s = self.channel.clock.now_s() + SIGN_S


@dataclass
class ChannelHolds:
    """Pauses compaction of topics, by the steps of the guard (`harness.protect.guard.decide`). Methods raise as above.

    A pause that a repair began has a cycle that begins with `REPAIR`: a repair ends that pause. A guard ends any other.
    """

    journal: RepairJournal
    cluster: LiveCluster

    def held(self) -> frozenset[str]:
        """Return the topics that repairs hold, also repairs that were killed."""
        return frozenset(topic for topic, holders in self.journal.channel.read().holds.items() if REPAIR in holders)

    def hold(self, topics: Collection[str]) -> None:
        """Store the hold and the previous settings, then pause; brokers learn it later. Raises `HarnessError`."""
        state = self.journal.channel.read()
        self._mark(HOLD, (topic for topic in topics if REPAIR not in state.holds.get(topic, ())))
        self._carry_out(topics, to_pause=topics)

    def release(self, topics: Collection[str]) -> None:
        """Restore the previous settings, then end the hold: a repair that is killed between both does it again.

        A topic that another command holds, or that a guard paused, stays paused.
        """
        state = self.journal.channel.read()
        ours = {topic for topic, pause in state.pauses.items() if pause.cycle.startswith(REPAIR)}
        others = {topic for topic, holders in state.holds.items() if holders - {REPAIR}}
        self._carry_out([topic for topic in topics if topic in ours - others], to_pause=())
        self._mark(UNHOLD, topics)

    def _mark(self, kind: str, topics: Iterable[str]) -> None:
        self.journal.channel.append([Entry(kind, topic, content={"by": REPAIR}) for topic in topics])

    def _carry_out(self, topics: Collection[str], to_pause: Collection[str]) -> None:
        if not topics:
            return
        channel = self.journal.channel
        now_ms = channel.clock.time_ms()
        state, read = channel.read(), self.cluster.settings(topics)
        # If somebody changed a setting during the pause, the pause begins again, and restores that value at its end.
        paused = {t: pause for t in to_pause if (pause := state.pauses.get(t)) and pause.previous.keys() < PAUSE.keys()}
        begins = {topic: replace(pause, phase=PausePhase.PAUSING) for topic, pause in paused.items()}
        state = replace(state, pauses={**state.pauses, **begins})
        steps = decide.steps(to_pause, state, read.settings, f"{channel.writer} {now_ms}", now_ms)
        # Nobody needs the previous settings of a deleted topic.
        gone = [replace(state.pauses[t], phase=PausePhase.RELEASED) for t in sorted(read.gone & state.pauses.keys())]
        channel.append(list(map(entry_of, gone)))
        refused = {**read.refused, **decide.carry_out(steps, self.cluster, channel)}
        if refused:
            topic = min(refused)
            raise HarnessError(f"settings of topic {topic}: {refused[topic]}")


REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLE: Final = f"{REPAIR} throttle"
TOPIC, BROKER = "topic", "broker"
Resource: TypeAlias = "tuple[str, str]"
"""`TOPIC` or `BROKER`, and its name."""


def throttle_settings(entries: Collection[PartitionRepair], rate_bytes_s: int) -> dict[Resource, dict[str, str]]:
    """Return the settings that limit the copies of these partitions."""
    brokers = sorted({broker for entry in entries for broker in entry.brokers})
    settings = {(BROKER, str(broker)): dict.fromkeys(RATES, str(rate_bytes_s)) for broker in brokers}
    for topic in dict.fromkeys(entry.partition[0] for entry in entries):
        repaired = [(entry.partition[1], entry) for entry in entries if entry.partition[0] == topic]
        leaders = [f"{number}:{broker}" for number, entry in repaired for broker in sorted(entry.brokers)]
        followers = [f"{number}:{broker}" for number, entry in repaired for broker in entry.copying]
        settings[TOPIC, topic] = dict(zip(REPLICAS, (",".join(leaders), ",".join(followers)), strict=True))
    return settings


@dataclass
class ChannelThrottle:
    """Limits the rate of copies. ``rate_bytes_s``: of each broker; None: no limit. Methods raise as above."""

    journal: RepairJournal
    cluster: LiveRepairCluster
    rate_bytes_s: int | None

    def limit(self, entries: Collection[PartitionRepair]) -> None:
        """Store the previous settings, then set the throttle. A broker that does not answer has no throttle."""
        if self.rate_bytes_s is None:
            return
        stored, passed = self._stored(), {BROKER: (OSError,)}
        limited: dict[Resource, dict[str, str]] = {}
        for (kind, name), values in throttle_settings(entries, self.rate_bytes_s).items():
            with suppress(*passed.get(kind, ())):
                if found := self.cluster.explicit(kind, name, values):
                    note = {"found": found, "set": [], **stored.get((kind, name), {})}
                    # The values of an earlier repair may still be in force.
                    stored[kind, name] = {**note, "set": [values, *note["set"]]}
                    limited[kind, name] = values
        self._store(stored)
        for (kind, name), values in limited.items():
            with suppress(*passed.get(kind, ())):
                self.cluster.alter(kind, name, values)

    def lift(self) -> None:
        """Restore values that nobody changed since. Raises `HarnessError` for a broker that does not answer.

        A broker that is not registered has its throttle until a later repair.
        """
        stored = self._stored()
        failures: dict[Resource, OSError | HarnessError] = {}
        for (kind, name), note in stored.items():
            try:
                found, current = note["found"], self.cluster.explicit(kind, name, note["found"])
                ours = {s: value for s, value in found.items() if current.get(s) in {v[s] for v in note["set"]}}
                if ours:
                    self.cluster.alter(kind, name, ours)
            except (OSError, HarnessError) as error:
                failures[kind, name] = error
        if stored:
            self._store({resource: stored[resource] for resource in failures})
        silent = {at: why for at, why in failures.items() if not isinstance(why, NotRegisteredError)}
        if silent:
            raise HarnessError("; ".join(f"throttle of {kind} {name}: {why}" for (kind, name), why in silent.items()))

    def _stored(self) -> dict[Resource, dict[str, Any]]:
        return {(note["kind"], note["name"]): note for note in self.journal.notes().get(THROTTLE) or ()}

    def _store(self, stored: Mapping[Resource, Mapping[str, Any]]) -> None:
        notes = [{**note, "kind": kind, "name": name} for (kind, name), note in stored.items()]
        self.journal.write(THROTTLE, notes or None)
