"""Fake brokers that play the same schedules as the model."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.errors import WaitTimeoutError
from harness.kafka_api.messages import RefusedError
from harness.model_checking.conform.simulated import Simulated
from harness.models.log.version_rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.model_checking.conform.lockstep import Key
    from harness.model_checking.conform.picture import Picture
    from harness.model_checking.conform.schedules import Schedule
    from harness.schedules.operations.operation import Operation

OLD = rules_of("3.9.2")


@dataclass
class ModelBrokers:
    """What `lockstep` needs of `harness.model_checking.conform.brokers.Brokers`, by a second model.

    ``wrong``: topic and broker whose picture is wrong from a step on. ``refuses``: topic
    and the step that is refused there.
    """

    wrong: dict[Key, int] = field(default_factory=dict)
    refuses: dict[str, Operation] = field(default_factory=dict)
    will_age: bool = False
    kept_until_ms: set[int] = field(default_factory=set)
    topics: dict[str, ModelTopic] = field(default_factory=dict)
    aged: list[bool] = field(default_factory=list)

    def create(self, schedules: Sequence[Schedule]) -> None:
        self.topics = {one.name: ModelTopic(self, Simulated(one, OLD), one.name) for one in schedules}

    def move_on(self) -> None:
        pass

    @contextmanager
    def during(self, step: Operation) -> Iterator[None]:
        self.aged.append(self.will_age)
        for topic in self.topics.values():
            topic.model.take(step)
            topic.steps += 1
        yield

    def pictures(self, names: Mapping[int, Sequence[str]]) -> dict[Key, Picture]:
        return {
            (name, broker): self._seen(name, broker, self.topics[name].model.pictures()[broker])
            for broker, of_broker in names.items()
            for name in of_broker
        }

    def _seen(self, name: str, broker: int, picture: Picture) -> Picture:
        from_step = self.wrong.get((name, broker))
        is_wrong = from_step is not None and self.topics[name].steps >= from_step
        return replace(picture, log_start=99) if is_wrong else picture

    @property
    def cluster(self) -> ModelBrokers:
        return self

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        if not condition():
            raise WaitTimeoutError(f"timed out after {timeout_s} s waiting for {what}")


@dataclass
class ModelTopic:
    cluster: ModelBrokers
    model: Simulated
    name: str
    steps: int = 0

    def take(self, step: Operation) -> None:
        if self.cluster.refuses.get(self.name) == step:
            raise RefusedError("a batch is refused with OutOfOrderSequenceNumberError")
        self.model.take(step)
        self.steps += 1
