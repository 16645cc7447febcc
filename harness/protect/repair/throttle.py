"""Limits how fast replicas are copied (KIP-73), as ``kafka-reassign-partitions --throttle`` does, and puts it back.

Only the replicas of the repair are named, so that a follower that lags is not held back. Members of the ISR are exempt
(``ReplicaFetcherThread.shouldFollowerThrottle``, ``ReplicaManager.shouldLeaderThrottle``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from harness.errors import HarnessError
from harness.protect.repair.channel import REPAIR

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.protect.repair.channel import Notes
    from harness.protect.repair.state import PartitionRepair

REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
NOTE: Final = f"{REPAIR} throttle"


class ThrottleSettings(Protocol):
    """Settings that topics and brokers themselves have. Methods raise `HarnessError` or OSError."""

    def explicit(self, kind: str, name: str, names: Collection[str]) -> Mapping[str, str | None]:
        """Return a topic's or a broker's explicit values; None where it has none. ``kind``: `TOPIC` or `BROKER`."""
        ...

    def alter(self, kind: str, name: str, values: Mapping[str, str | None]) -> None:
        """Set values; None removes one."""
        ...


TOPIC, BROKER = "topic", "broker"


def wanted(entries: Collection[PartitionRepair], rate_bytes_s: int) -> dict[tuple[str, str], dict[str, str]]:
    """Return the settings that limit the copies of these partitions, by kind and name."""
    settings: dict[tuple[str, str], dict[str, str]] = {}
    brokers = {broker for entry in entries for broker in entry.brokers}
    for broker in sorted(brokers):
        settings[BROKER, str(broker)] = dict.fromkeys(RATES, str(rate_bytes_s))
    by_topic: dict[str, list[PartitionRepair]] = {}
    for entry in entries:
        by_topic.setdefault(entry.partition[0], []).append(entry)
    for topic, of_topic in by_topic.items():
        leaders = [f"{one.partition[1]}:{b}" for one in of_topic for b in sorted(one.brokers)]
        copies = [(one.partition[1], (*one.wrong, *(() if one.spare is None else (one.spare,)))) for one in of_topic]
        followers = [f"{number}:{broker}" for number, brokers_ in copies for broker in brokers_]
        settings[TOPIC, topic] = dict(zip(REPLICAS, (",".join(leaders), ",".join(followers)), strict=True))
    return settings


@dataclass
class ChannelThrottle:
    """Implements `harness.protect.repair.cluster.Throttle`. ``rate_bytes_s``: of each broker; None: no limit."""

    notes: Notes
    settings: ThrottleSettings
    rate_bytes_s: int | None

    def limit(self, entries: Collection[PartitionRepair]) -> None:
        """Keep what is found, then set the throttle. A broker that is down is left without a rate of its own."""
        if self.rate_bytes_s is None:
            return
        stored = self._stored()
        new = wanted(entries, self.rate_bytes_s)
        for (kind, name), values in new.items():
            known = stored.get((kind, name))
            try:
                found = dict(self.settings.explicit(kind, name, values)) if known is None else known["found"]
            except (OSError, HarnessError):
                if kind == BROKER:
                    continue
                raise
            stored[kind, name] = {"found": found, "set": values}
        self._store(stored)
        for (kind, name), one in stored.items():
            try:
                self.settings.alter(kind, name, one["set"])
            except (OSError, HarnessError):
                if kind != BROKER:
                    raise

    def lift(self) -> None:
        """Put back what was found; a value that somebody changed meanwhile is left alone.

        Raises `HarnessError` where a broker does not answer: only the broker itself puts back its rate.
        """
        stored = self._stored()
        left: dict[tuple[str, str], str] = {}
        for (kind, name), one in stored.items():
            try:
                now = self.settings.explicit(kind, name, one["set"])
                ours = {
                    setting: one["found"][setting] for setting, value in one["set"].items() if now[setting] == value
                }
                if ours:
                    self.settings.alter(kind, name, ours)
            except (OSError, HarnessError) as error:
                left[kind, name] = str(error)
        if left:
            self._store({key: one for key, one in stored.items() if key in left})
            raise HarnessError("; ".join(f"throttle of {kind} {name}: {why}" for (kind, name), why in left.items()))
        if stored:
            self.notes.write(NOTE, None)

    def _stored(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(one["kind"], one["name"]): one for one in self.notes.read().get(NOTE) or ()}

    def _store(self, stored: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        self.notes.write(
            NOTE,
            [
                {"kind": kind, "name": name, "found": one["found"], "set": one["set"]}
                for (kind, name), one in stored.items()
            ],
        )
