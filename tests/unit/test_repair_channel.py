"""The durable part of a repair: progress, holds, the throttle, and who repairs, on a simulated channel."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from unittest.mock import Mock, patch

import pytest
from fakes.guarded import BoundedClock, FakeChannel, FakeCluster, KilledError, start

from harness.errors import HarnessError, UsageError
from harness.kafka_api.connection import NotRegisteredError
from harness.protect.guard.cluster import DIRTY_RATIO, MAX_LAG_MS
from harness.protect.repair import channel
from harness.protect.repair.channel import BROKER, RATES, REPLICAS, TOPIC, ChannelThrottle
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.steps import PartitionRepair, ReplicaCopying

ENTRY = PartitionRepair(("t-1", 3), "id", (1, 2, 3), 1, (1, 3), (2,), None, (), ReplicaCopying(2, 1, 7), 2, "audit-x")
RATE = 1_000_000


def journal_of(
    cluster: FakeCluster, writer: str = "repair 1", clock: BoundedClock | None = None
) -> channel.RepairJournal:
    return channel.RepairJournal(FakeChannel(cluster, clock or BoundedClock(now=1.0), writer))


def holds_of(cluster: FakeCluster) -> channel.ChannelHolds:
    return channel.ChannelHolds(journal_of(cluster), cluster)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({"t": {}})


def test_progress_is_read_back_as_it_was_stored(cluster: FakeCluster) -> None:
    journal = journal_of(cluster)
    journal.store(ENTRY)
    later = PartitionRepair(("t-1", 4), "id", (3, 1), -1, (1,), (3,), 2, (2,), is_done=True)
    journal.store(later)
    assert journal_of(cluster).entries() == {("t-1", 3): ENTRY, ("t-1", 4): later}
    journal.remove(ENTRY.partition)
    assert journal_of(cluster).entries() == {("t-1", 4): later}


def test_a_hold_pauses_or_says_why_not_and_a_release_puts_back_what_was_found() -> None:
    cluster = FakeCluster({"t": {DIRTY_RATIO: "0.2"}, "u": {}})
    holds = holds_of(cluster)
    holds.hold(["t", "u"])
    assert holds.held() == {"t", "u"}
    assert [cluster.is_paused(topic) for topic in ("t", "u")] == [True, True]
    holds.hold(["t"])  # again, as where an answer was lost
    holds.release(["t", "u"])
    assert (holds.held(), cluster.explicit) == (frozenset(), {"t": {DIRTY_RATIO: "0.2"}, "u": {}})
    cluster = FakeCluster({"t": {}}, refused={"t": "not authorized"})
    with pytest.raises(HarnessError, match="settings of topic t: not authorized"):
        holds_of(cluster).hold(["t"])


def test_a_topic_whose_settings_somebody_changed_during_the_pause_is_paused_again() -> None:
    cluster = FakeCluster({"t": {DIRTY_RATIO: "0.2"}})
    holds = holds_of(cluster)
    holds.hold(["t"])
    cluster.explicit["t"] = {DIRTY_RATIO: "0.3", MAX_LAG_MS: cluster.explicit["t"][MAX_LAG_MS]}
    holds.hold(["t"])
    holds.hold(["t"])
    assert cluster.is_paused("t")
    holds.release(["t"])
    assert cluster.explicit == {"t": {DIRTY_RATIO: "0.3"}}


def test_what_was_found_is_kept_before_anything_changes(cluster: FakeCluster) -> None:
    holds_of(cluster).hold(["t"])
    order = [name for name in cluster.asked if name in {"append", "alter"}]
    assert order == ["append", "append", "alter", "append"]


def test_a_hold_that_is_killed_at_any_request_is_put_back_by_the_next_one() -> None:
    def clean() -> FakeCluster:
        return FakeCluster({"t": {DIRTY_RATIO: "0.2"}, "u": {MAX_LAG_MS: "7"}})

    def work(cluster: FakeCluster) -> None:
        holds = holds_of(cluster)
        holds.hold(["t", "u"])
        assert cluster.is_paused("t")
        holds.release(sorted(holds.held()))

    counted = clean()
    work(counted)
    for when in ("before", "after"):
        for at in range(len(counted.asked)):
            cluster = clean()
            setattr(cluster, when, Mock(side_effect=[*[None] * at, KilledError, *[None] * 1000]))
            with pytest.raises(KilledError):
                work(cluster)
            work(cluster)
            assert cluster.explicit == clean().explicit, (when, at)


def test_a_guard_that_runs_keeps_the_pause_until_the_hold_ends(cluster: FakeCluster) -> None:
    guard, holds = start(cluster).guard, holds_of(cluster)
    holds.hold(["t"])
    assert guard.attempt()
    assert cluster.is_paused("t")
    holds.release(["t"])
    assert guard.attempt()
    assert cluster.explicit == {"t": {}}


def test_a_pause_of_a_guard_is_left_to_the_guard() -> None:
    cluster = FakeCluster({"t": {}}, {"t": {2}})
    guard, holds = start(cluster).guard, holds_of(cluster)
    guard.attempt()
    holds.hold(["t"])
    holds.release(["t"])
    assert cluster.is_paused("t"), "a replica is away"
    cluster.away.clear()
    guard.attempt()
    assert cluster.explicit == {"t": {}}


def test_a_topic_that_was_deleted_meanwhile_is_forgotten(cluster: FakeCluster) -> None:
    holds = holds_of(cluster)
    holds.hold(["t"])
    del cluster.explicit["t"]
    holds.release(["t"])
    assert (holds.held(), FakeChannel(cluster).read().pauses) == (frozenset(), {})


def test_a_second_repair_is_refused_while_the_first_gives_signs(cluster: FakeCluster) -> None:
    clock = BoundedClock(now=1.0)
    first, second = (journal_of(cluster, f"repair {number}", clock) for number in (1, 2))
    first.claim()

    def sign(name: str) -> None:
        if name == "read" and clock.now > first.sign_due_s:
            cluster.before = lambda _name: None
            first.check()

    cluster.before = sign
    with pytest.raises(UsageError, match="another repair of this cluster is under way: repair 1"):
        second.claim()


def test_a_repair_that_was_killed_is_followed_after_its_silence_and_one_that_left_at_once(cluster: FakeCluster) -> None:
    clock = BoundedClock(now=1.0)
    first, second, third = (journal_of(cluster, f"repair {number}", clock) for number in (1, 2, 3))
    first.claim()
    second.claim()
    assert clock.now >= channel.SILENT_S
    with pytest.raises(channel.TakenOverError):
        first.check()
    first.leave()
    second.check()
    second.leave()
    before = clock.now
    third.claim()
    assert clock.now == before


@dataclass
class FakeSettings(LiveRepairCluster):
    """Settings of topics and brokers; brokers in ``down`` do not answer, those in ``removed`` are not registered."""

    values: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def explicit(self, kind: str, name: str, names: Collection[str]) -> dict[str, str | None]:
        if kind == BROKER and name in self.down:
            raise NotRegisteredError("no broker") if name in self.removed else ConnectionRefusedError("refused")
        return {s: self.values.get((kind, name), {}).get(s) for s in names if name not in self.deleted}

    def alter(self, kind: str, name: str, values: Mapping[str, str | None]) -> None:
        self.explicit(kind, name, values)
        own = {**self.values.pop((kind, name), {}), **values}
        if explicit := {setting: value for setting, value in own.items() if value is not None}:
            self.values[kind, name] = explicit


def test_a_throttle_names_the_copies_and_is_put_back(cluster: FakeCluster) -> None:
    found = {(BROKER, "2"): {RATES[0]: "5"}, (TOPIC, "t-1"): {REPLICAS[1]: "*"}}
    settings = FakeSettings({key: dict(value) for key, value in found.items()})
    ChannelThrottle(journal_of(cluster), settings, RATE).limit([ENTRY])
    assert settings.values[TOPIC, "t-1"] == {REPLICAS[0]: "3:1,3:2,3:3", REPLICAS[1]: "3:2"}
    assert settings.values[BROKER, "2"] == dict.fromkeys(RATES, str(RATE))
    # A repair that was killed: the recorded settings do not change.
    again = ChannelThrottle(journal_of(cluster), settings, RATE)
    again.limit([ENTRY])
    for _ in range(2):
        again.lift()
        assert settings.values == found


def test_the_throttle_of_an_earlier_repair_that_another_did_not_replace_is_put_back(cluster: FakeCluster) -> None:
    settings = FakeSettings()
    throttle = ChannelThrottle(journal_of(cluster), settings, RATE)
    throttle.limit([ENTRY])
    throttle.rate_bytes_s = 2 * RATE
    with patch.object(settings, "alter", side_effect=[ConnectionRefusedError] * 3 + [None]):
        throttle.limit([ENTRY])
    throttle.lift()
    assert settings.values == {}


def test_a_throttle_that_a_broker_refuses_is_an_error(cluster: FakeCluster) -> None:
    throttle = ChannelThrottle(journal_of(cluster), settings := FakeSettings(deleted={"t-1"}), RATE)
    with patch.object(settings, "alter", side_effect=HarnessError("refused")), pytest.raises(HarnessError):
        throttle.limit([ENTRY])


def test_a_deleted_topic_has_no_throttle(cluster: FakeCluster) -> None:
    settings = FakeSettings(deleted={"t-1"})
    throttle = ChannelThrottle(journal_of(cluster), settings, RATE)
    throttle.limit([ENTRY])
    assert (TOPIC, "t-1") not in settings.values
    throttle.lift()
    assert settings.values == {}


def test_without_a_rate_nothing_is_changed(cluster: FakeCluster) -> None:
    settings = FakeSettings()
    throttle = ChannelThrottle(journal_of(cluster), settings, None)
    throttle.limit([ENTRY])
    throttle.lift()
    assert (settings.values, cluster.log) == ({}, [])


def test_a_changed_rate_is_left_alone_and_one_of_a_broker_that_is_down_is_put_back_later(cluster: FakeCluster) -> None:
    settings = FakeSettings()
    throttle = ChannelThrottle(journal_of(cluster), settings, RATE)
    throttle.limit([ENTRY])
    settings.alter(BROKER, "1", {RATES[0]: "9"})
    settings.down = {"3"}
    with pytest.raises(HarnessError, match="throttle of broker 3: refused"):
        throttle.lift()
    settings.removed = {"3"}
    throttle.lift()
    settings.down = set()
    throttle.lift()
    assert settings.values == {(BROKER, "1"): {RATES[0]: "9"}}
