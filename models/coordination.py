"""Coordinated compaction: what replicas of a partition tell each other before a tombstone or a marker may go.

As Redpanda's post on Kafka's bug has it, with what the documentation of 25.3 and the admin API add. Offsets are
exclusive, begin at 0, and only grow:

* MCCO, a replica's own: up to where its log is cleanly compacted. MXFO, its own: up to where each transaction has
  ended here.
* MTRO and MXRO, one each for all replicas: the leader takes the least MCCO and MXFO of all of them, those that are away
  with the last values known, and distributes it. Tombstones below MTRO and markers below MXRO may be removed.
* A new leader begins with what was distributed, recalculates nothing before every replica has reported to it, and
  distributes anew. A replica that is added begins with an MCCO and MXFO of the current MTRO and MXRO.

Each rule has a name and can be left out, to see what it is good for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harness.brokers.segments.records import MAX_INT64
from models.cleaner import Bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

RULES: Final[Mapping[str, str]] = {
    "mtro-includes-offline": "a replica that is away counts with its last known offsets",
    "all-have-reported": "a leader recalculates nothing before every replica has reported to it",
    "starts-from-distributed": "a new leader begins with what was distributed, not with what it has itself",
    "never-backward": "a bound that is lower than one known before is ignored",
    "late-rpc-ignored": "what an earlier leader sent is ignored once a later one is known",
    "added-is-counted": "a replica that is being added counts from the beginning, with the current bounds",
    "tombstones-wait": "tombstones are kept until MTRO has passed them",
    "markers-wait": "markers are kept until MXRO has passed them",
    "clean-not-copied": "MCCO is how far a replica has compacted, not how far it has copied",
}
"""What may be left out, and what it says."""


class Pair(NamedTuple):
    """An offset for tombstones and one for markers: (MCCO, MXFO) of a replica, or (MTRO, MXRO) of all."""

    tombstones: int = 0
    markers: int = 0

    def most(self, other: Pair) -> Pair:
        """Return the later of each."""
        return Pair(max(self.tombstones, other.tombstones), max(self.markers, other.markers))


def least(pairs: Iterable[Pair]) -> Pair:
    """Return the earliest of each; of none, the beginning."""
    all_of_them = list(pairs) or [Pair()]
    return Pair(min(pair.tombstones for pair in all_of_them), min(pair.markers for pair in all_of_them))


@dataclass(frozen=True, slots=True)
class Report:
    """What a broker's replica has sent to the leader of a term: its MCCO and MXFO.

    No tuple: it would equal a `Distribution` of the same.
    """

    broker: int
    term: int
    pair: Pair


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the leader of a term has sent to a broker's replica: MTRO and MXRO."""

    broker: int
    term: int
    pair: Pair


Message: TypeAlias = Report | Distribution
NOTHING: Final = Pair()


class Known(NamedTuple):
    """What one replica knows: the bounds, and the latest term that it has heard of."""

    bounds: Pair = NOTHING
    term: int = 0


@dataclass(frozen=True)
class Coordination:
    """The protocol's state. ``last``: by replica what the leader has last heard; None before that.

    ``sent``: messages under way. They arrive in any order, once or never. ``without``: names of `RULES`.
    """

    leader: int
    known: Mapping[int, Known]
    last: Mapping[int, Pair | None]
    term: int = 0
    sent: frozenset[Message] = frozenset()
    without: frozenset[str] = frozenset()

    def has(self, rule: str) -> bool:
        """Whether a rule is kept to."""
        return rule not in self.without

    def bounds(self, broker: int) -> Bounds:
        """Return below which offsets a replica may remove what is old enough."""
        known = self.known[broker].bounds
        return Bounds(
            known.tombstones if self.has("tombstones-wait") else MAX_INT64,
            known.markers if self.has("markers-wait") else MAX_INT64,
        )


def begin(brokers: Iterable[int], leader: int, without: frozenset[str] = frozenset()) -> Coordination:
    """Return the state of replicas that have just been created."""
    everyone = list(brokers)
    return Coordination(leader, dict.fromkeys(everyone, Known()), dict.fromkeys(everyone), without=without)


def has_news(state: Coordination, broker: int, own: Pair) -> bool:
    """Whether a report would tell the leader what it does not know, and what is not under way."""
    message = _report_of(state, broker, own)
    return state.last.get(broker) != message.pair and message not in state.sent


def report(state: Coordination, broker: int, own: Pair) -> Coordination:
    """Let a replica tell the leader how far it is: what it was told raises its own."""
    return replace(state, sent=state.sent | {_report_of(state, broker, own)})


def hear(state: Coordination, broker: int, own: Pair, away: Collection[int]) -> Coordination:
    """Let a replica tell the leader how far it is, at once."""
    return _heard(state, _report_of(state, broker, own), away)


def _report_of(state: Coordination, broker: int, own: Pair) -> Report:
    return Report(broker, state.term, own.most(state.known[broker].bounds))


def without_stale(state: Coordination) -> Coordination:
    """Return the state without messages of earlier terms, and with the last distribution for each replica alone.

    Where late messages are ignored and nothing moves backward, the others change nothing that the last one would not.
    """
    bounds = state.known[state.leader].bounds
    sent = {one for one in state.sent if isinstance(one, Distribution) and (one.term, one.pair) == (state.term, bounds)}
    return replace(state, sent=frozenset(sent))


