"""Rules of the guard that need no cluster: values, exposure, entries of the channel, and single decisions."""

import random
from dataclasses import replace

import pytest

from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.topics import ConfigEntry
from harness.protect.guard import cluster, journal
from harness.protect.guard.cluster import DIRTY_RATIO, MAX_LAG_MS, PAUSE, RETENTION_MS, of_most
from harness.protect.guard.decide import decide, release, topics_to_pause, topics_to_read
from harness.protect.guard.journal import HOLD, UNHOLD, Entry, Pause, PausePhase, PauseState, ReplayedJournal

MAX_LAG = str(2**63 - 1)


def settings(ratio: str | None = None, lag: str | None = None) -> dict[str, ConfigEntry]:
    return {
        DIRTY_RATIO: ConfigEntry(ratio or "0.5", is_explicit=ratio is not None),
        MAX_LAG_MS: ConfigEntry(lag or MAX_LAG, is_explicit=lag is not None),
    }


def pause(phase: PausePhase = PausePhase.PAUSED, cycle: str = "c", topic: str = "t") -> Pause:
    return Pause(topic, phase, cycle, {DIRTY_RATIO: "0.2", MAX_LAG_MS: None}, 5)


def entry(phase: PausePhase, cycle: str = "c", topic: str = "t") -> Entry:
    return journal.entry_of(pause(phase, cycle, topic))


EQUAL = [("1", "1.0"), ("1", "1.00"), (MAX_LAG, f"{MAX_LAG}.0"), ("0.5", "0.50"), (None, None), ("x", "x")]
DIFFERENT = [(MAX_LAG, str(2**63 - 2)), ("1", "0.9999999999"), ("1", None), ("x", "1")]


@pytest.mark.parametrize("pair", [*EQUAL, *DIFFERENT])
def test_values_are_compared_as_numbers(pair: tuple[str | None, str | None]) -> None:
    assert cluster.is_same(*pair) is (pair in EQUAL)


def test_the_window_is_the_lag_and_the_retention() -> None:
    lag, retention = ConfigEntry("7", is_explicit=True), ConfigEntry("5", is_explicit=False)
    assert cluster.window_ms({cluster.MIN_LAG_MS: lag, RETENTION_MS: retention}) == 12


def test_a_replica_is_missing_until_it_is_in_the_isr_and_one_broker_that_says_so_is_enough() -> None:
    states = {("t", 0): PartitionState(1, (1, 3, 2), (1, 3)), ("t", 1): PartitionState(1, (1, 3, 2), (3, 2, 1))}
    assert cluster.united([states]).missing == {(("t", 0), 2)}, "it is being added"
    old, new = ({("t", 0): PartitionState(1, (1, 2), isr)} for isr in ((1, 2), (1,)))
    for answers in ([old, new], [new, old]):
        view = cluster.united(answers)
        assert view.exposed == view.topics == {"t"}


def test_an_entry_is_read_back() -> None:
    written = replace(entry(PausePhase.PAUSED), time_ms=9, writer="host:1")
    content = {"schema": 1, **written.content}
    assert journal.parse_entry(written.to_json().encode()) == Entry("paused", "t", 9, "host:1", content)


@pytest.mark.parametrize(
    "text", [b"", b"x", b"[]", b"1", b"{}", b'{"kind": 1, "topic": "t", "time_ms": 1, "writer": ""}']
)
def test_what_is_no_entry_is_skipped(text: bytes) -> None:
    assert journal.parse_entry(text) is None


def test_a_pause_is_followed_until_it_is_released_and_late_entries_of_an_earlier_one_change_nothing() -> None:
    state = PauseState().after([entry(PausePhase.PAUSING)])
    assert state.pauses["t"].phase is PausePhase.PAUSING
    state = state.after([entry(PausePhase.PAUSED), entry(PausePhase.RELEASING)])
    assert state.pauses["t"] == pause(PausePhase.RELEASING)
    assert state.after([entry(PausePhase.RELEASED)]) == PauseState()
    state = PauseState().after([entry(PausePhase.PAUSING, "new"), entry(PausePhase.PAUSED, "new")])
    for phase in (PausePhase.PAUSED, PausePhase.RELEASING, PausePhase.RELEASED):
        assert state.after([entry(phase, "old")]) == state


@pytest.mark.parametrize(
    "content", [{}, {"cycle": "c"}, {"cycle": 1, "found": {}}, {"cycle": "c", "found": {"x": "1"}}]
)
@pytest.mark.parametrize("kind", ["pausing", "repair-plan"])
def test_incomplete_and_unknown_entries_change_nothing(kind: str, content: dict[str, object]) -> None:
    assert PauseState().after([Entry(kind, "t", 1, "w", content)]) == PauseState()


def test_each_holder_lets_go_for_itself() -> None:
    held = PauseState().after([Entry(HOLD, "t", 1, "w", {"by": by}) for by in ("a", "b", "b")])
    assert held.holds == {"t": {"a", "b"}}
    held = held.after([Entry(UNHOLD, "t", 1, "w", {"by": "b"})])
    assert topics_to_pause((), (), held) == {"t"}
    assert held.after([Entry(UNHOLD, "t", 1, "w", {"by": "a"})]) == PauseState()


