"""Evidence that the gates of brokers held what a round exposed: without it, a round with ``--gate`` is not clean.

An outage is a time in which a replica was out of the ISR of its partition, by the log of the controllers. It is exposed
where, early enough in it, a client deleted a key there or ended a transaction, which a cleaner without a gate removes.
Every broker that was in the ISR throughout has to have held the partition at some time, or all partitions until the
end, and to have released it since, or started again; not while late-cleaner kept its cleaner from looking.

Verified: by the gates' lines in the brokers' logs. Not verified: that cleaners kept anything, which the judges of the
replicas verify, and replicas that were taken off a partition and came back empty, as they have nothing to lose.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, TypeAlias

from harness.broker_files.metadata_log.history import ClusterMetadata, PartitionState
from harness.judge.finding import name_of
from harness.kafka_api import TopicPartition
from harness.protect.gate.events import GAVE_UP, HELD, HELD_ALL, INSTALLED, RELEASED, RELEASED_ALL
from harness.run_folder.history import INVOKE, OK, FaultTimes, fault_times
from harness.soak.evidence.client_log import OUTCOMES, recreations, transaction_of
from nemesis import late_cleaner
from nemesis.clock_skew import AHEAD_S

REMOVED_WITHIN_MS: Final = 5_000
"""A write exposes an outage if it is at least so long before its end: the longest lag, retention and
segment of a round (`harness.soak.draw.plan.SETTINGS`), and two passes of a cleaner."""

_AHEAD_MS: Final = AHEAD_S * 1_000


@dataclass(frozen=True)
class ReplicaOutage:
    """A replica out of the ISR, in milliseconds since the epoch. ``stayed``: brokers in the ISR throughout."""

    partition: TopicPartition
    broker: int
    began_ms: int
    ended_ms: int
    stayed: frozenset[int]


@dataclass(frozen=True)
class GateEvidence:
    """The outages of a round. ``problems``: sentences, one for each exposed outage that gates did not hold."""

    outages: int
    exposed: Sequence[ReplicaOutage]
    problems: Sequence[str]

    @property
    def problem(self) -> str | None:
        """Why a round without findings is not clean; None where it is."""
        if not self.exposed:
            return "the gates had nothing to hold: no partition was exposed"
        return self.problems[0] if self.problems else None

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of outages in ``verdict.json``."""
        return {
            "outages": self.outages,
            "exposed": len(self.exposed),
            "held": len(self.exposed) - len(self.problems),
            "partitions": len({outage.partition for outage in self.exposed}),
        }


def evidence_of_gates(
    logged: Iterable[Mapping[str, Any]] | None,
    events: Sequence[Mapping[str, Any]],
    metadata: ClusterMetadata | None,
    topics: Collection[str],
) -> GateEvidence | None:
    """Return the evidence of a round with these topics; ``logged``: events of gates, None without gates."""
    if logged is None:
        return None
    histories = {} if metadata is None else metadata.histories
    outages = [it for tp, history in histories.items() if tp[0] in topics for it in outages_in(tp, history.states)]
    ended_ms = max((event["time_ms"] for event in events), default=None)
    return judge_gates(outages, removable_of(events), of_last_topics(logged, events), ended_ms, fault_times(events))


def outages_in(tp: TopicPartition, states: Iterable[PartitionState]) -> Iterator[ReplicaOutage]:
    """Yield the outages of a partition by its states. An outage that does not end is left out."""
    since: dict[int, tuple[int, frozenset[int]]] = {}
    for state in states:
        time_ms = state.time_ms or 0  # unknown only of a state from a snapshot
        isr = frozenset(state.isr)
        for broker in sorted(isr & since.keys()):
            began_ms, stayed = since[broker]
            yield ReplicaOutage(tp, broker, began_ms, time_ms, stayed)
        out = set(state.replicas) - isr
        since = {b: (since[b][0], since[b][1] & isr) if b in since else (time_ms, isr) for b in out}


def removable_of(events: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, list[int]]:
    """Return when it was acknowledged that clients deleted a key, or ended a transaction, by partition."""
    times_ms: dict[TopicPartition, list[int]] = defaultdict(list)
    written: dict[tuple[Any, Any], set[TopicPartition]] = defaultdict(set)
    for event in events:
        if event["f"] == "produce":
            tp = (event["topic"], event["partition"])
            if event["type"] == INVOKE and event.get("txn"):
                written[transaction_of(event)].add(tp)
            elif event["type"] == OK and event.get("tombstone") and not event.get("txn"):
                times_ms[tp].append(event["time_ms"])
        elif event["f"] in OUTCOMES and event["type"] == OK:
            for tp in written[transaction_of(event)]:
                times_ms[tp].append(event["time_ms"])
    return times_ms


