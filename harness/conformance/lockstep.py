"""Takes schedules over the model and over real brokers, all at once, and compares after every step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.conformance.picture import differences
from harness.conformance.simulated import STEP_MS, Simulated
from harness.conformance.steps import COMMON
from harness.errors import HarnessError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.conformance.brokers import Brokers
    from harness.conformance.picture import Picture
    from harness.conformance.steps import Schedule, Step

AGREE_S: Final = 15.0
"""So long may it take until brokers show what the model has: they copy, write markers and clean in the background."""

Key = tuple[str, int]
"""Topic and broker."""


@dataclass(frozen=True)
class Disagreement:
    """After which step which replica is other than in the model. ``found``: None where it could not be read."""

    number: int
    step: Step
    broker: int
    expected: Picture
    found: Picture | None

    @property
    def differences(self) -> list[str]:
        """Say what is not the same."""
        if self.found is None:
            return ["the broker's replica cannot be read"]
        return differences(self.expected, self.found)


@dataclass(frozen=True)
class Outcome:
    """How far a schedule went: to its end, or to where the model and brokers disagree; in steps that agreed."""

    schedule: Schedule
    agreed: int
    disagreements: tuple[Disagreement, ...] = ()


def go(brokers: Brokers, schedules: Sequence[Schedule], tell: Callable[[str], None]) -> list[Outcome]:
    """Go through schedules that have what befalls the cluster in common. Raises `HarnessError`.

    A schedule on which model and brokers disagree is left there; the others go on.
    """
    brokers.create(schedules)
    going = {one.name: Simulated(one) for one in schedules}
    ended: dict[str, Outcome] = {}
    for number, steps in enumerate(zip(*(one.steps for one in schedules), strict=True), 1):
        doing = {one.name: step for one, step in zip(schedules, steps, strict=True) if one.name in going}
        if not doing:
            break
        befalls = _common(steps)
        tell(f"{number}/{len(schedules[0].steps)}: {befalls or 'each its own'}, {len(doing)} going")
        found = _step(brokers, going, doing, befalls)
        for one in schedules:
            disagreed = tuple(
                Disagreement(number, doing[one.name], broker, expected, there)
                for (topic, broker), (expected, there) in found.items()
                if topic == one.name
            )
            if disagreed:
                ended[one.name] = Outcome(one, number - 1, disagreed)
                del going[one.name]
    return [ended.get(one.name) or Outcome(one, len(one.steps)) for one in schedules]


def _common(steps: Sequence[Step]) -> Step | None:
    """Return what befalls the whole cluster, if anything does. Raises ValueError where only some schedules say so."""
    if not any(isinstance(step, COMMON) for step in steps):
        return None
    if len(set(steps)) > 1:
        raise ValueError(f"these befall one cluster at once: {'; '.join(map(str, steps))}")
    return steps[0]


def _step(
    brokers: Brokers, going: dict[str, Simulated], doing: dict[str, Step], befalls: Step | None
) -> dict[Key, tuple[Picture, Picture | None]]:
    for name, step in doing.items():
        going[name].take(step)
    if befalls is None:
        brokers.move_on()
        for name, step in doing.items():
            brokers.topics[name].take(step)
        return _compare(brokers, going)
    with brokers.during(befalls):
        return _compare(brokers, going)


def _compare(brokers: Brokers, going: dict[str, Simulated]) -> dict[Key, tuple[Picture, Picture | None]]:
    """Wait until every replica is as the model has it; return those that are not, as they should be and as they are."""
    pending = {(name, broker): one for name, model in going.items() for broker, one in model.pictures().items()}
    last: dict[Key, Picture] = {}

    def agreed() -> bool:
        starts: dict[int, dict[str, int]] = defaultdict(dict)
        for (topic, broker), expected in pending.items():
            starts[broker][topic] = expected.log_start
        found = brokers.pictures(starts)
        last.update(found)
        for key, there in found.items():
            if there == pending[key]:
                _note_horizons(brokers, going[key[0]], pending.pop(key), there)
        return not pending

    try:
        brokers.wait(agreed, "brokers to show what the model has", AGREE_S)
    except WaitTimeoutError:
        return {key: (expected, last.get(key)) for key, expected in pending.items()}
    return {}


def _note_horizons(brokers: Brokers, model: Simulated, expected: Picture, found: Picture) -> None:
    """Take note of delete horizons. Raises `HarnessError` where one has come that the schedule wants kept."""
    now_ms = brokers.clock.time_ms()
    at_ms = dict(found.horizons_ms)
    for base_offset, horizon_ms in expected.horizons_ms:
        brokers.note_horizon(at_ms[base_offset])
        if horizon_ms > model.partition.now_ms + STEP_MS and at_ms[base_offset] <= now_ms:
            raise HarnessError("brokers took too long: a delete horizon has come that the schedule wants kept")
