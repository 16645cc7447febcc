"""Whether the gates of the brokers held what a round exposed: without that a round with ``--gate`` is not clean.

An outage is a time in which a replica was out of the ISR of its partition, by the log of the controllers. It is exposed
where, early enough in it, a client deleted a key there or ended a transaction: a cleaner without a gate would have
removed that before the replica was back. Every broker that was in the ISR throughout has to have held the partition at
some time of the outage, or all of its partitions until its end, and to have let go of it since, or started again. Where
the fault late-cleaner kept its cleaner from looking all the while, there was nothing to hold.

Verified: by the gates' own lines in the brokers' logs, against outages that the controllers wrote down. What a gate
says is no evidence that it did so: that is what the judges of the replicas are for. Not verified: replicas that were
taken off a partition and came back empty, as they have nothing to lose.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from harness.broker_files.segments.batches import iter_batches
from harness.broker_files.segments.folder import live_segments
from harness.protect.gate.events import GAVE_UP, HELD, HELD_ALL, INSTALLED, RELEASED, RELEASED_ALL
from harness.run_folder.fault_times import fault_times
from harness.soak.evidence.client_log import INVOKE, OK, recreations
from nemesis import late_cleaner
from nemesis.clock_skew import AHEAD_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.broker_files.metadata_log.history import ClusterMetadata, PartitionState
    from harness.kafka_api.messages import TopicPartition

REMOVED_WITHIN_MS: Final = 5_000
"""So long before an outage ends something has to be written for it to be exposed: the longest lag, retention and
segment of a round (`harness.soak.draw.plan.SETTINGS`), and two passes of a cleaner."""

_AHEAD_MS: Final = AHEAD_S * 1_000


@dataclass(frozen=True)
class Outage:
    """A replica out of the ISR, in milliseconds since the epoch. ``stayed``: brokers in the ISR throughout."""

    partition: TopicPartition
    broker: int
    began_ms: int
    ended_ms: int
    stayed: frozenset[int]


class LateCleaner(NamedTuple):
    """From when until when the fault late-cleaner kept a broker's cleaner from looking for work."""

    broker: int
    began_ms: int
    ended_ms: int


def late_cleaners(events: Iterable[Mapping[str, Any]]) -> list[LateCleaner]:
    """Return when cleaners were kept from looking: until that was to end. One that never ended is left out."""
    return [
        LateCleaner(one.broker, one.active_ms, one.heal_ms)
        for one in fault_times(events)
        if one.fault == late_cleaner.FAULT.name and one.active_ms is not None and one.heal_ms is not None
    ]


class _Hold(NamedTuple):
    """From when until when a gate held one partition or all, and the event that ended it; `HELD` where none did."""

    began_ms: int
    ended_ms: int | None
    how: str


@dataclass(frozen=True)
class GateEvidence:
    """What was exposed, and what of it gates did not hold, in sentences."""

    outages: int
    exposed: Sequence[Outage]
    lacks: Sequence[str]

    @property
    def lack(self) -> str | None:
        """Why a round without findings is not clean; None where it is."""
        if not self.exposed:
            return "the gates had nothing to hold: no partition was exposed"
        return self.lacks[0] if self.lacks else None

    @property
    def counts(self) -> dict[str, int]:
        """What gates held, as ``verdict.json`` has it."""
        return {
            "outages": self.outages,
            "exposed": len(self.exposed),
            "held": len(self.exposed) - len(self.lacks),
            "partitions": len({one.partition for one in self.exposed}),
        }


def outages_of(metadata: ClusterMetadata | None, topics: Collection[str]) -> list[Outage]:
    """Return the outages of these topics by the metadata log. An outage that does not end is left out.

    Raises ``CorruptLogError`` and OSError.
    """
    if metadata is None:
        return []
    offsets, times = _times(metadata.source)
    found = []
    for tp, history in metadata.histories.items():
        if tp[0] not in topics:
            continue
        timed = [(times[max(0, bisect_right(offsets, state.offset) - 1)], state) for state in history.states]
        found += list(outages_in(tp, timed))
    return found


def _times(folder: Path) -> tuple[list[int], list[int]]:
    batches = [
        (batch.base_offset, batch.max_timestamp_ms)
        for segment in live_segments(folder).segments
        for batch in iter_batches((folder / segment.log).read_bytes(), source=segment.log)
    ]
    return [offset for offset, _ in batches], [time_ms for _, time_ms in batches]


def outages_in(tp: TopicPartition, states: Sequence[tuple[int, PartitionState]]) -> Iterator[Outage]:
    """Yield the outages of a partition by its states, each with when it began, in milliseconds."""
    since: dict[int, tuple[int, frozenset[int]]] = {}
    for time_ms, state in states:
        isr, out = frozenset(state.isr), set(state.replicas) - set(state.isr)
        for broker, (began_ms, stayed) in list(since.items()):
            if broker in isr:
                yield Outage(tp, broker, began_ms, time_ms, stayed)
            if broker in out:
                since[broker] = (began_ms, stayed & isr)
            else:
                del since[broker]
        for broker in out - since.keys():
            since[broker] = (time_ms, isr)