def of_last_topics(logged: Iterable[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events of gates, except of topics that were deleted and created again since.

    A gate releases the partitions of a deleted topic without an event, and its former events do not concern the topic
    that has the name now. ``events``: of clients.
    """
    again = recreations(events)
    since_ms: dict[Any, int] = {name: events[last.began]["time_ms"] for name, last in again.items() if last.began >= 0}
    return [line for line in logged if "time_ms" not in line or line["time_ms"] >= since_ms.get(line.get("topic"), 0)]


def judge_gates(
    outages: Collection[ReplicaOutage],
    removable: Mapping[TopicPartition, Sequence[int]],
    events: Iterable[Mapping[str, Any]],
    ended_ms: int | None = None,
    faults: Collection[FaultTimes] = (),
) -> GateEvidence:
    """Compare the events of gates (``events``, see `harness.protect.gate.events`) with the exposed outages.

    ``ended_ms``: when the round ended, by the clock of its clients. Brokers' clocks may have been ahead meanwhile.
    ``faults``: late-cleaner keeps a cleaner from looking.
    """

    def corrected(time_ms: int) -> int:
        """Return a time that is long after the end of the round as the clients' clock had it (`nemesis.clock_skew`)."""
        is_ahead = ended_ms is not None and time_ms - ended_ms > _AHEAD_MS // 2
        return time_ms - _AHEAD_MS if is_ahead else time_ms

    exposed = []
    for recorded in outages:
        began_ms, until_ms = corrected(recorded.began_ms), corrected(recorded.ended_ms)
        idle = {
            fault.broker
            for fault in faults
            if fault.fault == late_cleaner.FAULT.name and fault.active_ms is not None and fault.heal_ms is not None
            if fault.active_ms <= began_ms and until_ms <= fault.heal_ms
        }
        outage = replace(recorded, began_ms=began_ms, ended_ms=until_ms, stayed=recorded.stayed - idle)
        times_ms = removable.get(outage.partition, ())
        if outage.stayed and any(began_ms <= at_ms <= until_ms - REMOVED_WITHIN_MS for at_ms in times_ms):
            exposed.append(outage)
    holds = _holds({**line, "time_ms": corrected(line["time_ms"])} if "time_ms" in line else line for line in events)
    problems = [problem for outage in exposed if (problem := _problem(outage, holds)) is not None]
    return GateEvidence(len(outages), exposed, problems)


_Holds: TypeAlias = "dict[tuple[int, TopicPartition | None], list[tuple[int, float, str]]]"
"""When a broker's gate held a partition, None for all: from when until when, and the event that ended it."""


def _holds(events: Iterable[Mapping[str, Any]]) -> _Holds:
    """Return the holds of each gate in order. A hold that ends with its process, or never (`HELD`), has no end."""
    holds: _Holds = defaultdict(list)
    begun: dict[tuple[int, TopicPartition | None], int] = {}
    for event in events:
        kind, broker = event["event"], event["broker"]
        if kind == INSTALLED:
            for place in [place for place in begun if place[0] == broker]:
                holds[place].append((begun.pop(place), inf, INSTALLED))
            continue
        place = (broker, None if kind in {HELD_ALL, RELEASED_ALL} else (event["topic"], event["partition"]))
        if kind in {HELD, HELD_ALL}:
            begun.setdefault(place, event["time_ms"])
        elif kind in {RELEASED, RELEASED_ALL, GAVE_UP} and place in begun:
            holds[place].append((begun.pop(place), event["time_ms"], kind))
    for place, at_ms in begun.items():
        holds[place].append((at_ms, inf, HELD))
    return holds


def _problem(outage: ReplicaOutage, holds: _Holds) -> str | None:
    where = f"{name_of(outage.partition)} while broker {outage.broker} was out of the ISR"

    def ends(broker: int, tp: TopicPartition | None, until_ms: int) -> list[str]:
        """Return how the holds ended that began before the end of the outage, and lasted until this time."""
        of_place = holds.get((broker, tp), ())
        return [end for began_ms, ended_ms, end in of_place if began_ms <= outage.ended_ms and ended_ms >= until_ms]

    for broker in sorted(outage.stayed):
        during = ends(broker, outage.partition, outage.began_ms) or ends(broker, None, outage.ended_ms)
        gate = f"the gate of broker {broker}"
        if not during:
            return f"{gate} is not seen to have held {where}"
        if GAVE_UP in during:
            return f"{gate} gave up holding {where}"
        if during[-1] == HELD:
            return f"{gate} has held {where}, and not released it since"
    return None