def lose(state: Coordination, message: Message) -> Coordination:
    """Have a message never arrive."""
    return replace(state, sent=state.sent - {message})


def remind(state: Coordination, broker: int) -> Coordination:
    """Let the leader tell a replica again what that does not know yet."""
    bounds = state.known[state.leader].bounds
    if broker not in state.known or state.known[broker] == Known(bounds, state.term):
        return state
    return replace(state, sent=state.sent | {Distribution(broker, state.term, bounds)})


def deliver(state: Coordination, message: Message, away: Collection[int], *, again: bool = False) -> Coordination:
    """Let a message arrive. ``away``: the replicas that cannot be reached now. ``again``: it may arrive once more."""
    if not again:
        state = replace(state, sent=state.sent - {message})
    return _heard(state, message, away) if isinstance(message, Report) else _told(state, message)


def living(state: Coordination, *, may_elect: bool) -> Coordination:
    """Return the state without messages that change nothing, whenever they arrive, and terms that nobody looks at.

    ``may_elect``: another leader may come yet. What a message would change is a term and a pair. Where late ones are
    ignored, terms only grow, and one of an earlier term is ignored for ever. Where nothing moves backward, pairs only
    grow, and one that tells no more than is known tells nothing, for ever; except that an election

    * makes a leader forget what it was told (``last``): a report that is not ignored then would count as the first one
    * makes it forget what was distributed, without ``starts-from-distributed``

    and that a leader without ``mtro-includes-offline`` or ``all-have-reported`` counts anew, with whom it can reach or
    has heard now, whatever it hears.
    """
    if not state.has("late-rpc-ignored"):
        known = {broker: one._replace(term=0) for broker, one in state.known.items()}
        state = replace(state, term=0, known=known, sent=frozenset(replace(one, term=0) for one in state.sent))
    return replace(state, sent=frozenset(one for one in state.sent if _lives(state, one, may_elect=may_elect)))


def _lives(state: Coordination, message: Message, *, may_elect: bool) -> bool:
    known = state.known.get(message.broker)
    if known is None:
        return False
    is_report = isinstance(message, Report)
    knows_late, term = state.has("late-rpc-ignored"), state.term if is_report else known.term
    if knows_late and message.term < term:
        return False
    if not state.has("never-backward") or (knows_late and message.term > term):
        return True
    if not is_report:
        forgets = may_elect and not state.has("starts-from-distributed")
        return forgets or known.bounds.most(message.pair) != known.bounds
    last = state.last.get(message.broker)
    counts_anew = not (state.has("mtro-includes-offline") and state.has("all-have-reported"))
    forgets = may_elect and not knows_late
    return last is None or forgets or counts_anew or last.most(message.pair) != last


def _heard(state: Coordination, message: Report, away: Collection[int]) -> Coordination:
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
    heard = [pair for pair in counted.values() if pair is not None]
    if len(heard) < len(counted):
        return state
    before = state.known[state.leader].bounds
    bounds = least(heard)
    if state.has("never-backward"):
        bounds = bounds.most(before)
    return state if bounds == before else _distributed(state, bounds)


def _distributed(state: Coordination, bounds: Pair) -> Coordination:
    others = {Distribution(broker, state.term, bounds) for broker in state.known if broker != state.leader}
    known = {**state.known, state.leader: Known(bounds, state.term)}
    return replace(state, known=known, sent=state.sent | others)


def _told(state: Coordination, message: Distribution) -> Coordination:
    known = state.known.get(message.broker)
    if known is None or (message.term < known.term and state.has("late-rpc-ignored")):
        return state
    bounds = known.bounds.most(message.pair) if state.has("never-backward") else message.pair
    return replace(state, known={**state.known, message.broker: Known(bounds, max(message.term, known.term))})


def elect(state: Coordination, broker: int, own: Pair) -> Coordination:
    """Let another replica lead: it begins with what it was told, asks everybody anew, and tells everybody."""
    bounds = state.known[broker].bounds if state.has("starts-from-distributed") else own
    return _distributed(replace(state, leader=broker, term=state.term + 1, last=dict.fromkeys(state.last)), bounds)


def add(state: Coordination, broker: int) -> Coordination:
    """Add a replica, which begins with the leader's bounds."""
    bounds = state.known[state.leader].bounds
    last = {**state.last, broker: bounds} if state.has("added-is-counted") else state.last
    return replace(state, known={**state.known, broker: Known(bounds, state.term)}, last=last)


def joined(state: Coordination, broker: int) -> Coordination:
    """Take note that an added replica has everything; it counts from now on, if it did not before."""
    return state if broker in state.last else replace(state, last={**state.last, broker: None})


def remove(state: Coordination, broker: int, away: Collection[int]) -> Coordination:
    """Remove a replica: the bounds may advance without it."""
    known = {other: one for other, one in state.known.items() if other != broker}
    last = {other: pair for other, pair in state.last.items() if other != broker}
    return _recalculated(replace(state, known=known, last=last), away)
