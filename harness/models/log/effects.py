"""What steps do to a replica: computed once for each, or recorded to be computed for many (`walk.rows`)."""

from __future__ import annotations

from copy import copy
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.models.log.replica import Replica, Segment
from harness.models.log.replication import Replication
from harness.models.walk.exhaustive import Numbered
from harness.models.walk.systems import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from harness.models.log.batch import Batch
    from harness.models.log.cleaner import Bounds, Cleaning
    from harness.models.walk.systems import System


class Slot(NamedTuple):
    """Stands for a replica whose content is not known: the one of a place among `StateSpace.brokers`."""

    number: int


class Effect(NamedTuple):
    """Stands for the result of a method of `Effects`, by its name; ``more``: its arguments that are no numbers."""

    name: str
    numbers: tuple[int | Slot | Effect, ...]
    more: tuple[Hashable, ...]


class Effects:
    """Operations on replicas, by their numbers; each result is computed once, and cached."""

    def __init__(self, system: System, cleaning: Cleaning) -> None:
        """Begin without any replica."""
        self.replicas = Numbered[Replica](system.content)
        self.tails = Numbered[Replica](system.content)
        self._system, self._cleaning = system, cleaning
        for name in _NUMBERS:
            setattr(self, name, cache(getattr(self, name)))

    def of(self, name: str, numbers: Sequence[int], more: Sequence[Hashable]) -> int:
        """Return the result of a method, by its name."""
        result: int = getattr(self, name)(*numbers, *more)
        return result

    def appended(self, number: int, batch: Batch) -> int:
        """Return the leader's replica after it has appended a batch, which all replicas in sync copy at once."""
        replica = self.replicas[number].fork()
        replica.append(batch, roll=True)
        replica.advance_high_watermark(replica.log_end)
        return self.replicas.number(replica)

    def appended_up_to(self, number: int, batch: Batch, high_watermark: int) -> int:
        """Return the leader's replica after it has appended a batch that not every member of the ISR copies at once."""
        replica = self.replicas[number].fork()
        replica.append(batch, roll=True)
        replica.advance_high_watermark(high_watermark)
        return self.replicas.number(replica)

    def watermarked(self, number: int, high_watermark: int) -> int:
        """Return the replica with a higher high watermark."""
        replica = self.replicas[number].fork()
        replica.advance_high_watermark(high_watermark)
        return self.replicas.number(replica)

    def truncated(self, number: int, offset: int) -> int:
        """Return the replica without its log from an offset on."""
        return self.rejoined(number, offset, False)

    def rejoined(self, number: int, offset: int, anew: bool) -> int:  # noqa: FBT001  (it is cached)
        """Return the replica after it has truncated its log to an offset, as its leader has nothing beyond it.

        ``anew``: it drops its whole log instead if its high watermark is beyond that offset. Its cleaner may have been
        there, and have removed values because of records that the truncation removes.
        """
        replica = self.replicas[number].fork()
        if anew and replica.high_watermark > offset:
            return self.emptied(number)
        if replica.log_end > offset:
            replica.truncate(offset)
        return self.replicas.number(replica)

    def emptied(self, _: int) -> int:
        """Return an empty replica."""
        return self.replicas.number(Replica(0))

    def copied(self, number: int, leader: int, most: int | None) -> int:
        """Return the follower's replica after it has copied up to ``most`` batches, or all."""
        return self.extended(number, self.tail(leader, self.log_end(number), most))

    def log_end(self, number: int) -> int:
        """Return the log end offset of a replica."""
        return self.replicas[number].log_end

    def tail(self, number: int, offset: int, most: int | None) -> int:
        """Return the number of what a follower sees of its leader: up to ``most`` batches from an offset on.

        Many leaders have the same tail, and what a follower copies from them is computed once.
        """
        leader = self.replicas[number]
        batches = list(islice(leader.from_offset(offset), most))
        segments = [Segment(one.base_offset, [b for b in one.batches if b in batches]) for one in leader.segments]
        tail = Replica(0, [one for one in segments if one.batches] or [Segment(leader.log_end)])
        tail.log_start, tail.log_end, tail.high_watermark = leader.log_start, leader.log_end, leader.high_watermark
        return self.tails.number(tail)

    def extended(self, number: int, tail: int) -> int:
        """Return the follower's replica after it has copied a tail."""
        pair = Replication({1: self.tails[tail].fork(), 2: self.replicas[number].fork()}, 1, rolls=lambda *_: True)
        pair.fetch(2)
        return self.replicas.number(pair.replicas[2])

    def cleaned(self, number: int, bounds: Bounds) -> int:
        """Return the replica after a pass of its cleaner."""
        replica = self.replicas[number].fork()
        self._system.clean(replica, self._cleaning, NOW_MS, bounds)
        return self.replicas.number(replica)

    def cleaned_past(self, number: int, bounds: Bounds) -> int:
        """Return the replica after a pass of a cleaner that does not stop at the high watermark, which Kafka's does."""
        replica = self.replicas[number].fork()
        high_watermark, unreplicated = replica.high_watermark, list(replica.unreplicated)
        replica.advance_high_watermark(replica.log_end)
        self._system.clean(replica, self._cleaning, NOW_MS, bounds)
        replica.high_watermark, replica.unreplicated = high_watermark, unreplicated
        return self.replicas.number(replica)

    def aged(self, number: int) -> int:
        """Return the replica after time has passed."""
        replica = self.replicas[number].fork()
        self._system.age(replica)
        return self.replicas.number(replica)


_NUMBERS: Final = {
    **dict.fromkeys(("appended", "appended_up_to", "watermarked", "truncated", "rejoined", "emptied"), 1),
    **dict.fromkeys(("log_end", "cleaned", "cleaned_past", "aged"), 1),
    **dict.fromkeys(("tail", "extended"), 2),
}
"""The methods whose results are kept, and how many numbers each takes: of replicas, or results of such methods."""


def recorded(effects: Effects) -> Effects:
    """Return the operations for what stands for replicas: they return an `Effect`, and compute only with numbers."""
    recording = copy(effects)
    for name, count in _NUMBERS.items():
        setattr(recording, name, partial(_record, effects, name, count))
    return recording


def _record(effects: Effects, name: str, count: int, *arguments: Any) -> int | Effect:
    numbers, more = arguments[:count], arguments[count:]
    if all(isinstance(one, int) for one in numbers):
        return effects.of(name, numbers, more)
    return Effect(name, numbers, more)
