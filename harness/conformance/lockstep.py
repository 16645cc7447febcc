"""Takes schedules over the model and over real brokers, all at once, and compares after every step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from harness.conformance.picture import differences
from harness.conformance.producer import RefusedError
from harness.conformance.simulated import STEP_MS, Simulated
from harness.conformance.steps import COMMON, TimePasses
from harness.errors import WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from harness.conformance.picture import Picture
    from harness.conformance.steps import CommonStep, LocalStep, Schedule, Step
    from models.rules import Rules

AGREE_S: Final = 30.0
"""So long may it take until brokers show what the model has: they copy, write markers and clean in the background.

On a machine with ten times more to do than it can, one look at twenty schedules took ten seconds.
"""

Key = tuple[str, int]
"""Topic and broker."""


class Partition(Protocol):
    """One schedule's partition, as `harness.conformance.brokers.Topic` is."""

    def take(self, step: LocalStep) -> None:
        """Have a step befall it. Raises `RefusedError` where a broker will not, `HarnessError` where it cannot be."""
        ...


class Cluster(Protocol):
    """What schedules go through, as `harness.conformance.brokers.Brokers` is."""

    will_age: bool
    kept_until_ms: set[int]

    @property
    def topics(self) -> Mapping[str, Partition]:
        """Each schedule's, by its name."""
        ...

    def create(self, schedules: Sequence[Schedule]) -> None:
        """Make a topic for each."""
        ...

    def move_on(self) -> None:
        """Let the clock move on, so that what is written next is later than all that there is."""
        ...

    def during(self, step: CommonStep) -> AbstractContextManager[None]:
        """Have a step befall everyone until the end of the block."""
        ...

    def pictures(self, log_starts: Mapping[int, Mapping[str, int]]) -> dict[Key, Picture]:
        """Return the replicas that can be read, by topic and broker. Raises OSError."""
        ...

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until something holds. Raises `WaitTimeoutError`."""
        ...


Other: TypeAlias = "tuple[Picture, Picture | None, str | None]"
"""How a replica should be, how it is, and what its broker refused."""


@dataclass(frozen=True)
class Disagreement:
    """After which step which replica is other than in the model. ``found``: None where it could not be read.

    ``refused``: what the leader said where it did not let the step happen.
    """

    number: int
    step: Step
    broker: int
    expected: Picture
    found: Picture | None
    refused: str | None = None

    @property
    def differences(self) -> list[str]:
        """Say what is not the same."""
        if self.refused is not None:
            return [self.refused]
        if self.found is None:
            return ["the broker's replica cannot be read"]
        return differences(self.expected, self.found)


@dataclass(frozen=True)
class Outcome:
    """How far a schedule went: to its end, or to where the model and brokers disagree; in steps that agreed."""

    schedule: Schedule
    agreed: int
    disagreements: tuple[Disagreement, ...] = ()


def go(
    brokers: Cluster,
    schedules: Sequence[Schedule],
    rules: Rules,
    tell: Callable[[str], None],
    done: Callable[[Outcome], None],
) -> None:
    """Go through schedules that have what befalls the cluster in common; ``done`` is told of each. Raises HarnessError.

    A schedule on which model and brokers disagree is left there; the others go on.
    """
    brokers.create(schedules)
    going = {one.name: Simulated(one, rules) for one in schedules}
    agreed = 0
    try:
        for number, steps in enumerate(zip(*(one.steps for one in schedules), strict=True), 1):
            doing = {one.name: step for one, step in zip(schedules, steps, strict=True) if one.name in going}
            befalls = _common(steps)
            brokers.will_age = any(isinstance(step, TimePasses) for step in schedules[0].steps[number:])
            tell(f"{number}/{len(schedules[0].steps)}: {befalls or 'each its own'}, {len(doing)} going")
            found = _step(brokers, going, doing, befalls)
            for one in schedules:
                disagreed = tuple(
                    Disagreement(number, doing[one.name], broker, *how)
                    for (topic, broker), how in found.items()
                    if topic == one.name
                )
                if disagreed:
                    done(Outcome(one, agreed, disagreed))
                    del going[one.name]
            agreed = number
    finally:
        for one in schedules:
            if one.name in going:
                done(Outcome(one, agreed))


def _common(steps: Sequence[Step]) -> CommonStep | None:
    """Return what befalls the whole cluster, if anything does. Raises ValueError where only some schedules say so."""
    common = {step for step in steps if isinstance(step, COMMON)}
    if common and len(set(steps)) > 1:
        raise ValueError(f"these befall one cluster at once: {'; '.join(map(str, steps))}")
    return next(iter(common), None)


def _step(
    brokers: Cluster, going: dict[str, Simulated], doing: dict[str, Step], befalls: CommonStep | None
) -> dict[Key, Other]:
    before = {name: model.leader_picture() for name, model in going.items()}
    for name, step in doing.items():
        going[name].take(step)
    if befalls is not None:
        with brokers.during(befalls):
            return _compare(brokers, going)
    brokers.move_on()
    refused: dict[Key, Other] = {}
    for name, step in doing.items():
        try:
            brokers.topics[name].take(cast("LocalStep", step))
        except RefusedError as error:
            leader, picture = before[name]
            refused[name, leader] = (picture, None, str(error))
    compared = {name: model for name, model in going.items() if name not in {topic for topic, _ in refused}}
    return refused | _compare(brokers, compared)


def _compare(brokers: Cluster, going: dict[str, Simulated]) -> dict[Key, Other]:
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
        # One slow look may have taken all the time that there was.
        if agreed():
            return {}
        return {key: (expected, last.get(key), None) for key, expected in pending.items()}
    return {}


def _note_horizons(brokers: Cluster, model: Simulated, expected: Picture, found: Picture) -> None:
    """Take note of when what the schedule wants kept may go."""
    at_ms = dict(found.horizons_ms)
    kept = [at_ms[base] for base, horizon_ms in expected.horizons_ms if horizon_ms > model.partition.now_ms + STEP_MS]
    brokers.kept_until_ms |= set(kept)