def removable_of(events: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, list[int]]:
    """Return when clients deleted a key, or ended a transaction, by partition: what was acknowledged."""
    found: dict[TopicPartition, list[int]] = defaultdict(list)
    written: dict[tuple[Any, Any], set[TopicPartition]] = defaultdict(set)
    for event in events:
        named = (event.get("transactional_id"), event.get("txn"))
        if event["f"] == "produce":
            tp = (event["topic"], event["partition"])
            if event["type"] == INVOKE and event.get("txn"):
                written[named].add(tp)
            elif event["type"] == OK and event.get("tombstone") and not event.get("txn"):
                found[tp].append(event["time_ms"])
        elif event["f"] in {"commit", "abort"} and event["type"] == OK:
            for tp in written[named]:
                found[tp].append(event["time_ms"])
    return found


def of_last_topics(logged: Iterable[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return what gates logged, without what they held of topics that were deleted and created again since.

    A gate lets go of the partitions of a deleted topic without a word, and what it held of them is no evidence for the
    topic that has the name now. ``events``: what clients did.
    """
    again = recreations(events)
    since_ms: dict[Any, int] = {name: events[one.began]["time_ms"] for name, one in again.items() if one.began >= 0}
    return [one for one in logged if "time_ms" not in one or one["time_ms"] >= since_ms.get(one.get("topic"), 0)]


def judge_gates(
    outages: Iterable[Outage],
    removable: Mapping[TopicPartition, Sequence[int]],
    events: Iterable[Mapping[str, Any]],
    ended_ms: int | None = None,
    late: Collection[LateCleaner] = (),
) -> GateEvidence:
    """Hold what gates wrote down (``events``, see `harness.protect.gate.events`) against what was exposed.

    ``ended_ms``: when the round ended, by the clock of its clients. Brokers' clocks may have been ahead meanwhile.
    ``late``: when cleaners were kept from looking.
    """

    def put_right(time_ms: int) -> int:
        """Return a time that is long after the end of the round as the clients' clock had it (`nemesis.clock_skew`)."""
        is_ahead = ended_ms is not None and time_ms - ended_ms > _AHEAD_MS // 2
        return time_ms - _AHEAD_MS if is_ahead else time_ms

    def seen(one: Outage) -> Outage:
        began_ms, ended_ms = put_right(one.began_ms), put_right(one.ended_ms)
        idle = {span.broker for span in late if span.began_ms <= began_ms and ended_ms <= span.ended_ms}
        return replace(one, began_ms=began_ms, ended_ms=ended_ms, stayed=one.stayed - idle)

    every = [seen(one) for one in outages]
    exposed = [
        one
        for one in every
        if one.stayed
        and any(one.began_ms <= at <= one.ended_ms - REMOVED_WITHIN_MS for at in removable.get(one.partition, ()))
    ]
    holds = _holds([{**one, "time_ms": put_right(one["time_ms"])} if "time_ms" in one else one for one in events])
    lacks = [lack for one in exposed if (lack := _lack(one, holds)) is not None]
    return GateEvidence(len(every), exposed, lacks)


_Holds: TypeAlias = "Mapping[tuple[int, TopicPartition | None], Sequence[_Hold]]"
"""By broker and partition; None for all of them."""


def _holds(events: Iterable[Mapping[str, Any]]) -> _Holds:
    """Return how each broker's gate held each partition, in order. The end of a hold by that of its process is open."""
    found: dict[tuple[int, TopicPartition | None], list[_Hold]] = defaultdict(list)
    begun: dict[tuple[int, TopicPartition | None], int] = {}
    for event in events:
        if event["event"] == INSTALLED:
            for place in [one for one in begun if one[0] == event["broker"]]:
                found[place].append(_Hold(begun.pop(place), None, INSTALLED))
            continue
        is_of_all = event["event"] in {HELD_ALL, RELEASED_ALL}
        place = (event["broker"], None if is_of_all else (event["topic"], event["partition"]))
        if event["event"] in {HELD, HELD_ALL}:
            begun.setdefault(place, event["time_ms"])
        elif event["event"] in {RELEASED, RELEASED_ALL, GAVE_UP} and place in begun:
            found[place].append(_Hold(begun.pop(place), event["time_ms"], event["event"]))
    for place, at_ms in begun.items():
        found[place].append(_Hold(at_ms, None, HELD))
    return found


def _lack(outage: Outage, holds: _Holds) -> str | None:
    topic, partition = outage.partition
    for broker in sorted(outage.stayed):
        during = [
            one.how
            for one in holds.get((broker, outage.partition), ())
            if one.began_ms <= outage.ended_ms and (one.ended_ms is None or one.ended_ms >= outage.began_ms)
        ] or [
            one.how
            for one in holds.get((broker, None), ())
            if one.began_ms <= outage.ended_ms and (one.ended_ms is None or one.ended_ms >= outage.ended_ms)
        ]
        what = f"the gate of broker {broker}"
        where = f"{topic}-{partition} while broker {outage.broker} was out of the ISR"
        if not during:
            return f"{what} is not seen to have held {where}"
        if GAVE_UP in during:
            return f"{what} gave up holding {where}"
        if during[-1] == HELD:
            return f"{what} has held {where}, and not let go of it since"
    return None
