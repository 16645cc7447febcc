"""One schedule's partition on real brokers, and its producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kafka.errors
from kafka.protocol.admin import DeleteRecordsRequest

from harness.brokers.protocol import wire
from harness.conformance.producer import TIMEOUT_MS, Endpoint, Producer, RefusedError
from harness.conformance.schedules import STAYING
from models.steps import keys_and_values
from models.world import ABSENT, OUTCOMES, PLAIN, PRODUCERS

if TYPE_CHECKING:
    from harness.conformance.brokers import Brokers
    from harness.conformance.picture import Named
    from harness.conformance.schedules import Schedule


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
            transactional_id = f"{self._schedule.name}-{name}" if name in PRODUCERS else None
            self._producers[name] = Producer(
                to, transactional_id=transactional_id, has_id=name != PLAIN, version=self._schedule.version
            )
        return self._producers[name]

    def take(self, step: str) -> None:
        """Take a step of this partition (`models.steps`). Raises `HarnessError`."""
        match step.split():
            case [producer, "writes", *records]:
                self._producer(producer).write(keys_and_values(records), self._brokers.clock.time_ms())
            case [producer, verb] if verb in OUTCOMES:
                self._producer(producer).end(OUTCOMES[verb])
            case [producer, verb, "having", "written", "nothing", "here"]:
                self._producer(producer).register()
                self._producer(producer).end(OUTCOMES[verb.removesuffix(",")])
            case [producer, "begins", "anew,", "and", "is", "aborted"]:
                self._producer(producer).begin_anew()
            case [broker, "leads"]:
                self._lead(int(broker))
            case ["records", "before", offset, "are", "deleted"]:
                self._delete_records(int(offset))
            case [_, "joins"]:
                self._join()
            case ["rest"]:
                pass
            case _:
                raise ValueError(f"{step!r} is no step of a partition")

    def _lead(self, broker: int) -> None:
        self._replicas = (broker, *(one for one in self._replicas if one != broker))
        orders = {(self._schedule.name, 0): self._replicas}
        control = self._brokers.control
        control.lead(orders)
        self._brokers.wait(lambda: control.leads(orders), f"{broker} to lead {self._schedule.name}")
        self._leader = broker

    def _delete_records(self, before: int) -> None:
        Topic = DeleteRecordsRequest.DeleteRecordsTopic  # noqa: N806
        partition = Topic.DeleteRecordsPartition(partition_index=0, offset=before)
        request = DeleteRecordsRequest[2](
            topics=[Topic(name=self._schedule.name, partitions=[partition])], timeout_ms=TIMEOUT_MS
        )
        answer = wire.call(self._brokers.runtime.address(self._leader), request)
        for code in (p.error_code for topic in answer.topics for p in topic.partitions):
            if code:
                raise RefusedError(f"it is refused with {kafka.errors.for_code(code).__name__}")

    def _join(self) -> None:
        self._replicas = (*self._replicas, ABSENT)
        self._brokers.control.lead({(self._schedule.name, 0): self._replicas})
        self._brokers.wait(
            lambda: all(
                set(one.isr) == set(one.replicas) == set(self._replicas)
                for one in self._brokers.control.states([self._schedule.name]).values()
            ),
            f"{ABSENT} to join {self._schedule.name}",
        )
