"""The client libraries that workloads write with, one file each, in one table; and the reader at the end.

A client records every operation in the history. What is written is in `workloads`; requests that no client library
has are in `harness.kafka_api`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from harness.errors import UsageError
from harness.suggest import nearest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from harness.host.java import Java
    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.security import Security

OPERATION_TIMEOUT_S = 20.0
TRANSACTION_TIMEOUT_MS = 300_000
"""A transaction stays open while a broker leaves the ISR at its own pace; the brokers' bound is 15 minutes."""

Answered: TypeAlias = Callable[[str | None, int], None]
"""Told once a record: what went wrong (None if nothing), and the record's offset, or `NO_OFFSET`."""

NO_OFFSET: Final = -1
"""Of a record that failed, and of one that the broker took for a duplicate whose offset it had forgotten: it is written
(``Sender.completeBatch``: ``DUPLICATE_SEQUENCE_NUMBER`` is a success)."""


class ClientError(Exception):
    """An operation that failed. ``certainly``: it did not happen; otherwise it may have."""

    def __init__(self, text: str, *, certainly: bool = False) -> None:
        """Return the error as the library worded it."""
        super().__init__(text)
        self.certainly = certainly


class LibraryProducer(Protocol):
    """A producer of one library. Every method but `send` blocks, for `OPERATION_TIMEOUT_S` at most."""

    def init_transactions(self) -> None:
        """Obtain a producer id. Raises `ClientError`."""

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises `ClientError`."""

    def commit_transaction(self) -> None:
        """Commit it. Raises `ClientError`."""

    def abort_transaction(self) -> None:
        """Abort it. Raises `ClientError`."""

    def send(
        self,
        to: TopicPartition,
        key: str | bytes,
        value: str | None,
        headers: list[tuple[str, bytes]],
        answered: Answered,
    ) -> None:
        """Send a record; ``answered`` is called at the latest in `flush`. Raises `ClientError`."""

    def flush(self) -> int:
        """Wait for the answers to all that was sent; return how many did not come."""


class OffsetsProducer(LibraryProducer, Protocol):
    """A transactional producer that commits offsets of groups, too (KIP-447)."""

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group as part of the open transaction. Raises `ClientError`."""


MakeProducer: TypeAlias = Callable[[str | None], LibraryProducer]
"""Makes a producer; transactional where a transactional id is given."""


class GroupConsumer(Protocol):
    """A read_committed member of a group, from the offsets that the group has committed, until `close`."""

    def poll(self, timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        """Return partition and offset of what is delivered next. Raises `ClientError`."""

    def close(self) -> None:
        """Leave the group, committing nothing."""


class LibraryGroups(Protocol):
    """What a library does with consumer groups. Its methods block, for `OPERATION_TIMEOUT_S` at most."""

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets as a consumer that is assigned its partitions. Raises `ClientError`."""

    def delete(self, group: str) -> None:
        """Delete a group without members. Raises `ClientError`."""

    def producer(self, transactional_id: str) -> OffsetsProducer:
        """Return a transactional producer."""

    def consumer(self, group: str, topic: str, protocol: str) -> GroupConsumer:
        """Return a consumer that joins the group; a partition without an offset is read from its start."""


@dataclass(frozen=True)
class Library:
    """An open library. ``groups``: None where it has no consumer groups.

    ``idempotent`` makes a producer that is idempotent outside of transactions, too; None where it has none.
    ``once`` makes one that is not idempotent and sends each record once; None where ``producer`` does that anyway. A
    record that is sent again may have been appended before, and its copies may come after its acknowledgement.
    """

    producer: MakeProducer
    groups: LibraryGroups | None = None
    idempotent: Callable[[], LibraryProducer] | None = None
    once: Callable[[], LibraryProducer] | None = None


@dataclass(frozen=True)
class ClientSpec:
    """What a library needs: where brokers are; for Java its runtime, jars, and where it may write.

    ``classpath`` is empty for a library that needs no jars. ``security``: how to log in, where brokers ask for that.
    """

    run_id: str
    bootstrap: str
    java: Java
    classpath: str
    work_dir: Path
    log_path: Path
    security: Security | None = None


@dataclass(frozen=True)
class ClientLibrary:
    """One library: what opens it, and whether it needs the brokers' jars for that."""

    opened: Callable[[ClientSpec], AbstractContextManager[Library]]
    needs_jars: bool = False


CLIENTS: Final = ("librdkafka", "java")


def find_client(name: str) -> ClientLibrary:
    """Return the library of that name. Raises `UsageError` with the nearest names."""
    from harness.clients import java, librdkafka  # noqa: PLC0415  (they import this module)

    if name not in CLIENTS:
        raise UsageError(nearest("client", name, CLIENTS))
    return ClientLibrary(java.opened, needs_jars=True) if name == "java" else ClientLibrary(librdkafka.opened)
