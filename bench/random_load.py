"""Steady writes to all partitions of a cluster while it is audited, by clients of both libraries, in their own process.

The process belongs to the block that started it: it ends once its pipe is closed, as by the death of its owner, and
after `LONGEST_S` at the latest. Each client has a thread.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from random_traffic import Traffic

from harness.clients import JAVA, LIBRDKAFKA, ClientError, find_client
from harness.clients.librdkafka import LibrdkafkaProducer
from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.kafka_api import TopicPartition
from harness.soak.evidence.client_log import ABORTED, COMMITTED, ClientLog, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from harness.clients import ClientSpec, LibraryProducer, MakeProducer
    from harness.host.clock import Clock

PERIOD_S = 0.05
DELETES = 1 / 3
PARTITIONS_A_TRANSACTION = 3
ABORTS = 0.3
CLIENTS = (*((LIBRDKAFKA, 0.075, 100),) * 6, *((JAVA, 0.025, 20),) * 2)
"""The transactional clients: library, share of all records, and records of a transaction. Calls to the Java client are
slow; brokers forget a client that pauses for longer than 1.5 s."""
PLAINLY = 0.5, 20
"""The share of records outside of transactions, and how many are written at once."""
LINGER = {"linger.ms": 50}
"""Without it librdkafka sends a request for each record."""
FIRST_NUMBER = 1_000_000_000
"""The numbers of writes and transactions begin here: none is that of another client."""
WARM_UP_S, LONGEST_S, END_S = 5.0, 600.0, 60.0


@dataclass
class Written:
    """The records and transactions of a load, and how many records were acknowledged a second; set at its end."""

    log: ClientLog
    records_s: float = 0.0


@contextmanager
def load(clients: ClientSpec, places: Sequence[TopicPartition], keys: int, records_s: float) -> Iterator[Written]:
    """Write at a rate until the block ends, which begins once clients have written for a while.

    Raises `HarnessError` where the process fails or does not end.
    """
    context, written = get_context("spawn"), Written(ClientLog())
    pipe, its_pipe = context.Pipe()
    process = context.Process(target=_write, args=(its_pipe, clients, places, keys, records_s))
    process.start()
    its_pipe.close()
    try:
        _receive(pipe)
        yield written
        pipe.send(None)
        written.log, written.records_s = _receive(pipe)
    finally:
        pipe.close()
        process.join(END_S)
        process.kill()


def _receive(pipe: Connection) -> Any:
    with suppress(EOFError):
        if pipe.poll(END_S):
            return pipe.recv()
    raise HarnessError("the process that writes the load failed, or does not answer")


def _write(
    pipe: Connection, clients: ClientSpec, places: Sequence[TopicPartition], keys: int, records_s: float
) -> None:
    """Write until the pipe has a message or is closed, and send the log of the clients and the rate."""
    own = replace(clients, log_path=clients.log_path.with_name("load.log"))
    with ExitStack() as owned:
        makers: dict[str, MakeProducer] = {
            JAVA: owned.enter_context(find_client(JAVA)(own)).producer,
            LIBRDKAFKA: lambda transactional_id: LibrdkafkaProducer(own.bootstrap, transactional_id, LINGER),
        }
        traffic = Traffic(random.Random(1), own.bootstrap, places, [], FIRST_NUMBER)  # noqa: S311  (it draws nothing)
        clock = RealClock()
        with Load(traffic, places, keys).running(clock, makers, records_s):
            began_s = clock.now_s()
            pipe.poll(WARM_UP_S)
            pipe.send(None)
            pipe.poll(LONGEST_S)
        acknowledged = sum(write.offset is not None for write in traffic.log.writes.values())
        pipe.send((traffic.log, acknowledged / (clock.now_s() - began_s)))


class Load:
    """Writes at a rate; half of the records are in transactions, one third are deletes.

    Keys are its own, so that it does not repair a replica that has diverged before.
    """

    def __init__(self, traffic: Traffic, places: Sequence[TopicPartition], keys: int) -> None:
        self._traffic, self._places, self._keys = traffic, places, keys
        self._chance = random.Random(1)  # noqa: S311  (it decides what is written)

    @contextmanager
    def running(self, clock: Clock, makers: Mapping[str, MakeProducer], records_s: float) -> Iterator[None]:
        """Write until the block ends. Raises `HarnessError` where a client has failed."""
        plain = makers[LIBRDKAFKA](None)
        steps = [_paced(lambda count: self._write_plainly(plain, count), records_s * PLAINLY[0], PLAINLY[1])]
        for number, (library, share, size) in enumerate(CLIENTS):
            write = self._transactions(f"load-{number}", makers[library], size)
            steps.append(_paced(write, records_s * share, size))
        routines = [clock.every(PERIOD_S, step, f"load {number}") for number, step in enumerate(steps)]
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

    def _transactions(self, transactional_id: str, make: MakeProducer, size: int) -> Callable[[int], None]:
        producer = make(transactional_id)
        producer.transact("init")

        def write(count: int) -> None:
            nonlocal producer
            for _ in range(count // size):
                transaction = self._traffic.new_transaction(transactional_id)
                try:
                    self._transact(producer, transaction, size)
                except ClientError:
                    with suppress(ClientError):
                        producer = make(transactional_id)
                        producer.transact("init")

        return write

    def _transact(self, producer: LibraryProducer, transaction: Transaction, size: int) -> None:
        producer.transact("begin")
        places = self._chance.choices(self._places, k=PARTITIONS_A_TRANSACTION)
        for number in range(size):
            self._send(producer, places[number % PARTITIONS_A_TRANSACTION], transaction.number)
        producer.flush()
        is_aborted = self._chance.random() < ABORTS
        producer.transact("abort" if is_aborted else "commit")
        transaction.outcome = ABORTED if is_aborted else COMMITTED

    def _send(self, producer: LibraryProducer, to: TopicPartition, transaction: int | None) -> None:
        key = f"load-{self._chance.randrange(self._keys)}"
        is_delete = self._chance.random() < DELETES
        self._traffic.send(producer, to, key, is_delete=is_delete, transaction=transaction)


def _paced(step: Callable[[int], None], records_s: float, size: int) -> Callable[[], None]:
    """Return an action that calls the step with the number of records due, a multiple of ``size``.

    At most one second is caught up.
    """
    last_s, due = time.monotonic(), 0.0

    def act() -> None:
        nonlocal last_s, due
        now_s = time.monotonic()
        due, last_s = min(due + (now_s - last_s) * records_s, max(records_s, size)), now_s
        count = int(due) - int(due) % size
        if count:
            due -= count
            step(count)

    return act
