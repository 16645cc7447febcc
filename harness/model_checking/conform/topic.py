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
from harness.models.world.world import ABSENT, OUTCOMES, PLAIN, PRODUCERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.kafka_api.address import Address
    from harness.kafka_api.messages import Request, TopicPartition
    from harness.model_checking.conform.brokers import Brokers
    from harness.model_checking.conform.picture import Named
    from harness.model_checking.conform.schedules import Schedule


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

    def take(self, step: str) -> None:
        """Take a step of this partition (`harness.models.world.steps`). Raises `HarnessError`."""
        match step.split():
            case [producer, "writes", *records]:
                self._producer(producer).write(self._contents(records), self._brokers.cluster.clock.time_ms())
                self._log_end += len(records)
            case [producer, verb] if verb in OUTCOMES:
                self._producer(producer).end(OUTCOMES[verb])
                self._log_end += 1
            case [producer, verb, "having", "written", "nothing", "here"]:
                self._producer(producer).register()
                self._producer(producer).end(OUTCOMES[verb.removesuffix(",")])
                self._log_end += 1
            case [producer, "begins", "anew,", "and", "is", "aborted"]:
                self._producer(producer).begin_anew()
                self._log_end += 1
            case [broker, "leads"]:
                self._lead(int(broker))
            case ["records", "before", offset, "are", "deleted"]:
                self.ask(self.leader, delete_records(self.partition, int(offset)))
            case [_, "joins"]:
                self._join()
            case ["rest"]:
                pass
            case _:
                raise ValueError(f"{step!r} is no step of a partition")

    def _contents(self, records: Sequence[str]) -> list[tuple[bytes, bytes | None]]:
        """Return keys and values; a group commits the offset of the record that it writes, as in `world.groups`."""
        contents = keys_and_values(records)
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
