"""Runs schedules on the model and on real brokers, all at once, and compares after every step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.errors import WaitTimeoutError
from harness.kafka_api.messages import RefusedError
from harness.model_checking.conform.picture import differences
from harness.model_checking.conform.schedules import CLUSTER_WIDE
from harness.model_checking.conform.simulated import Simulated
from harness.schedules.operations.environment import TimePasses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.model_checking.conform.brokers import Brokers
    from harness.model_checking.conform.picture import Picture
    from harness.model_checking.conform.schedules import Schedule
    from harness.models.log.version_rules import VersionRules
    from harness.schedules.operations.operation import Operation

AGREE_S: Final = 30.0
"""Time for brokers to reach the model's state: they copy, write markers and clean in the background.

On a machine with ten times its capacity in work, one comparison of twenty schedules took ten seconds.
"""

Key = tuple[str, int]
"""Topic and broker."""


MismatchedPictures: TypeAlias = "tuple[Picture, Picture | None, str | None]"
"""The expected picture of a replica, the actual one, and the broker's error."""


@dataclass(frozen=True)
class Disagreement:
    """A step after which a replica differs from the model. ``actual``: None where it could not be read.

    ``refused``: the leader's error where it rejected the step.
    """

    number: int
    step: Operation
    broker: int
    expected: Picture
    actual: Picture | None
    refused: str | None = None

    @property
    def differences(self) -> list[str]:
        """Describe the differences."""
        if self.refused is not None:
            return [self.refused]
        if self.actual is None:
            return ["the broker's replica cannot be read"]
        return differences(self.expected, self.actual)


@dataclass(frozen=True)
class Outcome:
    """The number of steps that agreed: all of a schedule, or those before the model and brokers disagree."""

    schedule: Schedule
    agreed: int
    disagreements: tuple[Disagreement, ...] = ()


def go(
    brokers: Brokers,
    schedules: Sequence[Schedule],
    rules: VersionRules,
    on_stage: Callable[[str], None],
    on_outcome: Callable[[Outcome], None],
) -> None:
    """Run schedules that share their cluster-wide steps; calls ``on_outcome`` for each. Raises HarnessError.

    A schedule is stopped where model and brokers disagree; the others go on.
    """
    brokers.create(schedules)
    active = {one.name: Simulated(one, rules) for one in schedules}
    agreed = 0
    try:
        for number, steps in enumerate(zip(*(one.steps for one in schedules), strict=True), 1):
            steps_now = {one.name: step for one, step in zip(schedules, steps, strict=True) if one.name in active}
            cluster_step = _common(steps)
            brokers.will_age = TimePasses() in schedules[0].steps[number:]
            on_stage(f"{number}/{len(schedules[0].steps)}: {cluster_step or 'each its own'}, {len(steps_now)} going")
            mismatches = _step(brokers, active, steps_now, cluster_step)
            for one in schedules:
                disagreed = tuple(
                    Disagreement(number, steps_now[one.name], broker, *mismatch)
                    for (topic, broker), mismatch in mismatches.items()
                    if topic == one.name
                )
                if disagreed:
                    on_outcome(Outcome(one, agreed, disagreed))
                    del active[one.name]
            agreed = number
    finally:
        for one in schedules:
            if one.name in active:
                on_outcome(Outcome(one, agreed))


def _common(steps: Sequence[Operation]) -> Operation | None:
    """Return the cluster-wide step, if there is one. Raises ValueError where only some schedules have it."""
    common = {step for step in steps if isinstance(step, CLUSTER_WIDE)}
    if common and len(set(steps)) > 1:
        raise ValueError(f"these befall one cluster at once: {'; '.join(map(str, steps))}")
    return next(iter(common), None)


def _step(
    brokers: Brokers, active: dict[str, Simulated], steps_now: dict[str, Operation], cluster_step: Operation | None
) -> dict[Key, MismatchedPictures]:
    before = {name: model.leader_picture() for name, model in active.items()}
    for name, step in steps_now.items():
        active[name].take(step)
    if cluster_step is not None:
        with brokers.during(cluster_step):
            return _compare(brokers, active)
    brokers.move_on()
    refused: dict[Key, MismatchedPictures] = {}
    for name, step in steps_now.items():
        try:
            brokers.topics[name].take(step)
        except RefusedError as error:
            leader, picture = before[name]
            refused[name, leader] = (picture, None, str(error))
    compared = {name: model for name, model in active.items() if name not in {topic for topic, _ in refused}}
    return refused | _compare(brokers, compared)


def _compare(brokers: Brokers, active: dict[str, Simulated]) -> dict[Key, MismatchedPictures]:
    """Wait until every replica matches the model; return the others, with the expected and the actual picture."""
    pending = {(name, broker): one for name, model in active.items() for broker, one in model.pictures().items()}
    last: dict[Key, Picture] = {}

    def agreed() -> bool:
        names: dict[int, list[str]] = defaultdict(list)
        for topic, broker in pending:
            names[broker].append(topic)
        pictures = brokers.pictures(names)
        last.update(pictures)
        for key, picture in pictures.items():
            if picture == pending[key]:
                _note_horizons(brokers, active[key[0]], pending.pop(key), picture)
        return not pending

    try:
        brokers.cluster.wait(agreed, "brokers to reach the model's state", AGREE_S)
    except WaitTimeoutError:
        # One slow comparison may have taken all the time.
        if agreed():
            return {}
        return {key: (expected, last.get(key), None) for key, expected in pending.items()}
    return {}


def _note_horizons(brokers: Brokers, model: Simulated, expected: Picture, actual: Picture) -> None:
    """Record the delete horizons of batches that the schedule still keeps."""
    at_ms = dict(actual.horizons_ms)
    kept = [at_ms[base] for base, horizon_ms in expected.horizons_ms if horizon_ms > model.world.now_ms]
    brokers.kept_until_ms |= set(kept)
