"""Steps that pause or release a topic: how a step follows from the topic's settings, and how steps are executed.

A guard may be killed between any two of its requests, and a request whose answer is lost may have been executed. So
the step of a pause that is not complete (``pausing``, ``releasing``) follows from the topic's present settings: a
setting with the value of a pause was set by the guard, and its value in ``found`` stays; any other value is the topic's
own. In a complete pause (``paused``), another value is somebody's decision, which stays until the pause ends.

Kafka has no compare-and-set for settings, so `carry_out` reads them again just before a change.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from harness.protect.guard.channel import KafkaChannel
from harness.protect.guard.cluster import PAUSE, LiveCluster, Settings, TopicValues, explicit_values, is_pause, is_same
from harness.protect.guard.journal import Pause, PausePhase, PauseState, entry_of

CHANGED: Final = "its settings were changed meanwhile, or cannot be read"
KNOWN_MS: Final = 60_000
"""After the beginning of a pause, until every broker knows it: before, brokers may answer the previous value."""


@dataclass(frozen=True)
class PauseStep:
    """``announced`` is stored before the ``changes``, unless it is stored already (None); ``done`` after them.

    ``expected``: the topic's explicit values at the decision. Where they differ before the change, somebody changed
    them, and the next round decides again. ``left_alone``: settings that somebody changed during the pause.
    """

    topic: str
    announced: Pause | None
    changes: TopicValues
    expected: TopicValues
    done: Pause
    left_alone: tuple[str, ...] = ()


def topics_to_pause(exposed: Collection[str], covered: Collection[str], state: PauseState) -> frozenset[str]:
    """Return the topics whose compaction has to be paused: exposed topics, and those that another command holds.

    An exposed topic that an earlier guard paused stays paused, although this guard may cover other topics.
    """
    return frozenset(exposed) & (frozenset(covered) | frozenset(state.pauses)) | frozenset(state.holds)


def topics_to_read(to_pause: Collection[str], state: PauseState, verified: Collection[str]) -> frozenset[str]:
    """Return the topics whose settings decide the next step; ``verified``: paused topics that were read already."""
    paused = {topic for topic, pause in state.pauses.items() if pause.phase is PausePhase.PAUSED and topic in to_pause}
    return frozenset(to_pause).union(state.pauses) - paused.intersection(verified)


def decide(topic: str, pause: Pause | None, settings: Settings, cycle: str, now_ms: int) -> PauseStep | None:
    """Return the step that pauses a topic; None where it is paused. ``cycle`` names the pause that may begin."""
    expected = explicit_values(settings)
    ours = {} if pause is None else {n: value for n, value in pause.previous.items() if is_pause(n, settings[n])}
    if pause is not None and pause.phase is PausePhase.PAUSED:
        if now_ms - pause.since_ms < KNOWN_MS:
            ours = {n: v for n, v in pause.previous.items() if n in ours or is_same(expected[n], v)}
        changed = tuple(name for name in pause.previous if name not in ours)
        return PauseStep(topic, None, {}, expected, replace(pause, previous=ours), changed) if changed else None
    previous = {**expected, **ours}
    changes = {name: value for name, value in PAUSE.items() if not is_pause(name, settings[name])}
    if pause is not None and pause.phase is PausePhase.PAUSING and pause.previous == previous:
        return PauseStep(topic, None, changes, expected, replace(pause, phase=PausePhase.PAUSED))
    begun = Pause(topic, PausePhase.PAUSING, cycle, previous, now_ms if pause is None else pause.since_ms)
    return PauseStep(topic, begun, changes, expected, replace(begun, phase=PausePhase.PAUSED))


def release(pause: Pause, settings: Settings) -> PauseStep:
    """Return the step that restores the previous values, where the topic still has the guard's value."""
    expected = explicit_values(settings)
    # The previous value may be the answer of a broker that does not know the pause: it is set all the same.
    ours = {n: v for n, v in pause.previous.items() if is_pause(n, settings[n]) or is_same(expected[n], v)}
    changes = {name: value for name, value in ours.items() if not is_same(PAUSE[name], value)}
    changed = tuple(name for name in pause.previous if name not in ours)
    begun = replace(pause, phase=PausePhase.RELEASING)
    announced = None if begun == pause or not changes else begun
    return PauseStep(pause.topic, announced, changes, expected, replace(pause, phase=PausePhase.RELEASED), changed)


def steps(
    to_pause: Collection[str], state: PauseState, settings: Mapping[str, Settings], cycle: str, now_ms: int
) -> list[PauseStep]:
    """Return the steps of all topics whose settings were read, by name."""
    by_topic: list[PauseStep | None] = []
    for topic, current in sorted(settings.items()):
        pause = state.pauses.get(topic)
        if topic in to_pause:
            by_topic.append(decide(topic, pause, current, cycle, now_ms))
        elif pause is not None:
            by_topic.append(release(pause, current))
    return [step for step in by_topic if step is not None]


def carry_out(
    decided: Collection[PauseStep],
    cluster: LiveCluster,
    channel: KafkaChannel,
    raise_if_replaced: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Execute steps; return the topics whose settings were not changed, with the reason.

    ``raise_if_replaced`` is called just before a change. Raises `HarnessError` and OSError without an answer.
    """
    refused: dict[str, str] = {}
    channel.append([entry_of(step.announced) for step in decided if step.announced is not None])
    if changing := {step.topic: step for step in decided if step.changes}:
        current = cluster.settings(changing.keys()).settings
        unchanged = {t for t, values in current.items() if explicit_values(values) == changing[t].expected}
        refused |= dict.fromkeys(changing.keys() - unchanged, CHANGED)
        ready = {topic: step.changes for topic, step in changing.items() if topic not in refused}
        raise_if_replaced()
        refused |= cluster.alter(ready) if ready else {}
    channel.append([entry_of(step.done) for step in decided if step.topic not in refused])
    return refused
