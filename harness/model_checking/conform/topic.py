"""One schedule's partition on real brokers, and its producers: of a topic, or the one that keeps a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from harness.kafka_api import connection
from harness.kafka_api.connection import RetryPolicy
from harness.kafka_api.messages import RetriableError
from harness.kafka_api.topics import delete_records
from harness.model_checking.conform.producer import DataRequests, OffsetRequests, Producer
from harness.model_checking.conform.schedules import STAYING
from harness.models.world.steps import keys_and_values
from harness.models.world.world import ABSENT, PLAIN, PRODUCERS
from harness.schedules.operations.administrators import DeleteRecords, ElectLeader
from harness.schedules.operations.clients import End, EndElsewhere, Restart, Write, WriteBatch
from harness.schedules.operations.environment import JoinIsr, Rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.kafka_api.address import Address
    from harness.kafka_api.messages import Request, TopicPartition
    from harness.model_checking.conform.brokers import Brokers
    from harness.model_checking.conform.picture import Named
    from harness.model_checking.conform.schedules import Schedule
    from harness.schedules.operations.operation import Operation


T = TypeVar("T")
REQUEST_S: Final = 20.0
ONE_ANSWER: Final = RetryPolicy(answer_s=5.0)


class Topic:
    """One schedule's partition. ``partition``: its topic and number. ``group``: which it keeps, or None."""

    def __init__(
        self, brokers: Brokers, schedule: Schedule, partition: TopicPartition, group: str | None = None
    ) -> None:
        """Store the parts; producers are made at their first use."""
        self._brokers = brokers
        self._schedule = schedule
        self.partition = partition
        self.group = group
        self._leader = schedule.replicas[0]
        self._replicas = schedule.replicas
        self._producers: dict[str, Producer] = {}
        self._log_end = 0

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self._schedule.name

    @property
    def leader_id(self) -> int:
        """The broker that leads the partition."""
        return self._leader

    def leader(self) -> Address:
        """Return the address of the partition's leader."""
        return self._brokers.cluster.runtime.address(self._leader)

    def anyone(self) -> Address:
        """Return the address of a broker that never goes away."""
        return self._brokers.cluster.runtime.address(STAYING[0])

    def ask(self, where: Callable[[], Address], request: Request[T]) -> T:
        """Send until there is an answer; retriable errors are retried. Raises `RefusedError` for a permanent error."""

        def answered() -> list[T]:
            address = where()
            try:
                return [connection.ask(address, request, ONE_ANSWER)]
            except RetriableError:
                return []

        what = f"{type(request.message).__name__} of {self.name}"
        return self._brokers.cluster.clock.wait_until(answered, REQUEST_S, what)[0]

    @property
    def named(self) -> Named:
        """Names of the producers by their ids."""
        return {one.producer_id: name for name, one in self._producers.items() if one.producer_id >= 0}

    def _producer(self, name: str) -> Producer:
        if name not in self._producers:
            transactional_id = f"{self.name}-{name}" if name in PRODUCERS else None
            requests = DataRequests(self.partition[0]) if self.group is None else OffsetRequests(self.group)
            self._producers[name] = Producer(
                self, requests, transactional_id=transactional_id, has_id=name != PLAIN, version=self._schedule.version
            )
        return self._producers[name]

    def take(self, step: Operation) -> None:
        """Take a step of this partition. Raises `HarnessError`."""
        match step:
            case WriteBatch():
                self._producer(step.process).write(self._contents(step), self._brokers.cluster.clock.time_ms())
                self._log_end += len(step.keys)
            case Write(key=key, deletes=deletes):
                self.take(WriteBatch(step.process, (key,), (0,) if deletes else ()))
            case End(outcome=outcome):
                self._producer(step.process).end(outcome)
                self._log_end += 1
            case EndElsewhere(outcome=outcome):
                self._producer(step.process).register()
                self._producer(step.process).end(outcome)
                self._log_end += 1
            case Restart():
                self._producer(step.process).begin_anew()
                self._log_end += 1
            case ElectLeader(broker=broker):
                self._lead(broker)
            case DeleteRecords(keeps=keeps):
                self.ask(self.leader, delete_records(self.partition, self._log_end - keeps))
            case JoinIsr():
                self._join()
            case Rest():
                pass
            case _:
                raise ValueError(f"'{step}' is not an operation of a partition")

    def _contents(self, batch: WriteBatch) -> list[tuple[bytes, bytes | None]]:
        """Return keys and values; a group commits the offset of the record that it writes, as in `world.groups`."""
        contents = keys_and_values(batch)
        if self.group is None:
            return contents
        return [
            (key, None if value is None else str(at).encode())
            for at, (key, value) in enumerate(contents, self._log_end)
        ]

    def _lead(self, broker: int) -> None:
        self._replicas = (broker, *(one for one in self._replicas if one != broker))
        orders = {self.partition: self._replicas}
        control = self._brokers.cluster.control
        control.lead(orders)
        self._brokers.cluster.wait(lambda: control.leads(orders), f"{broker} to lead {self.name}")
        self._leader = broker

    def _join(self) -> None:
        self._replicas = (*self._replicas, ABSENT)
        self._brokers.cluster.control.lead({self.partition: self._replicas})
        self._brokers.cluster.wait(
            lambda: all(
                set(one.isr) == set(one.replicas) == set(self._replicas)
                for one in self._brokers.cluster.control.states([self.partition[0]]).values()
            ),
            f"{ABSENT} to join {self.name}",
        )
