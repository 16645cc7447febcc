"""One schedule's partition on real brokers, and its producers."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING

import kafka.errors
from kafka.protocol.admin import DeleteRecordsRequest

from harness.brokers.protocol import wire
from harness.conformance.producer import TIMEOUT_MS, Endpoint, Producer, RefusedError
from harness.conformance.steps import (
    LEAVES,
    PLAIN,
    STAYING,
    TRANSACTIONAL_ONES,
    DeleteRecords,
    End,
    EndElsewhere,
    Fence,
    Join,
    Lead,
    Rest,
    Write,
)

if TYPE_CHECKING:
    from harness.conformance.brokers import Brokers
    from harness.conformance.picture import Named
    from harness.conformance.steps import LocalStep, Schedule


class Topic:
    """One schedule's partition."""

    def __init__(self, brokers: Brokers, schedule: Schedule) -> None:
        """Store the parts; producers are made at their first use."""
        self._brokers = brokers
        self._schedule = schedule
        self._leader = schedule.replicas[0]
        self._replicas = schedule.replicas
        self._producers: dict[str, Producer] = {}

    @property
    def named(self) -> Named:
        """Names of the producers by their ids."""
        return {one.producer_id: name for name, one in self._producers.items() if one.producer_id >= 0}

    def _producer(self, name: str) -> Producer:
        runtime = self._brokers.runtime
        if name not in self._producers:
            to = Endpoint(
                topic=self._schedule.name,
                leader=lambda: runtime.address(self._leader),
                anyone=lambda: runtime.address(STAYING[0]),
                clock=self._brokers.clock,
            )
            transactional_id = f"{self._schedule.name}-{name}" if name in TRANSACTIONAL_ONES else None
            self._producers[name] = Producer(
                to, transactional_id=transactional_id, has_id=name != PLAIN, version=self._schedule.version
            )
        return self._producers[name]

    @singledispatchmethod
    def take(self, step: LocalStep) -> None:
        """Take a step of this partition. Raises `HarnessError`."""
        raise TypeError(f"{step!r} is no step of a partition")

    @take.register
    def _(self, step: Write) -> None:
        records = [(record.removeprefix("-").encode(), None if record[0] == "-" else b"v") for record in step.records]
        self._producer(step.producer).write(records, self._brokers.clock.time_ms())

    @take.register
    def _(self, step: End) -> None:
        self._producer(step.producer).end(step.outcome)

    @take.register
    def _(self, step: EndElsewhere) -> None:
        producer = self._producer(step.producer)
        producer.register()
        producer.end(step.outcome)

    @take.register
    def _(self, step: Fence) -> None:
        self._producer(step.producer).begin_anew()

    @take.register
    def _(self, step: Lead) -> None:
        self._replicas = (step.broker, *(one for one in self._replicas if one != step.broker))
        self._reassign()
        self._leader = step.broker

    def _reassign(self) -> None:
        orders = {(self._schedule.name, 0): self._replicas}
        control = self._brokers.control
        control.lead(orders)
        self._brokers.wait(lambda: control.leads(orders), f"{self._replicas[0]} to lead {self._schedule.name}")

    @take.register
    def _(self, step: DeleteRecords) -> None:
        Topic = DeleteRecordsRequest.DeleteRecordsTopic  # noqa: N806
        partition = Topic.DeleteRecordsPartition(partition_index=0, offset=step.before)
        request = DeleteRecordsRequest[2](
            topics=[Topic(name=self._schedule.name, partitions=[partition])], timeout_ms=TIMEOUT_MS
        )
        answer = wire.call(self._brokers.runtime.address(self._leader), request)
        for code in (p.error_code for topic in answer.topics for p in topic.partitions):
            if code:
                raise RefusedError(f"it is refused with {kafka.errors.for_code(code).__name__}")

    @take.register
    def _(self, _step: Join) -> None:
        self._replicas = (*self._replicas, LEAVES)
        self._brokers.control.lead({(self._schedule.name, 0): self._replicas})
        self._brokers.wait(
            lambda: all(
                set(one.isr) == set(one.replicas) == set(self._replicas)
                for one in self._brokers.control.states([self._schedule.name]).values()
            ),
            f"{LEAVES} to join {self._schedule.name}",
        )

    @take.register
    def _(self, _step: Rest) -> None:
        pass
