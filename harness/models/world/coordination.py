"""Coordinated compaction: the offsets that replicas exchange before a tombstone or a marker may be removed.

Source: Redpanda's post on Kafka's bug, the documentation of 25.3 and the admin API. Offsets are
exclusive, begin at 0, and only grow:

* MCCO, of each replica: the offset up to which its log is cleanly compacted. MXFO, of each replica: the offset up to
  which every transaction has ended in its log.
* MTRO and MXRO, one each for all replicas: the leader takes the least MCCO and MXFO of all replicas, with the last
  reported values of replicas that are down, and distributes them. Tombstones below MTRO and markers below MXRO may be
  removed.
* A new leader begins with the distributed bounds, recalculates nothing before every replica has reported to it, and
  distributes them again. An added replica begins with the current MTRO and MXRO as its MCCO and MXFO.

Each rule has a name and can be left out, which shows the anomalies that it prevents.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from harness.broker_files.segments.records import MAX_INT64
from harness.models.log.cleaner import Bounds

RULES: Final[Mapping[str, str]] = {
    "mtro-includes-offline": "a replica that is down counts with its last reported offsets",
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
NOTHING: Final = Bounds(0, 0)


def least(bounds: Iterable[Bounds]) -> Bounds:
    """Return the earliest offset of each kind; (0, 0) for no bounds."""
    tombstones, markers = zip(*(list(bounds) or [NOTHING]), strict=True)
    return Bounds(min(tombstones), min(markers))


class CoordinationMessage(NamedTuple):
    """A report of a replica to the leader of a term, or a distribution from that leader to a replica.

    ``bounds``: the replica's MCCO and MXFO, or MTRO and MXRO.
    """

    is_report: bool
    broker: int
    term: int
    bounds: Bounds


class ReplicaView(NamedTuple):
    """The bounds and the latest term that one replica has received."""

    bounds: Bounds = NOTHING
    term: int = 0


@dataclass(frozen=True)
class Coordination:
    """The protocol's state. ``last``: by replica, the last report that the leader has received, else None.

    ``sent``: messages in flight. They arrive in any order, once or never. ``without``: names of `RULES`.
    """

    leader: int
    views: Mapping[int, ReplicaView]
    last: Mapping[int, Bounds | None]
    term: int = 0
    sent: frozenset[CoordinationMessage] = frozenset()
    without: frozenset[str] = frozenset()

    def has(self, rule: str) -> bool:
        """Return whether a rule is in force."""
        return rule not in self.without

    def bounds(self, broker: int) -> Bounds:
        """Return the offsets below which a replica may remove tombstones and markers that are old enough."""
        tombstones, markers = self.views[broker].bounds
        return Bounds(
            tombstones if self.has("tombstones-wait") else MAX_INT64, markers if self.has("markers-wait") else MAX_INT64
        )

    def receiver(self, message: CoordinationMessage) -> int:
        """Return the broker that a message is for."""
        return self.leader if message.is_report else message.broker

    def report_of(self, broker: int, progress: Bounds) -> CoordinationMessage:
        """Return a replica's report: distributed bounds raise its own."""
        return CoordinationMessage(True, broker, self.term, progress.most(self.views[broker].bounds))

    def has_new_report(self, broker: int, progress: Bounds) -> bool:
        """Return whether a report would be new to the leader, and is not in flight yet."""
        message = self.report_of(broker, progress)
        return self.last.get(broker) != message.bounds and message not in self.sent


def begin(brokers: Iterable[int], leader: int, without: frozenset[str] = frozenset()) -> Coordination:
    """Return the state of replicas that have just been created."""
    everyone = list(brokers)
    return Coordination(leader, dict.fromkeys(everyone, ReplicaView()), dict.fromkeys(everyone), without=without)


def report(state: Coordination, broker: int, progress: Bounds) -> Coordination:
    """Let a replica send its offsets to the leader."""
    return replace(state, sent=state.sent | {state.report_of(broker, progress)})


def receive_report(state: Coordination, broker: int, progress: Bounds, away: Collection[int]) -> Coordination:
    """Let the leader receive a replica's offsets at once."""
    return _with_report(state, state.report_of(broker, progress), away)


def without_stale_messages(state: Coordination) -> Coordination:
    """Return the state without messages of earlier terms, and with only the last distribution for each replica.

    The last distribution has the effect of all others where late messages are ignored and nothing moves backward.
    """
    last = (False, state.term, state.views[state.leader].bounds)
    return replace(state, sent=frozenset(m for m in state.sent if (m.is_report, m.term, m.bounds) == last))


def lose(state: Coordination, message: CoordinationMessage) -> Coordination:
    """Lose a message."""
    return replace(state, sent=state.sent - {message})


