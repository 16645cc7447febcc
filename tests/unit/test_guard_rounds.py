"""The guard's rounds on a simulated cluster: settings are as found, whatever fails, and whenever it is killed."""

import random
from collections.abc import Mapping
from contextlib import suppress
from threading import Event

import pytest
from fakes.guarded import BoundedClock, FakeCluster, KilledError, Started, failing, start

from harness.errors import HarnessError
from harness.protect.guard.cluster import DIFFERENT, DIRTY_RATIO, MAX_LAG_MS, POLICY, RETENTION_MS
from harness.protect.guard.journal import HOLD, UNHOLD, Entry
from harness.protect.guard.run import wait_for_round
from harness.protect.guard.service import ALARMED_S

MAX_LAG = str(2**63 - 1)
NOTHING: Mapping[str, str] = {}


def one_topic(own: Mapping[str, str] = NOTHING) -> FakeCluster:
    return FakeCluster({"t": dict(own)}, {"t": {2}})


def paused() -> tuple[FakeCluster, Started]:
    """Return a cluster and a guard after the first round of an outage."""
    cluster = one_topic()
    started = start(cluster)
    assert started.guard.attempt()
    return cluster, started


def end_outage(cluster: FakeCluster, started: Started, own: Mapping[str, str] = NOTHING) -> None:
    """End an outage; after the next round the topic has these settings again."""
    cluster.away.clear()
    started.guard.attempt()
    assert cluster.explicit == {"t": own}


def test_a_pause_keeps_what_was_found_and_puts_it_back() -> None:
    cluster = FakeCluster({"t": {DIRTY_RATIO: "0.2"}, "u": {}}, {"t": {2}})
    started = start(cluster)
    assert started.guard.attempt()
    assert cluster.explicit == {"t": {DIRTY_RATIO: "1.0", MAX_LAG_MS: MAX_LAG}, "u": {}}
    assert started.guard.status.state.pauses["t"].previous == {DIRTY_RATIO: "0.2", MAX_LAG_MS: None}
    assert cluster.log_start == 0
    cluster.away.clear()
    for _ in range(2):
        assert started.guard.end() == 0
        assert cluster.explicit == {"t": {DIRTY_RATIO: "0.2"}, "u": {}}
    assert started.kinds() == ["leads", "exposed", "paused", "ready", "released"]
    assert cluster.log_start == len(cluster.log) == 4, "entries of an outage are deleted when it is over"


def test_requests_of_a_round_with_a_thousand_topics() -> None:
    """Settings are stored before they are changed, and read again just before."""
    cluster = FakeCluster({f"t{n}": {} for n in range(1000)})
    started = start(cluster)
    started.guard.attempt()
    for away, asked in (set(), []), ({3}, ["append", "settings", "alter", "append", "read"]):
        cluster.away = dict.fromkeys(cluster.explicit, away)
        cluster.asked.clear()
        started.guard.attempt()
        assert cluster.asked == ["view", "read", *asked]
    assert all(map(cluster.is_paused, cluster.explicit))


@pytest.mark.parametrize("own", [{DIRTY_RATIO: "0.6"}, {DIRTY_RATIO: "1.0", MAX_LAG_MS: MAX_LAG}])
def test_a_value_that_was_changed_since_settings_were_read_is_what_is_put_back(own: dict[str, str]) -> None:
    cluster = FakeCluster({"t": {DIRTY_RATIO: "0.2"}})
    started = start(cluster)
    started.guard.attempt()
    cluster.explicit["t"], cluster.away = dict(own), {"t": {2}}
    assert not started.guard.attempt()
    assert cluster.explicit["t"] == own
    assert started.guard.attempt()
    assert cluster.is_paused("t")
    end_outage(cluster, started, own)


def test_rounds_follow_fast_while_a_broker_has_just_stopped_answering() -> None:
    cluster = FakeCluster({"t": {}})
    guard = start(cluster, interval_s=2.0).guard
    for cluster.is_alarmed, pause_s in (False, 2), (True, ALARMED_S):
        assert guard.pause_s == pause_s