def test_settings_are_read_only_where_something_is_to_be_done() -> None:
    state = PauseState({"a": pause(), "b": pause(), "c": pause(PausePhase.PAUSING)})
    assert topics_to_read({"a", "b", "c", "d"}, state, {"a"}) == {"b", "c", "d"}
    assert topics_to_read((), PauseState(), ()) == set()
    assert topics_to_read((), PauseState({"a": pause()}), {"a"}) == {"a"}


@pytest.mark.parametrize(("before", "cycle"), [(None, "c"), (pause(PausePhase.RELEASING), "c2")])
def test_a_pause_begins_with_the_settings_of_the_topic(before: Pause | None, cycle: str) -> None:
    """A half-finished release is paused again under a new name."""
    step = decide("t", before, settings("0.2"), cycle, 5)
    assert step is not None
    assert (step.announced, step.changes) == (pause(PausePhase.PAUSING, cycle), PAUSE)
    assert step.done == pause(cycle=cycle)


def test_a_pause_by_a_guard_that_crashed_keeps_the_previous_settings_and_a_complete_pause_is_left_as_it_is() -> None:
    for phase in (PausePhase.PAUSING, PausePhase.RELEASING):
        step = decide("t", pause(phase), settings("1.0", MAX_LAG), "c2", 99)
        assert step is not None
        assert (step.changes, step.done.previous, step.done.since_ms) == ({}, pause().previous, 5)
    assert decide("t", pause(), settings("1.0", MAX_LAG), "c2", 99) is None


@pytest.mark.parametrize(
    ("ratio", "at_ms", "left_alone"), [("0.2", 99, None), ("0.7", 99, DIRTY_RATIO), ("0.2", 60_005, DIRTY_RATIO)]
)
def test_the_previous_value_soon_after_a_pause_is_not_a_change(ratio: str, at_ms: int, left_alone: str | None) -> None:
    step = decide("t", pause(), settings(ratio, MAX_LAG), "c2", at_ms)
    assert (step and step.left_alone) == (left_alone and (left_alone,))


def test_a_release_touches_only_what_the_guard_set() -> None:
    for ratio, changes, left_alone in ("1.0", {DIRTY_RATIO: "0.2"}, ()), ("0.7", {}, (DIRTY_RATIO,)):
        step = release(pause(), settings(ratio, MAX_LAG))
        assert (step.changes, step.left_alone) == ({**changes, MAX_LAG_MS: None}, left_alone)
    step = release(pause(), settings("0.2"))
    assert (step.changes, step.left_alone) == ({DIRTY_RATIO: "0.2", MAX_LAG_MS: None}, ()), "an answer may be old"


def test_the_settings_that_most_brokers_have_count() -> None:
    paused, former = settings("1.0", MAX_LAG), settings("0.2")
    assert of_most([paused, former, paused]) == paused
    assert of_most([former, "NoSuchTopic", "NoSuchTopic"]) == "NoSuchTopic"
    assert of_most([paused, former]) == "the brokers have different settings of it"


def drawn(chance: random.Random) -> Entry:
    topic = chance.choice("tu")
    kind = chance.choice([*PausePhase, *PausePhase, HOLD, UNHOLD, journal.NOTE])
    if kind == journal.NOTE:
        return Entry(kind, "t", 1, "w", {"name": chance.choice("ab"), "value": chance.choice([1, None])})
    if kind in {HOLD, UNHOLD}:
        return Entry(kind, topic, 1, "w", {"by": chance.choice(["repair", "other"])})
    return entry(PausePhase(kind), chance.choice("cd"), topic)


@pytest.mark.parametrize("seed", range(200))
def test_the_needed_entries_alone_give_the_same_state(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  (no secret)
    log = [drawn(chance) for _ in range(40)]
    reader, late, first = ReplayedJournal(), ReplayedJournal(), 0
    for end in range(1, len(log) + 1):
        start = reader.start(first)
        reader.add(list(enumerate(log[start:end], start)), end)
        assert reader.state == PauseState().after(log[:end])
        assert reader.state == PauseState().after(log[reader.needed_from : end])
        if chance.random() < 0.2:
            first = reader.needed_from
        if chance.random() < 0.2:
            start = late.start(first)
            late.add(list(enumerate(log[start:end], start)), end)
            assert late.state == reader.state


def test_a_pause_is_needed_from_its_first_entry_and_who_missed_deleted_entries_begins_anew() -> None:
    reader = ReplayedJournal()
    log = [entry(PausePhase.PAUSING, "b"), entry(PausePhase.RELEASED, "b"), *map(entry, PausePhase)]
    reader.add(list(enumerate(log[:4])), 4)
    assert reader.needed_from == 2
    reader.add([(4, log[4]), (5, log[5])], 6)
    assert reader.needed_from == 6
    reader = ReplayedJournal()
    reader.add([(0, entry(PausePhase.PAUSING))], 1)
    assert reader.start(5) == 5
    assert reader.state == PauseState(), "the end of the pause was among the deleted entries"