def resend_bounds(state: Coordination, broker: int) -> Coordination:
    """Let the leader send a replica the bounds again that it has not received yet."""
    bounds = state.views[state.leader].bounds
    if broker not in state.views or state.views[broker] == ReplicaView(bounds, state.term):
        return state
    return replace(state, sent=state.sent | {CoordinationMessage(False, broker, state.term, bounds)})


def deliver(
    state: Coordination, message: CoordinationMessage, away: Collection[int], *, again: bool = False
) -> Coordination:
    """Let a message arrive. ``away``: replicas that are unreachable now. ``again``: it may arrive once more."""
    state = state if again else lose(state, message)
    return _with_report(state, message, away) if message.is_report else _with_distribution(state, message)


def without_ineffective_messages(state: Coordination, *, may_elect: bool) -> Coordination:
    """Return the state without messages that change nothing, whenever they arrive, and without unused terms.

    ``may_elect``: another election may follow. A message can change a term and bounds. Where late messages are ignored,
    terms only grow, and a message of an earlier term is ignored for ever. Where nothing moves backward, bounds only
    grow, and a message whose bounds are not higher than the current ones has no effect, for ever; except that an
    election

    * makes a leader drop its received reports (``last``): a report that is not ignored then would count as the first
      report
    * makes a leader drop the distributed bounds, without ``starts-from-distributed``

    and that a leader without ``mtro-includes-offline`` or ``all-have-reported`` recalculates on every report, from the
    replicas that it can reach or that have reported.
    """
    if not state.has("late-rpc-ignored"):
        views = {broker: view._replace(term=0) for broker, view in state.views.items()}
        state = replace(state, term=0, views=views, sent=frozenset(m._replace(term=0) for m in state.sent))
    return replace(state, sent=frozenset(m for m in state.sent if _has_effect(state, m, may_elect=may_elect)))


def _has_effect(state: Coordination, message: CoordinationMessage, *, may_elect: bool) -> bool:
    view = state.views.get(message.broker)
    if view is None:
        return False
    ignores_late, term = state.has("late-rpc-ignored"), state.term if message.is_report else view.term
    if ignores_late and message.term < term:
        return False
    if not state.has("never-backward") or (ignores_late and message.term > term):
        return True
    if not message.is_report:
        forgets = may_elect and not state.has("starts-from-distributed")
        return forgets or view.bounds.most(message.bounds) != view.bounds
    last = state.last.get(message.broker)
    recalculates = not (state.has("mtro-includes-offline") and state.has("all-have-reported"))
    forgets = may_elect and not ignores_late
    return last is None or forgets or recalculates or last.most(message.bounds) != last


def _with_report(state: Coordination, message: CoordinationMessage, away: Collection[int]) -> Coordination:
    if message.broker not in state.last or (message.term < state.term and state.has("late-rpc-ignored")):
        return state
    before = state.last[message.broker] or NOTHING
    progress = before.most(message.bounds) if state.has("never-backward") else message.bounds
    return _recalculated(replace(state, last={**state.last, message.broker: progress}), away)


def _recalculated(state: Coordination, away: Collection[int]) -> Coordination:
    counted = [
        bounds
        for broker, bounds in state.last.items()
        if (broker not in away or state.has("mtro-includes-offline"))
        and (bounds is not None or state.has("all-have-reported"))
    ]
    reported = [bounds for bounds in counted if bounds is not None]
    if len(reported) < len(counted):
        return state
    before = state.views[state.leader].bounds
    bounds = least(reported)
    if state.has("never-backward"):
        bounds = bounds.most(before)
    return state if bounds == before else _distributed(state, bounds)


def _distributed(state: Coordination, bounds: Bounds) -> Coordination:
    others = {
        CoordinationMessage(False, broker, state.term, bounds) for broker in state.views if broker != state.leader
    }
    views = {**state.views, state.leader: ReplicaView(bounds, state.term)}
    return replace(state, views=views, sent=state.sent | others)


def _with_distribution(state: Coordination, message: CoordinationMessage) -> Coordination:
    view = state.views.get(message.broker)
    if view is None or (message.term < view.term and state.has("late-rpc-ignored")):
        return state
    bounds = view.bounds.most(message.bounds) if state.has("never-backward") else message.bounds
    return replace(state, views={**state.views, message.broker: ReplicaView(bounds, max(message.term, view.term))})


def elect(state: Coordination, broker: int, progress: Bounds) -> Coordination:
    """Let another replica lead: it begins with the distributed bounds, distributes them, and waits for new reports."""
    bounds = state.views[broker].bounds if state.has("starts-from-distributed") else progress
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
    views = {other: view for other, view in state.views.items() if other != broker}
    last = {other: bounds for other, bounds in state.last.items() if other != broker}
    return _recalculated(replace(state, views=views, last=last), away)
