"""Messages of coordinated compaction: which are one, and which change nothing any more."""

from dataclasses import replace
from functools import partial

import pytest

from harness.models.log.cleaner import Bounds
from harness.models.world.coordination import Coordination, CoordinationMessage, ReplicaView, begin

Report, Distribution = partial(CoordinationMessage, True), partial(CoordinationMessage, False)
LOW, HIGH = Bounds(1, 1), Bounds(2, 2)


def knowing(bounds: Bounds, *sent: CoordinationMessage, without: tuple[str, ...] = ()) -> Coordination:
    """Return three replicas in term 1 that know these bounds and have reported as much."""
    state = begin((1, 2, 3), 1, frozenset(without))
    views = dict.fromkeys(state.views, ReplicaView(bounds, 1))
    return replace(state, term=1, views=views, last=dict.fromkeys(views, bounds), sent=frozenset(sent))


@pytest.mark.parametrize(("message", "without", "lives"), [
    (Distribution(2, 1, HIGH), (), True),
    (Distribution(2, 1, LOW), (), False),
    (Distribution(2, 0, HIGH), (), False),
    (Distribution(4, 1, HIGH), (), False),
    (Distribution(2, 0, HIGH), ("late-rpc-ignored",), True),
    (Distribution(2, 0, LOW), ("late-rpc-ignored",), False),
    (Distribution(2, 0, LOW), ("late-rpc-ignored", "starts-from-distributed"), True),
    (Distribution(2, 1, LOW), ("never-backward",), True),
    (Distribution(2, 0, LOW), ("never-backward",), False),
    (Distribution(2, 2, LOW), (), True),
    (Report(2, 1, HIGH), (), True),
    (Report(2, 1, LOW), (), False),
    (Report(2, 0, HIGH), (), False),
    (Report(2, 0, LOW), ("late-rpc-ignored",), True),
    (Report(2, 1, LOW), ("mtro-includes-offline",), True),
    (Report(2, 1, LOW), ("all-have-reported",), True),
])  # fmt: skip
def test_messages_that_change_nothing_are_forgotten(
    message: CoordinationMessage, without: tuple[str, ...], *, lives: bool
) -> None:
    messages = knowing(LOW, message, without=without).without_ineffective_messages(may_elect=True).sent
    term = 0 if "late-rpc-ignored" in without else message.term
    assert messages == ({message._replace(term=term)} if lives else set())


def test_after_the_last_election_what_is_known_stays_known() -> None:
    sent = (Report(2, 0, LOW), Distribution(3, 0, LOW))
    state = knowing(LOW, *sent, without=("late-rpc-ignored", "starts-from-distributed"))
    assert state.without_ineffective_messages(may_elect=False).sent == frozenset()


def test_a_message_may_arrive_again() -> None:
    message = Distribution(2, 1, HIGH)
    once = knowing(LOW, message).deliver(message, ())
    again = knowing(LOW, message).deliver(message, (), again=True)
    assert (once.views[2].bounds, once.sent) == (HIGH, frozenset())
    assert (again.views[2].bounds, again.sent) == (HIGH, frozenset({message}))


def test_a_new_leader_tells_everybody_what_it_was_asked() -> None:
    state = knowing(LOW).elect(2, HIGH)
    assert state.sent == {Distribution(1, 2, LOW), Distribution(3, 2, LOW)}
    assert set(state.last.values()) == {None}