def test_a_guard_without_brokers_waits_between_its_rounds() -> None:
    cluster, clock = one_topic(), BoundedClock(now=1.0)
    guard = start(cluster, clock, interval_s=2.0).guard
    assert guard.attempt()
    cluster.members.clear()
    cluster.before = failing("view", 1_000)
    for _ in range(3):
        assert not guard.attempt()
        began = clock.now
        wait_for_round(guard, Event(), clock)
        assert clock.now - began >= 2
    cluster.before, cluster.members = lambda _: None, [guard.leadership]
    assert guard.attempt()
    assert guard.status.leads


@pytest.mark.parametrize(("restarts", "own"), [(False, {DIRTY_RATIO: "0.7"}), (True, {})])
def test_a_value_that_was_changed_during_the_pause_is_left_alone(*, restarts: bool, own: dict[str, str]) -> None:
    cluster, started = paused()
    cluster.explicit["t"] = {MAX_LAG_MS: MAX_LAG, **own}
    if restarts:
        cluster.members.clear()
        started = start(cluster)
    started.guard.clock.now += 61  # type: ignore[attr-defined]
    started.guard.attempt()
    assert not cluster.is_paused("t")
    assert started.guard.status.left_alone == {"t": (DIRTY_RATIO,)}
    end_outage(cluster, started, own)
    assert "left-alone" in started.kinds()


