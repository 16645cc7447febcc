"""Fake brokers that play the same schedules as the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from harness.errors import WaitTimeoutError
from harness.kafka_api.messages import RefusedError
from harness.model_checking.conform.conform import ReplicaKey
from harness.model_checking.conform.picture import ReplicaPicture, Simulated
from harness.models.log.version_rules import rules_of
from harness.models.world.world import Rules
from harness.schedules.operations import Operation
from harness.schedules.schedule import Schedule

OLD = Rules(version=rules_of("3.9.2"))


@dataclass
class ModelBrokers:
    """What `conform` needs of `Brokers`, by a second model.

    ``wrong``: by schedule and broker, from which step on the picture is wrong. ``refuses``: a leader, by schedule.
    """

    wrong: dict[ReplicaKey, int] = field(default_factory=dict)
    refuses: dict[str, Operation] = field(default_factory=dict)
    will_age: bool = False
    kept_until_ms: set[int] = field(default_factory=set)
    partitions: dict[str, ModelPartition] = field(default_factory=dict)
    aged: list[bool] = field(default_factory=list)

    def create(self, schedules: Sequence[Schedule]) -> None:
        self.partitions = {it.case: ModelPartition(self, Simulated(it, OLD), it.case) for it in schedules}

    def wait_for_next_timestamp(self) -> None:
        pass

    @contextmanager
    def during(self, step: Operation) -> Iterator[None]:
        self.aged.append(self.will_age)
        for partition in self.partitions.values():
            partition.model.take(step)
            partition.steps += 1
        yield

    def pictures(self, names: Mapping[int, Sequence[str]]) -> dict[ReplicaKey, ReplicaPicture]:
        return {
            (name, broker): self._picture(name, broker, self.partitions[name].model.pictures()[broker])
            for broker, names_of_broker in names.items()
            for name in names_of_broker
        }

    def _picture(self, name: str, broker: int, picture: ReplicaPicture) -> ReplicaPicture:
        from_step = self.wrong.get((name, broker))
        is_wrong = from_step is not None and self.partitions[name].steps >= from_step
        return replace(picture, log_start=99) if is_wrong else picture

    @property
    def cluster(self) -> ModelBrokers:
        return self

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        if not condition():
            raise WaitTimeoutError(f"timed out after {timeout_s} s waiting for {what}")


@dataclass
class ModelPartition:
    cluster: ModelBrokers
    model: Simulated
    name: str
    steps: int = 0

    def take(self, step: Operation) -> None:
        if self.cluster.refuses.get(self.name) == step:
            raise RefusedError("a batch is refused with OutOfOrderSequenceNumberError")
        self.model.take(step)
        self.steps += 1
