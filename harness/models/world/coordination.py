"""Coordinated compaction: the offsets that replicas exchange before a tombstone or a marker may be removed.

Source: Redpanda's post on Kafka's bug, the documentation of 25.3 and the admin API. Offsets are
exclusive, begin at 0, and only grow:

* MCCO, of each replica: the offset up to which its log is cleanly compacted. MXFO, of each replica: the offset up to
  which every transaction has ended in its log.
* MTRO and MXRO, one each for all replicas: the leader takes the least MCCO and MXFO of all replicas, with the last
  known values of replicas that are away, and distributes them. Tombstones below MTRO and markers below MXRO may be
  removed.
* A new leader begins with the distributed bounds, recalculates nothing before every replica has reported to it, and
  distributes anew. An added replica begins with the current MTRO and MXRO as its MCCO and MXFO.

Each rule has a name and can be left out, to see what it prevents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harness.broker_files.segments.records import MAX_INT64
from harness.models.log.cleaner import Bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

RULES: Final[Mapping[str, str]] = {
    "mtro-includes-offline": "a replica that is away counts with its last known offsets",
    "all-have-reported": "a leader recalculates nothing before every replica has reported to it",
    "starts-from-distributed": "a new leader begins with the distributed bounds, not with its own",
    "never-backward": "a bound that is lower than an earlier one is ignored",
    "late-rpc-ignored": "a message of an earlier leader is ignored once a later leader is known",
    "added-is-counted": "a replica that is being added counts from the beginning, with the current bounds",
    "tombstones-wait": "tombstones are kept until MTRO has passed them",
    "markers-wait": "markers are kept until MXRO has passed them",
    "clean-not-copied": "MCCO is how far a replica has compacted, not how far it has copied",
}
"""The rules that can be left out, and their meaning."""


class Pair(NamedTuple):
    """An offset for tombstones and one for markers: (MCCO, MXFO) of a replica, or (MTRO, MXRO) of all."""

    tombstones: int = 0
    markers: int = 0

    def most(self, other: Pair) -> Pair:
        """Return the later offset of each kind."""
        return Pair(max(self.tombstones, other.tombstones), max(self.markers, other.markers))


def least(pairs: Iterable[Pair]) -> Pair:
    """Return the earliest offset of each kind; (0, 0) for no pairs."""
    every = list(pairs) or [Pair()]
    return Pair(min(pair.tombstones for pair in every), min(pair.markers for pair in every))


@dataclass(frozen=True, slots=True)
class Report:
    """A message of a replica to the leader of a term: its MCCO and MXFO.

    Not a tuple, as a tuple would equal a `Distribution` with the same fields.
    """

    broker: int
    term: int
    pair: Pair


@dataclass(frozen=True, slots=True)
class Distribution:
    """A message of the leader of a term to a replica: MTRO and MXRO."""

    broker: int
    term: int
    pair: Pair


Message: TypeAlias = Report | Distribution
NOTHING: Final = Pair()


class ReplicaView(NamedTuple):
    """The bounds and the latest term that one replica has received."""

    bounds: Pair = NOTHING
    term: int = 0


@dataclass(frozen=True)
class Coordination:
    """The protocol's state. ``last``: by replica, the last report that the leader has received, else None.

    ``sent``: messages in flight. They arrive in any order, once or never. ``without``: names of `RULES`.
    """

    leader: int
    views: Mapping[int, ReplicaView]
    last: Mapping[int, Pair | None]
    term: int = 0
    sent: frozenset[Message] = frozenset()
    without: frozenset[str] = frozenset()

    def has(self, rule: str) -> bool:
        """Whether a rule is in force."""
        return rule not in self.without

    def bounds(self, broker: int) -> Bounds:
        """Return the offsets below which a replica may remove tombstones and markers that are old enough."""
        views = self.views[broker].bounds
        return Bounds(
            views.tombstones if self.has("tombstones-wait") else MAX_INT64,
            views.markers if self.has("markers-wait") else MAX_INT64,
        )


def in_order(sent: Iterable[Message]) -> list[Message]:
    """Return messages in an order that follows from their content."""
    return sorted(sent, key=lambda one: (isinstance(one, Report), one.broker, one.term, one.pair))


def begin(brokers: Iterable[int], leader: int, without: frozenset[str] = frozenset()) -> Coordination:
    """Return the state of replicas that have just been created."""
    everyone = list(brokers)
    return Coordination(leader, dict.fromkeys(everyone, ReplicaView()), dict.fromkeys(everyone), without=without)


def has_new_report(state: Coordination, broker: int, own: Pair) -> bool:
    """Whether a report would be new to the leader, and is not in flight yet."""
    message = _report_of(state, broker, own)
    return state.last.get(broker) != message.pair and message not in state.sent


def report(state: Coordination, broker: int, own: Pair) -> Coordination:
    """Let a replica send its offsets to the leader: distributed bounds raise its own."""
    return replace(state, sent=state.sent | {_report_of(state, broker, own)})


def receive_report(state: Coordination, broker: int, own: Pair, away: Collection[int]) -> Coordination:
    """Let the leader receive a replica's offsets at once."""
    return _with_report(state, _report_of(state, broker, own), away)


def _report_of(state: Coordination, broker: int, own: Pair) -> Report:
    return Report(broker, state.term, own.most(state.views[broker].bounds))


def without_stale_messages(state: Coordination) -> Coordination:
    """Return the state without messages of earlier terms, and with only the last distribution for each replica.

    Where late messages are ignored and nothing moves backward, the last distribution has the effect of all others.
    """
    bounds = state.views[state.leader].bounds
    sent = {one for one in state.sent if isinstance(one, Distribution) and (one.term, one.pair) == (state.term, bounds)}
    return replace(state, sent=frozenset(sent))