@pytest.mark.parametrize("request_name", ["view", "read", "settings", "append", "alter"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_request_that_fails_is_repeated_in_the_next_round(request_name: str, side: str) -> None:
    cluster = one_topic()
    started = start(cluster)
    setattr(cluster, side, failing(request_name))
    assert not started.guard.attempt()
    assert started.guard.status.failure == f"{request_name} failed"
    assert started.guard.attempt()
    assert cluster.is_paused("t")
    assert not started.guard.status.failure
    cluster.away.clear()
    setattr(cluster, side, failing(request_name))
    started.guard.attempt()
    started.guard.attempt()
    assert cluster.explicit == {"t": {}}
    assert started.kinds().count("failed") == started.kinds().count("recovered") == 2


def test_a_refused_change_is_visible_and_tried_again() -> None:
    cluster = one_topic()
    cluster.refused["t"] = "TopicAuthorizationFailedError"
    started = start(cluster)
    assert [started.guard.attempt() for _ in range(3)] == [False] * 3
    assert started.guard.status.unpaused == {"t"}
    assert "TopicAuthorizationFailedError" in str(started.guard.status.failure)
    assert len(cluster.log) == 1, "the same intention is not kept again"
    cluster.refused.clear()
    assert started.guard.attempt()
    assert cluster.is_paused("t")


def test_a_topic_whose_settings_may_not_be_read_is_skipped_and_reported() -> None:
    cluster = FakeCluster({"t": {}, "other": {}}, {"t": {2}, "other": {2}})
    cluster.unreadable["other"] = "TopicAuthorizationFailedError"
    started = start(cluster)
    assert started.guard.attempt()
    assert cluster.is_paused("t")
    assert started.guard.status.skipped == {"other": "TopicAuthorizationFailedError"}
    assert [event.topic for event in started.events if event.event == "warning"] == ["other"]
    cluster.unreadable["other"] = DIFFERENT
    started.guard.clock.now += 61  # type: ignore[attr-defined]
    for is_paused in (False, True):
        started.guard.attempt()
        assert cluster.is_paused("other") == is_paused, "brokers that differ are asked again in the next round"
        cluster.unreadable.clear()


def test_a_paused_topic_that_may_no_longer_be_described_stays_paused_and_a_deleted_topic_is_forgotten() -> None:
    cluster, started = paused()
    cluster.hidden.add("t")
    assert not started.guard.attempt()
    assert cluster.is_paused("t")
    del cluster.explicit["t"]
    assert started.guard.attempt()
    assert started.guard.status.state.pauses == {}


def test_only_named_and_compacted_topics_are_paused_but_what_another_guard_paused_stays_paused() -> None:
    own: dict[str, dict[str, str]] = {"orders-1": {}, "orders-2": {POLICY: "delete"}, "other": {}, "__consumer": {}}
    cluster = FakeCluster(own, {topic: {2} for topic in own})
    start(cluster, patterns=("orders-*",)).guard.attempt()
    assert [topic for topic in own if cluster.is_paused(topic)] == ["orders-1"]
    cluster, _ = paused()
    cluster.members.clear()
    again = start(cluster, patterns=("orders-*",))
    again.guard.attempt()
    assert cluster.is_paused("t")
    end_outage(cluster, again)


def test_who_only_looks_changes_nothing() -> None:
    cluster = one_topic()
    started = start(cluster)
    started.guard.leadership = None
    for _ in range(2):
        assert started.guard.attempt()
    assert set(cluster.asked) == {"view", "read", "settings"}
    assert started.guard.end() == 0
    said = [event.what for event in started.events if event.event == "would"]
    assert said == ["would pause it: min.cleanable.dirty.ratio=1, max.compaction.lag.ms=9223372036854775807"]
    assert started.guard.status.away == {"t": 1}
    cluster.before = failing("read", 100)
    assert started.guard.attempt()
    assert "read failed" in started.guard.status.notes[0]


def test_a_topic_that_another_command_holds_is_paused_and_not_released() -> None:
    cluster, started = paused()
    hold, unhold = (Entry(kind, "t", 1, "repair", {"by": "repair 7c1f"}).to_json().encode() for kind in (HOLD, UNHOLD))
    cluster.log.append(hold)
    cluster.away.clear()
    started.guard.attempt()
    assert cluster.is_paused("t")
    assert started.guard.end() == 1
    cluster.log.append(unhold)
    started.guard.attempt()
    assert cluster.explicit == {"t": {}}


def test_an_end_while_brokers_are_away_is_bounded() -> None:
    cluster, clock = one_topic(), BoundedClock(now=1.0)
    started = start(cluster, clock)
    started.guard.attempt()
    cluster.before = failing("view", 10_000)
    assert started.guard.end() == 1
    assert clock.now < 30


def test_of_two_guards_one_acts_and_the_other_takes_over() -> None:
    cluster = one_topic()
    first, second = start(cluster), start(cluster)
    second.guard.attempt()
    assert cluster.explicit == {"t": {}}
    first.guard.attempt()
    assert cluster.is_paused("t")
    cluster.away.clear()
    assert second.guard.end() == 0
    first.leadership.close()
    second.guard.attempt()
    assert cluster.explicit == {"t": {}}
    assert second.kinds() == ["stands-by", "exposed", "leads", "released", "ready"]
    third = start(cluster)
    third.leadership.error = "Group authorization failed"
    third.guard.attempt()
    assert third.guard.status.notes == ("the last error of group compaction-guard: Group authorization failed",)


def test_a_guard_that_loses_the_lead_before_its_change_changes_nothing() -> None:
    cluster = one_topic()
    first, second = start(cluster), start(cluster)

    def lose(name: str) -> None:
        if name == "append":
            cluster.members.reverse()
            cluster.before = lambda _: None

    cluster.before = lose
    assert not first.guard.attempt()
    assert cluster.explicit == {"t": {}}
    second.guard.attempt()
    assert cluster.is_paused("t")


def test_short_retention_and_long_pauses_are_warned_of_once() -> None:
    clock = BoundedClock(now=1.0)
    cluster = FakeCluster({"t": {RETENTION_MS: "5000"}}, {"t": {2}})
    started = start(cluster, clock, pause_warning_s=60.0)
    started.guard.growth_bytes_s = lambda: {"t": 1234.0}
    for _ in range(4):
        started.guard.attempt()
        clock.now += 50
    late = "its retention is shorter than 3 intervals of 2 s and 4 s: the guard may be late"
    long = "paused for longer than 60 s; its log grows by 1,234 bytes/s, all replicas together"
    assert [event.what for event in started.events if event.event == "warning"] == [late, long]
    assert started.guard.status.retention_left_s == {"t": pytest.approx(5 - 150)}


TOPICS = ("t0", "t1", "t2")


class Outages:
    """Random outages, failures, kills and people, all by one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  (no secret)
        self.cluster, self.expected = FakeCluster({t: {} for t in TOPICS}), {t: dict[str, str]() for t in TOPICS}
        for topic in TOPICS:
            self.someone_sets(topic)
        self.touched: set[str] = set()
        self.trouble = True
        self.cluster.before, self.cluster.after = self.before, self.after
        self.guards: list[Started] = []

    def someone_sets(self, topic: str) -> None:
        name = self.random.choice((DIRTY_RATIO, MAX_LAG_MS))
        value = self.random.choice(("0.1", "0.3", "0.7", None) if name == DIRTY_RATIO else ("777", None))
        for own in (self.cluster.explicit[topic], self.expected[topic]):
            own.pop(name, None)
            if value is not None:
                own[name] = value

    def before(self, name: str) -> None:
        if self.trouble and name != "alter" and self.random.random() < 0.02:
            topic = self.random.choice(TOPICS)
            self.someone_sets(topic)
            self.touched.add(topic)
        self.after(name)

    def after(self, name: str) -> None:
        chance = self.random.random() if self.trouble else 1.0
        if chance < 0.03:
            raise KilledError
        if chance < 0.08:
            raise HarnessError(f"{name} failed")

    def round(self) -> None:
        if len(self.guards) < 2:
            self.guards.append(start(self.cluster))
        for started in list(self.guards):
            try:
                is_protected = started.guard.attempt() and started.guard.status.leads
            except KilledError:
                started.leadership.close()
                self.guards.remove(started)
                continue
            for topic in self.cluster.exposed() - self.touched if is_protected else ():
                assert self.cluster.is_paused(topic), (topic, started.events)

    def outage(self) -> None:
        broker = self.random.choice((1, 2, 3))
        for topic in self.random.sample(TOPICS, self.random.randint(1, 3)):
            self.cluster.away.setdefault(topic, set()).add(broker)
        for _ in range(self.random.randint(0, 4)):
            self.round()
        self.cluster.away.clear()
        for _ in range(self.random.randint(0, 3)):
            self.round()


@pytest.mark.parametrize("seed", range(10))
def test_500_outages_with_kills_failures_and_people_leave_the_settings_as_found(seed: int) -> None:
    outages = Outages(seed)
    for number in range(50):
        outages.touched.clear()
        # The next replica may leave before a release is complete.
        for _ in range(outages.random.randint(1, 3)):
            outages.outage()
        outages.trouble = False
        for _ in range(3):
            outages.round()
        outages.trouble = True
        assert outages.cluster.explicit == outages.expected, (seed, number)
        assert outages.guards[0].guard.status.state.pauses == {}


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(20))
def test_a_guard_that_is_killed_at_any_request_is_followed_by_one_that_goes_on(side: str, number: int) -> None:
    cluster = FakeCluster({"t": {DIRTY_RATIO: "0.2"}}, {"t": {2}})
    remaining = [number]

    def kill(_name: str) -> None:
        remaining[0] -= 1
        if remaining[0] < 0:
            raise KilledError

    setattr(cluster, side, kill)
    started = start(cluster)
    for away in ({2}, set()):
        cluster.away["t"] = away
        with suppress(KilledError):
            started.guard.attempt()
    setattr(cluster, side, lambda _: None)
    cluster.away["t"] = {2}
    cluster.members.clear()
    again = start(cluster).guard
    assert again.attempt()
    assert cluster.is_paused("t")
    cluster.away.clear()
    assert again.attempt()
    assert cluster.explicit == {"t": {DIRTY_RATIO: "0.2"}}
