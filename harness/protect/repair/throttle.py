"""Limits the rate of copies (KIP-73), as ``kafka-reassign-partitions --throttle`` does, and restores the settings.

Only the replicas of the repair are named, so that a follower that lags is not held back. Members of the ISR are exempt
(``ReplicaFetcherThread.shouldFollowerThrottle``, ``ReplicaManager.shouldLeaderThrottle``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from harness.errors import HarnessError
from harness.protect.repair.channel import REPAIR

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.protect.repair.channel import Notes
    from harness.protect.repair.state import PartitionRepair

REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
NOTE: Final = f"{REPAIR} throttle"
TOPIC, BROKER = "topic", "broker"
Resource: TypeAlias = "tuple[str, str]"
"""`TOPIC` or `BROKER`, and its name."""


class ThrottleSettings(Protocol):
    """Explicit settings of topics and brokers. Methods raise `HarnessError` or OSError."""

    def explicit(self, kind: str, name: str, names: Collection[str]) -> Mapping[str, str | None]:
        """Return a topic's or a broker's explicit values; None for an inherited value."""

    def alter(self, kind: str, name: str, values: Mapping[str, str | None]) -> None:
        """Set values; None removes a value."""


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
    """Implements `harness.protect.repair.service.Throttle`. ``rate_bytes_s``: of each broker; None: no limit."""

    notes: Notes
    settings: ThrottleSettings
    rate_bytes_s: int | None

    def limit(self, entries: Collection[PartitionRepair]) -> None:
        """Store the previous settings, then set the throttle. A broker that is down has no throttle."""
        if self.rate_bytes_s is None:
            return
        stored = self._stored()
        for (kind, name), values in throttle_settings(entries, self.rate_bytes_s).items():
            try:
                if (kind, name) in stored:
                    previous = stored[kind, name]["found"]
                else:
                    previous = dict(self.settings.explicit(kind, name, values))
            except (OSError, HarnessError):
                if kind == BROKER:
                    continue
                raise
            stored[kind, name] = {"found": previous, "set": values}
        self._store(stored)
        for (kind, name), note in stored.items():
            try:
                self.settings.alter(kind, name, note["set"])
            except (OSError, HarnessError):
                if kind != BROKER:
                    raise

    def lift(self) -> None:
        """Restore the previous settings, but no value that somebody changed meanwhile.

        Raises `HarnessError` where a broker does not answer: only the broker itself restores its rate.
        """
        stored = self._stored()
        failures: dict[Resource, str] = {}
        for (kind, name), note in stored.items():
            try:
                current = self.settings.explicit(kind, name, note["set"])
                ours = {setting: note["found"][setting] for setting, v in note["set"].items() if current[setting] == v}
                if ours:
                    self.settings.alter(kind, name, ours)
            except (OSError, HarnessError) as error:
                failures[kind, name] = str(error)
        if failures:
            self._store({resource: stored[resource] for resource in failures})
            raise HarnessError("; ".join(f"throttle of {kind} {name}: {why}" for (kind, name), why in failures.items()))
        if stored:
            self.notes.write(NOTE, None)

    def _stored(self) -> dict[Resource, dict[str, Any]]:
        return {(note["kind"], note["name"]): note for note in self.notes.read().get(NOTE) or ()}

    def _store(self, stored: Mapping[Resource, Mapping[str, Any]]) -> None:
        notes = [{**note, "kind": kind, "name": name} for (kind, name), note in stored.items()]
        self.notes.write(NOTE, notes)
