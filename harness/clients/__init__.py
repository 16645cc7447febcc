"""The client libraries that workloads write with, one file each, and the consumer at the end of a run.

A client records every operation in the history. `harness.kafka_api` has the requests that libraries do not support.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from harness.errors import HarnessError
from harness.host.java import Java
from harness.kafka_api import TopicPartition
from harness.suggest import known_name

if TYPE_CHECKING:
    from harness.kafka_api.security import Security

OPERATION_TIMEOUT_S = 20.0
TRANSACTION_TIMEOUT_MS = 300_000
"""A transaction stays open while a broker leaves the ISR at its own pace; the brokers' bound is 15 minutes."""

TIMED_OUT: Final = "TIMED_OUT"
INVALID_TXN_STATE: Final = "INVALID_TXN_STATE"
UNKNOWN_SERVER_ERROR: Final = "UNKNOWN_SERVER_ERROR"
ALSO_OF_SLOW_BROKERS: Final = frozenset(
    {
        "CONCURRENT_TRANSACTIONS",  # the former transaction has not ended, until the time-out of the client's retries
        INVALID_TXN_STATE,  # an open transaction is unknown; or the broker has forgotten that it verified it (KIP-890)
        "GROUP_ID_NOT_FOUND",  # of a group with offsets; or it has just been deleted, and the answer was lost
        "OUT_OF_ORDER_SEQUENCE_NUMBER",  # the producer's last batch is unknown
        TIMED_OUT,  # an operation was not acknowledged in `OPERATION_TIMEOUT_S`
    }
)
"""Without a fault, no valid operation ends with these errors of brokers if all brokers answer in time."""
# A broker met an exception that its code does not handle, or does not know the producer of an open transaction.
REFUSALS: Final = ALSO_OF_SLOW_BROKERS | {UNKNOWN_SERVER_ERROR, "INVALID_PRODUCER_ID_MAPPING"}
"""Without a fault, no valid operation ends with the other two errors at all."""

NO_OFFSET: Final = -1
"""The offset of a failed record, and of a record that the broker took for a duplicate with an unknown offset: it is
written (``Sender.completeBatch``: ``DUPLICATE_SEQUENCE_NUMBER`` is a success)."""

Headers: TypeAlias = list[tuple[str, bytes]]
TransactionStep: TypeAlias = Literal["init", "begin", "commit", "abort"]


class ClientError(HarnessError):
    """An operation that failed. ``certainly``: it had no effect; otherwise it may have had one.

    ``refusal``: one of `REFUSALS`, or "" for other errors.
    """

    def __init__(self, text: str, *, certainly: bool = False, refusal: str = "") -> None:
        super().__init__(text)
        self.certainly, self.refusal = certainly, refusal


Answered: TypeAlias = Callable[[ClientError | None, int], None]
"""Called once for each record with the error (None without one) and the record's offset, or `NO_OFFSET`."""


class LibraryProducer(Protocol):
    """A producer of one library. Every method but `send` blocks, for `OPERATION_TIMEOUT_S` at most."""

    def transact(self, step: TransactionStep) -> None:
        """Obtain a producer id and fence earlier owners (init), begin or end a transaction. Raises `ClientError`."""

    def send(self, to: TopicPartition, key: str | bytes, value: str | None, headers: Headers, reply: Answered) -> None:
        """Send a record; ``reply`` is called at the latest in `flush`. Raises `ClientError`."""

    def flush(self) -> int:
        """Wait for the answers to all records; return the number of missing answers."""


class GroupsProducer(LibraryProducer, Protocol):
    """A transactional producer that commits offsets of groups, too (KIP-447)."""

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group as part of the open transaction. Raises `ClientError`."""


MakeProducer: TypeAlias = Callable[[str | None], LibraryProducer]
"""Makes a producer, which is transactional if a transactional id is given."""


class GroupConsumer(Protocol):
    """A read_committed member of a group, from the group's committed offsets, until `close`."""

    def poll(self, timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        """Return partition and offset of the next records. Raises `ClientError`."""

    def close(self) -> None:
        """Leave the group without a commit."""


class LibraryGroups(Protocol):
    """The operations of a library on consumer groups. They block, for `OPERATION_TIMEOUT_S` at most."""

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets as a consumer that is assigned its partitions. Raises `ClientError`."""

    def delete(self, group: str) -> None:
        """Delete a group without members. Raises `ClientError`."""

    def producer(self, transactional_id: str) -> GroupsProducer:
        """Return a transactional producer."""

    def consumer(self, group: str, topic: str, protocol: str) -> GroupConsumer:
        """Return a consumer that joins the group; it reads a partition without an offset from its start."""


@dataclass(frozen=True)
class Library:
    """An open library. ``groups``: None if it does not support consumer groups.

    ``idempotent``: makes a producer that is idempotent outside of transactions; None if there is none. ``once``: makes
    a producer that is not idempotent and sends each record once, as copies of a record may follow its acknowledgement;
    None if ``producer`` does.
    """

    producer: MakeProducer
    groups: LibraryGroups | None = None
    idempotent: Callable[[], LibraryProducer] | None = None
    once: Callable[[], LibraryProducer] | None = None


@dataclass(frozen=True)
class ClientSpec:
    """The brokers' addresses and logins; for Java the runtime, a work directory and the jars, otherwise empty."""

    run_id: str
    bootstrap: str
    java: Java
    classpath: str
    work_dir: Path
    log_path: Path
    security: Security | None = None


OpenLibrary: TypeAlias = "Callable[[ClientSpec], AbstractContextManager[Library]]"

LIBRDKAFKA, JAVA = CLIENTS = ("librdkafka", "java")
"""Each has a module with ``opened``. The Java client needs the brokers' jars."""


def find_client(name: str) -> OpenLibrary:
    """Return the function that opens the library with a name. Raises `UsageError` with the nearest names."""
    opened: OpenLibrary = import_module(f"{__name__}.{known_name('client', name, CLIENTS)}").opened
    return opened
