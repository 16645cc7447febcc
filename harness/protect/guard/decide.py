"""What to do about a topic, by its pause so far, whether it has to be paused, and its settings now. No requests.

A guard may be killed between any two of its requests, and a request whose answer is lost may have been carried out. So
a pause that is not complete (``pausing``, ``releasing``) is decided anew from the settings that the topic has: a
setting with the value of a pause was set by the guard, and what was found for it stays; any other value is what the
topic has now. Once a pause is complete (``paused``), a value other than the guard's is somebody's decision, and is left
alone until the pause is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.protect.guard.journal import Pause, PausePhase, PauseState
from harness.protect.guard.settings import PAUSE, is_pause, is_same, own_values

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.protect.guard.settings import Found, Settings


@dataclass(frozen=True)
class PauseStep:
    """One topic's way to where it belongs.

    ``announced`` is kept before ``changes`` are made, unless it is kept already (None); ``done`` is kept after them.
    ``expected``: the topic's own values when this was decided. If they are others before the change, somebody changed
    them, and all is decided anew. ``left_alone``: settings that somebody changed during the pause.
    """

    topic: str
    announced: Pause | None
    changes: Found
    expected: Found
    done: Pause
    left_alone: tuple[str, ...] = ()


def topics_to_pause(exposed: Collection[str], covered: Collection[str], state: PauseState) -> frozenset[str]:
    """Return the topics whose compaction has to be paused; a hold of another command counts without any exposure.

    What an earlier guard paused stays paused while it is exposed, although this guard may cover other topics.
    """
    return frozenset(exposed) & (frozenset(covered) | frozenset(state.pauses)) | frozenset(state.holds)


def topics_to_read(to_pause: Collection[str], state: PauseState, verified: Collection[str]) -> frozenset[str]:
    """Return the topics whose settings decide what to do now; ``verified``: paused ones that were looked at already."""
    begun = {topic for topic in to_pause if topic not in state.pauses}
    unsettled = {
        topic
        for topic, pause in state.pauses.items()
        if topic not in to_pause or pause.phase is not PausePhase.PAUSED or topic not in verified
    }
    return frozenset(begun | unsettled)


def decide(topic: str, pause: Pause | None, settings: Settings, cycle: str, now_ms: int) -> PauseStep | None:
    """Return the step that pauses a topic; None where it is paused. ``cycle`` names the pause that may begin."""
    expected = own_values(settings)
    if pause is not None and pause.phase is PausePhase.PAUSED:
        kept = {name: value for name, value in pause.found.items() if is_pause(name, settings[name])}
        left = tuple(name for name in pause.found if name not in kept)
        return PauseStep(topic, None, {}, expected, replace(pause, found=kept), left) if left else None
    found = dict(expected)
    if pause is not None:
        found |= {name: value for name, value in pause.found.items() if is_pause(name, settings[name])}
    changes = {name: value for name, value in PAUSE.items() if not is_pause(name, settings[name])}
    if pause is not None and pause.phase is PausePhase.PAUSING and pause.found == found:
        return PauseStep(topic, None, changes, expected, replace(pause, phase=PausePhase.PAUSED))
    begun = Pause(topic, PausePhase.PAUSING, cycle, found, now_ms if pause is None else pause.since_ms)
    return PauseStep(topic, begun, changes, expected, replace(begun, phase=PausePhase.PAUSED))


def release(pause: Pause, settings: Settings) -> PauseStep:
    """Return the step that puts back what was found, where the topic still has the guard's value."""
    expected = own_values(settings)
    ours = {name: value for name, value in pause.found.items() if is_pause(name, settings[name])}
    changes = {name: value for name, value in ours.items() if not is_same(expected[name], value)}
    left = tuple(name for name, value in pause.found.items() if name not in ours and not is_same(expected[name], value))
    begun = replace(pause, phase=PausePhase.RELEASING)
    announced = None if begun == pause or not changes else begun
    return PauseStep(pause.topic, announced, changes, expected, replace(pause, phase=PausePhase.RELEASED), left)


def is_as_expected(step: PauseStep, settings: Settings) -> bool:
    """Whether nobody has changed a topic's settings since the step was decided."""
    return own_values(settings) == step.expected


def steps(
    to_pause: Collection[str], state: PauseState, settings: Mapping[str, Settings], cycle: str, now_ms: int
) -> list[PauseStep]:
    """Return the steps of all topics whose settings were read, by name."""
    found: list[PauseStep | None] = []
    for topic, now in sorted(settings.items()):
        pause = state.pauses.get(topic)
        if topic in to_pause:
            found.append(decide(topic, pause, now, cycle, now_ms))
        elif pause is not None:
            found.append(release(pause, now))
    return [step for step in found if step is not None]
