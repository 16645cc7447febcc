"""Random writes and transactions on a real cluster, and what their clients know of each.

Records carry the number of their write in a header.
"""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from harness.clients import ClientError
from harness.clients.librdkafka import LibrdkafkaProducer
from harness.kafka_api import TopicPartition
from harness.run_folder.history import HEADER_OP
from harness.soak.evidence.client_log import ABORTED, COMMITTED, ClientLog, Transaction, WrittenRecord

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from harness.clients import LibraryProducer, MakeProducer

RESTARTED = "restarted"
"""Another end of a transaction: its client dies, and its next start aborts the open transaction (KIP-98)."""
KEYS = tuple(f"k{number}" for number in range(4))
FILLER = "filler"
HOME_PARTITIONS = 4
"""A transactional producer returns to the same few partitions, so that its later marker meets a missed one."""
MOST_WRITES = 5


def save_client_log(log: ClientLog, path: Path) -> None:
    """Write the records and transactions of clients to a file."""
    rows = {name: [asdict(row) for row in getattr(log, name).values()] for name in ("writes", "transactions")}
    path.write_text(json.dumps(rows))


def load_client_log(path: Path) -> ClientLog:
    """Read a file of `save_client_log`."""
    rows = json.loads(path.read_text())
    return ClientLog(
        {row["number"]: WrittenRecord(**row) for row in rows["writes"]},
        {row["number"]: Transaction(**row) for row in rows["transactions"]},
    )


@dataclass
class _Session:
    """A transactional producer, the partitions that it writes to, and its open transaction."""

    transactional_id: str
    make: MakeProducer
    producer: LibraryProducer
    home: Sequence[TopicPartition]
    open: Transaction | None = None


class Traffic:
    """Clients that execute random operations on request, in one thread; `fill` and `send` may run in other threads."""

    def __init__(
        self,
        chance: random.Random,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        makers: Sequence[MakeProducer],
        first_number: int = 1,
    ) -> None:
        """Connect a plain, an idempotent and a filling producer, and a transactional one for each of ``makers``.

        ``first_number``: from which on writes and transactions are numbered.
        """
        self.log = ClientLog()
        self.fills = 0
        """The number of filler records of each partition."""
        self._numbers = itertools.count(first_number)
        self._chance = chance
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._filler = LibrdkafkaProducer(bootstrap, None, {})
        self._plain = [LibrdkafkaProducer(bootstrap, None, {}), self._idempotent()]
        self._sessions = [self._session(f"traffic-{n}", make) for n, make in enumerate(makers)]

    def fill(self) -> None:
        """Write a filler record to each partition: cleaners pass only where something new was written."""
        for tp in self._partitions:
            self.send(self._filler, tp, FILLER, is_delete=False, transaction=None)
        self._filler.flush()
        self.fills += 1

    def write(self, count: int, *, deletes: float) -> None:
        """Write so many records outside of transactions, this fraction of them deletes, and wait for the answers."""
        written = [self._write(deletes) for _ in range(count)]
        for producer in self._plain:
            producer.flush()
        if any(write.offset is None for write in written):
            # An idempotent producer that brokers have forgotten fails for good (OUT_OF_ORDER_SEQUENCE_NUMBER).
            self._plain[1] = self._idempotent()

    def _write(self, deletes: float) -> WrittenRecord:
        producer = self._chance.choice(self._plain)
        tp, key = self._chance.choice(self._partitions), self._chance.choice(KEYS)
        is_delete = self._chance.random() < deletes
        return self.send(producer, tp, key, is_delete=is_delete, transaction=None)

    def begin(self, likelihood: float) -> None:
        """Have each idle transactional producer begin a transaction with some records, or not."""
        for session in self._sessions:
            if session.open is None and self._chance.random() < likelihood:
                self._begin(session)

    def end(self, likelihood: float) -> None:
        """Have each open transaction committed, aborted, or aborted by a new start of its client, or left open."""
        for session in self._sessions:
            if session.open is not None and self._chance.random() < likelihood:
                how = self._chance.choices((COMMITTED, ABORTED, RESTARTED), (5, 4, 1))[0]
                self._end(session, session.open, how)

    def _idempotent(self) -> LibrdkafkaProducer:
        return LibrdkafkaProducer(self._bootstrap, None, {"enable.idempotence": "true"})

    def _session(self, transactional_id: str, make: MakeProducer) -> _Session:
        home = self._chance.sample(self._partitions, min(HOME_PARTITIONS, len(self._partitions)))
        session = _Session(transactional_id, make, make(transactional_id), home)
        session.producer.transact("init")
        return session

    def new_transaction(self, transactional_id: str) -> Transaction:
        """Note a transaction that is about to begin."""
        transaction = Transaction(next(self._numbers), transactional_id)
        self.log.transactions[transaction.number] = transaction
        return transaction

    def _begin(self, session: _Session) -> None:
        session.open = transaction = self.new_transaction(session.transactional_id)
        try:
            session.producer.transact("begin")
            for _ in range(self._chance.randint(1, MOST_WRITES)):
                tp, key = self._chance.choice(session.home), self._chance.choice(KEYS)
                is_delete = self._chance.random() < 0.4  # noqa: PLR2004
                self.send(session.producer, tp, key, is_delete=is_delete, transaction=transaction.number)
            session.producer.flush()
        except ClientError:
            self._renew(session)

    def _end(self, session: _Session, transaction: Transaction, how: str) -> None:
        try:
            if how == COMMITTED:
                session.producer.transact("commit")
            elif how == ABORTED:
                session.producer.transact("abort")
            else:
                # It bumps the producer epoch: a marker in the next epoch, also in transactions v1.
                self._renew(session)
            transaction.outcome = ABORTED if how == RESTARTED else how
            session.open = None
        except ClientError as error:
            if error.certainly:
                with suppress(ClientError):
                    session.producer.transact("abort")
                    transaction.outcome = ABORTED
            self._renew(session)

    def _renew(self, session: _Session) -> None:
        """Continue with a new producer of the same transactional id, which ends the old one's open transaction."""
        session.open = None
        session.producer = session.make(session.transactional_id)
        session.producer.transact("init")

    def send(
        self, producer: LibraryProducer, to: TopicPartition, key: str, *, is_delete: bool, transaction: int | None
    ) -> WrittenRecord:
        """Send a record, and note its acknowledgement; where the library refuses it, it stays unknown."""
        write = WrittenRecord(next(self._numbers), *to, key, is_delete, transaction)
        self.log.writes[write.number] = write

        def answered(error: ClientError | None, offset: int) -> None:
            if error is None:
                write.offset = offset

        number = str(write.number)
        with suppress(KafkaException):
            producer.send(to, key, None if is_delete else number, [(HEADER_OP, number.encode())], answered)
        return write