def lose(state: Coordination, message: Message) -> Coordination:
    """Lose a message."""
    return replace(state, sent=state.sent - {message})


def resend_bounds(state: Coordination, broker: int) -> Coordination:
    """Let the leader send a replica the bounds again that it has not received yet."""
    bounds = state.views[state.leader].bounds
    if broker not in state.views or state.views[broker] == ReplicaView(bounds, state.term):
        return state
    return replace(state, sent=state.sent | {Distribution(broker, state.term, bounds)})


def deliver(state: Coordination, message: Message, away: Collection[int], *, again: bool = False) -> Coordination:
    """Let a message arrive. ``away``: replicas that are unreachable now. ``again``: it may arrive once more."""
    if not again:
        state = replace(state, sent=state.sent - {message})
    return _with_report(state, message, away) if isinstance(message, Report) else _with_distribution(state, message)


def without_ineffective_messages(state: Coordination, *, may_elect: bool) -> Coordination:
    """Return the state without messages that change nothing, whenever they arrive, and without unused terms.

    ``may_elect``: another election may follow. A message can change a term and a pair. Where late messages are ignored,
    terms only grow, and a message of an earlier term is ignored for ever. Where nothing moves backward, pairs only
    grow, and a message whose pair is not higher than the known one has no effect, for ever; except that an election

    * makes a leader drop its received reports (``last``): a report that is not ignored then would count as the first
      one
    * makes a leader drop the distributed bounds, without ``starts-from-distributed``

    and that a leader without ``mtro-includes-offline`` or ``all-have-reported`` recalculates on every report, from the
    replicas that it can reach or that have reported.
    """
    if not state.has("late-rpc-ignored"):
        views = {broker: one._replace(term=0) for broker, one in state.views.items()}
        state = replace(state, term=0, views=views, sent=frozenset(replace(one, term=0) for one in state.sent))
    return replace(state, sent=frozenset(one for one in state.sent if _has_effect(state, one, may_elect=may_elect)))


def _has_effect(state: Coordination, message: Message, *, may_elect: bool) -> bool:
    views = state.views.get(message.broker)
    if views is None:
        return False
    is_report = isinstance(message, Report)
    ignores_late, term = state.has("late-rpc-ignored"), state.term if is_report else views.term
    if ignores_late and message.term < term:
        return False
    if not state.has("never-backward") or (ignores_late and message.term > term):
        return True
    if not is_report:
        forgets = may_elect and not state.has("starts-from-distributed")
        return forgets or views.bounds.most(message.pair) != views.bounds
    last = state.last.get(message.broker)
    counts_anew = not (state.has("mtro-includes-offline") and state.has("all-have-reported"))
    forgets = may_elect and not ignores_late
    return last is None or forgets or counts_anew or last.most(message.pair) != last


def _with_report(state: Coordination, message: Report, away: Collection[int]) -> Coordination:
    if message.broker not in state.last or (message.term < state.term and state.has("late-rpc-ignored")):
        return state
    before = state.last[message.broker] or NOTHING
    own = before.most(message.pair) if state.has("never-backward") else message.pair
    return _recalculated(replace(state, last={**state.last, message.broker: own}), away)


def _recalculated(state: Coordination, away: Collection[int]) -> Coordination:
    counted = dict(state.last)
    if not state.has("mtro-includes-offline"):
        counted = {broker: pair for broker, pair in counted.items() if broker not in away}
    if not state.has("all-have-reported"):
        counted = {broker: pair for broker, pair in counted.items() if pair is not None}
    reported = [pair for pair in counted.values() if pair is not None]
    if len(reported) < len(counted):
        return state
    before = state.views[state.leader].bounds
    bounds = least(reported)
    if state.has("never-backward"):
        bounds = bounds.most(before)
    return state if bounds == before else _distributed(state, bounds)


def _distributed(state: Coordination, bounds: Pair) -> Coordination:
    others = {Distribution(broker, state.term, bounds) for broker in state.views if broker != state.leader}
    views = {**state.views, state.leader: ReplicaView(bounds, state.term)}
    return replace(state, views=views, sent=state.sent | others)


def _with_distribution(state: Coordination, message: Distribution) -> Coordination:
    views = state.views.get(message.broker)
    if views is None or (message.term < views.term and state.has("late-rpc-ignored")):
        return state
    bounds = views.bounds.most(message.pair) if state.has("never-backward") else message.pair
    return replace(state, views={**state.views, message.broker: ReplicaView(bounds, max(message.term, views.term))})


def elect(state: Coordination, broker: int, own: Pair) -> Coordination:
    """Let another replica lead: it begins with the distributed bounds, distributes them, and waits for new reports."""
    bounds = state.views[broker].bounds if state.has("starts-from-distributed") else own
    return _distributed(replace(state, leader=broker, term=state.term + 1, last=dict.fromkeys(state.last)), bounds)


def add(state: Coordination, broker: int) -> Coordination:
    """Add a replica, which begins with the leader's bounds."""
    bounds = state.views[state.leader].bounds
    last = {**state.last, broker: bounds} if state.has("added-is-counted") else state.last
    return replace(state, views={**state.views, broker: ReplicaView(bounds, state.term)}, last=last)


def joined(state: Coordination, broker: int) -> Coordination:
    """Record that an added replica has caught up; from now on it counts, if it did not before."""
    return state if broker in state.last else replace(state, last={**state.last, broker: None})


def remove(state: Coordination, broker: int, away: Collection[int]) -> Coordination:
    """Remove a replica: the bounds may advance without it."""
    views = {other: one for other, one in state.views.items() if other != broker}
    last = {other: pair for other, pair in state.last.items() if other != broker}
    return _recalculated(replace(state, views=views, last=last), away)
