"""Coordinated compaction: the offsets that replicas exchange before a tombstone or a marker may be removed.

Source: Redpanda's post on Kafka's bug, the documentation of 25.3 and the admin API. MCCO is the offset up to which a
replica's log is cleanly compacted, MXFO the offset up to which every transaction has ended in it. The leader
distributes the least of both as MTRO and MXRO: tombstones below MTRO and markers below MXRO may be removed. All are
exclusive, begin at 0, and only grow. Each of `RULES` can be left out, which shows the anomalies that it prevents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

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
    """A replica's report of MCCO and MXFO to the leader of a term, or that leader's distribution of MTRO and MXRO."""

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

    ``sent``: messages in flight. They arrive in any order, once or never. ``without``: names of `RULES`. In methods,
    ``away`` are replicas that are unreachable now.
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

    def has_new_report(self, broker: int, progress: Bounds) -> bool:
        """Return whether a report would be new to the leader, and is not in flight yet."""
        message = self._report_of(broker, progress)
        return self.last.get(broker) != message.bounds and message not in self.sent

    def _report_of(self, broker: int, progress: Bounds) -> CoordinationMessage:
        # Distributed bounds raise a replica's own offsets.
        return CoordinationMessage(True, broker, self.term, progress.most(self.views[broker].bounds))

    def report(self, broker: int, progress: Bounds) -> Coordination:
        """Let a replica send its offsets to the leader."""
        return replace(self, sent=self.sent | {self._report_of(broker, progress)})

    def receive_report(self, broker: int, progress: Bounds, away: Collection[int]) -> Coordination:
        """Let the leader receive a replica's offsets at once."""
        return self._with_report(self._report_of(broker, progress), away)

    def without_stale_messages(self) -> Coordination:
        """Return the state without messages of earlier terms, and with only the last distribution for each replica.

        The last distribution has the effect of all others where late messages are ignored and nothing moves backward.
        """
        last = (False, self.term, self.views[self.leader].bounds)
        return replace(self, sent=frozenset(m for m in self.sent if (m.is_report, m.term, m.bounds) == last))

    def lose(self, message: CoordinationMessage) -> Coordination:
        """Lose a message."""
        return replace(self, sent=self.sent - {message})

    def resend_bounds(self, broker: int) -> Coordination:
        """Let the leader send a replica the bounds again that it has not received yet."""
        bounds = self.views[self.leader].bounds
        if broker not in self.views or self.views[broker] == ReplicaView(bounds, self.term):
            return self
        return replace(self, sent=self.sent | {CoordinationMessage(False, broker, self.term, bounds)})

    def deliver(self, message: CoordinationMessage, away: Collection[int], *, again: bool = False) -> Coordination:
        """Let a message arrive. ``again``: it may arrive once more."""
        if not again:
            return self.lose(message).deliver(message, away, again=True)
        if message.is_report:
            return self._with_report(message, away)
        view = self.views.get(message.broker)
        if view is None or (message.term < view.term and self.has("late-rpc-ignored")):
            return self
        bounds = view.bounds.most(message.bounds) if self.has("never-backward") else message.bounds
        return replace(self, views={**self.views, message.broker: ReplicaView(bounds, max(message.term, view.term))})

    def without_ineffective_messages(self, *, may_elect: bool) -> Coordination:
        """Return the state without messages that change nothing, whenever they arrive, and without unused terms.

        ``may_elect``: another election may follow. Where late messages are ignored, terms only grow, and a message of
        an earlier term is ignored for ever. Where nothing moves backward, bounds only grow, and a message whose bounds
        are not higher than the current ones has no effect, for ever; except that an election makes a leader drop its
        received reports (``last``), and the distributed bounds without ``starts-from-distributed``; and that a leader
        without ``mtro-includes-offline`` or ``all-have-reported`` recalculates on every report.
        """
        state = self
        if not self.has("late-rpc-ignored"):
            views = {broker: view._replace(term=0) for broker, view in self.views.items()}
            state = replace(self, term=0, views=views, sent=frozenset(m._replace(term=0) for m in self.sent))
        return replace(state, sent=frozenset(m for m in state.sent if _has_effect(state, m, may_elect=may_elect)))

    def _with_report(self, message: CoordinationMessage, away: Collection[int]) -> Coordination:
        if message.broker not in self.last or (message.term < self.term and self.has("late-rpc-ignored")):
            return self
        before = self.last[message.broker] or NOTHING
        progress = before.most(message.bounds) if self.has("never-backward") else message.bounds
        return self._recalculated(away, last={**self.last, message.broker: progress})

    def _recalculated(self, away: Collection[int], **changes: Any) -> Coordination:
        state = replace(self, **changes)
        counted = [
            bounds
            for broker, bounds in state.last.items()
            if (broker not in away or self.has("mtro-includes-offline"))
            and (bounds is not None or self.has("all-have-reported"))
        ]
        reported = [bounds for bounds in counted if bounds is not None]
        if len(reported) < len(counted):
            return state
        before, bounds = state.views[self.leader].bounds, least(reported)
        if self.has("never-backward"):
            bounds = bounds.most(before)
        return state if bounds == before else _distributed(state, bounds)

    def elect(self, broker: int, progress: Bounds) -> Coordination:
        """Let another replica lead: it begins with the distributed bounds, distributes them, and waits for reports."""
        bounds = self.views[broker].bounds if self.has("starts-from-distributed") else progress
        led = replace(self, leader=broker, term=self.term + 1, last=dict.fromkeys(self.last))
        return _distributed(led, bounds)

    def add(self, broker: int) -> Coordination:
        """Add a replica, which begins with the leader's bounds."""
        bounds = self.views[self.leader].bounds
        last = {**self.last, broker: bounds} if self.has("added-is-counted") else self.last
        return replace(self, views={**self.views, broker: ReplicaView(bounds, self.term)}, last=last)

    def joined(self, broker: int) -> Coordination:
        """Record that an added replica has caught up; from now on it counts, if it did not before."""
        return self if broker in self.last else replace(self, last={**self.last, broker: None})

    def remove(self, broker: int, away: Collection[int]) -> Coordination:
        """Remove a replica: the bounds may advance without it."""
        views = {other: view for other, view in self.views.items() if other != broker}
        last = {other: bounds for other, bounds in self.last.items() if other != broker}
        return self._recalculated(away, views=views, last=last)


def begin(brokers: Collection[int], leader: int, without: frozenset[str] = frozenset()) -> Coordination:
    """Return the state of replicas that have just been created."""
    return Coordination(leader, dict.fromkeys(brokers, ReplicaView()), dict.fromkeys(brokers), without=without)


def _distributed(state: Coordination, bounds: Bounds) -> Coordination:
    others = state.views.keys() - {state.leader}
    messages = {CoordinationMessage(False, broker, state.term, bounds) for broker in others}
    views = {**state.views, state.leader: ReplicaView(bounds, state.term)}
    return replace(state, views=views, sent=state.sent | messages)


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
