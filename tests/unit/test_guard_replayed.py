"""Entries of the channel that nothing needs any more: without them, the state is the same."""

from __future__ import annotations

import random

import pytest

from harness.protect.guard.journal import HOLD, NOTE, UNHOLD, Entry, PausePhase, PauseState, ReplayedJournal

RATIO = "min.cleanable.dirty.ratio"


def entry(kind: str, topic: str = "t", **content: object) -> Entry:
    return Entry(kind, topic, 1, "w", content)


def of_pause(phase: PausePhase, cycle: str = "c", topic: str = "t") -> Entry:
    return entry(phase, topic, cycle=cycle, found={RATIO: "0.2"})


def drawn(chance: random.Random) -> Entry:
    topic = chance.choice("tu")
    kind = chance.choice([*PausePhase, *PausePhase, HOLD, UNHOLD, NOTE])
    if kind == NOTE:
        return entry(kind, name=chance.choice("ab"), value=chance.choice([1, None]))
    if kind in {HOLD, UNHOLD}:
        return entry(kind, topic, by=chance.choice(["repair", "other"]))
    return of_pause(PausePhase(kind), chance.choice("cd"), topic)


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


def test_a_pause_is_needed_from_its_first_entry() -> None:
    reader = ReplayedJournal()
    log = [of_pause(PausePhase.PAUSING, "b"), of_pause(PausePhase.RELEASED, "b"), *map(of_pause, PausePhase)]
    reader.add(list(enumerate(log[:4])), 4)
    assert reader.needed_from == 2
    reader.add([(4, log[4]), (5, log[5])], 6)
    assert reader.needed_from == 6


def test_who_missed_deleted_entries_begins_anew() -> None:
    reader = ReplayedJournal()
    reader.add([(0, of_pause(PausePhase.PAUSING))], 1)
    assert reader.start(5) == 5
    assert reader.state == PauseState(), "the end of the pause was among the deleted entries"
