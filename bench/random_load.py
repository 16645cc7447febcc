"""Steady writes to all partitions of a cluster while it is audited, by clients of both libraries, each in a thread."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from harness.clients import ClientError
from harness.kafka_api import TopicPartition
from harness.soak.evidence.client_log import ABORTED, COMMITTED, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from random_traffic import Traffic

    from harness.clients import LibraryProducer, MakeProducer
    from harness.host.clock import Clock

PERIOD_S = 0.05
DELETES = 1 / 3
RECORDS_A_TRANSACTION = 20
PARTITIONS_A_TRANSACTION = 3
ABORTS = 0.3
CLIENTS = (("librdkafka", 0.15), ("librdkafka", 0.15), ("librdkafka", 0.15), ("java", 0.05))
"""The transactional clients: library, and share of all records. Calls to the Java client are slow."""


class Load:
    """Writes at a rate; half of the records are in transactions, one third are deletes.

    Keys are its own, so that it does not repair a replica that has diverged before. ``sent``: how many records so far.
    """

    def __init__(self, traffic: Traffic, places: Sequence[TopicPartition], keys: int) -> None:
        self.sent = 0
        self._traffic, self._places, self._keys = traffic, places, keys
        self._chance = random.Random(1)  # noqa: S311  (it decides what is written)

    @contextmanager
    def running(self, clock: Clock, makers: Mapping[str, MakeProducer], records_s: float) -> Iterator[None]:
        """Write until the block ends. Raises `HarnessError` where a client has failed."""
        plain = self._traffic.plain_producer()
        steps: list[Callable[[int], None]] = [lambda count: self._write_plainly(plain, count)]
        for number, (library, _) in enumerate(CLIENTS):
            steps.append(self._transactions(f"load-{number}", makers[library]))
        shares = [0.5, *(share for _, share in CLIENTS)]
        routines = [
            clock.every(PERIOD_S, _paced(step, records_s * share), f"load {number}")
            for number, (step, share) in enumerate(zip(steps, shares, strict=True))
        ]
        try:
            yield
        finally:
            for routine in routines:
                routine.stop()
            for routine in routines:
                routine.raise_if_failed()

    def _write_plainly(self, producer: LibraryProducer, count: int) -> None:
        for _ in range(count):
            self._send(producer, self._chance.choice(self._places), None)
        producer.flush()

    def _transactions(self, transactional_id: str, make: MakeProducer) -> Callable[[int], None]:
        producer = make(transactional_id)
        producer.transact("init")

        def write(count: int) -> None:
            nonlocal producer
            for _ in range(count // RECORDS_A_TRANSACTION):
                transaction = self._traffic.new_transaction(transactional_id)
                try:
                    self._transact(producer, transaction)
                except ClientError:
                    with suppress(ClientError):
                        producer = make(transactional_id)
                        producer.transact("init")

        return write

    def _transact(self, producer: LibraryProducer, transaction: Transaction) -> None:
        producer.transact("begin")
        places = self._chance.choices(self._places, k=PARTITIONS_A_TRANSACTION)
        for number in range(RECORDS_A_TRANSACTION):
            self._send(producer, places[number % PARTITIONS_A_TRANSACTION], transaction.number)
        producer.flush()
        is_aborted = self._chance.random() < ABORTS
        producer.transact("abort" if is_aborted else "commit")
        transaction.outcome = ABORTED if is_aborted else COMMITTED

    def _send(self, producer: LibraryProducer, to: TopicPartition, transaction: int | None) -> None:
        key = f"load-{self._chance.randrange(self._keys)}"
        is_delete = self._chance.random() < DELETES
        self._traffic.send(producer, to, key, is_delete=is_delete, transaction=transaction)
        self.sent += 1


def _paced(step: Callable[[int], None], records_s: float) -> Callable[[], None]:
    """Return an action that calls the step with the number of records that are due; a slow step is not caught up."""
    last_s, due = time.monotonic(), 0.0

    def act() -> None:
        nonlocal last_s, due
        now_s = time.monotonic()
        due, last_s = min(due + (now_s - last_s) * records_s, records_s), now_s
        count = int(due) - int(due) % RECORDS_A_TRANSACTION
        if count:
            due -= count
            step(count)

    return act
