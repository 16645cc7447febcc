"""Does a broker take the late marker of a former coordinator for the marker of a new transaction? On a real broker.

    python bench/late_marker.py --version 4.4.0
    python bench/late_marker.py --version 4.4.0 --client java

The coordinator moves to a new epoch between two transactions of a producer; here its broker restarts. In a third
transaction, the bench sends the first COMMIT once more, with the first epoch of the coordinator. A network that delays
the request of a former coordinator has the same effect. ``ProducerAppendInfo.checkCoordinatorEpoch`` rejects the marker
while the broker knows the producer. Once the producer has expired, the first record of the transaction makes the broker
know it again, but without an epoch of the coordinator: the COMMIT ends the transaction, and the producer's abort comes
too late. librdkafka's transactions are of version 1; with version 2 (KIP-890, ``java`` on 4.x) each transaction has its
own producer epoch, and the broker rejects the marker in both cases. Found by a soak (4.4.0, seed 465).

Prints what the broker answers, and which records a read_committed consumer gets; exits 1 if one of them was aborted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

import click
from confluent_kafka import Producer
from kafka.protocol.producer import WriteTxnMarkersRequest
from known_bugs_rig import SOURCE, booted

from harness.broker_files.segments.batches import Batch, iter_records
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.kafka_api.connection import ask
from harness.kafka_api.messages import RefusedError, acknowledged, numbers_per_topic
from harness.kafka_api.transactions import describe_producers

if TYPE_CHECKING:
    from collections.abc import Callable

    from known_bugs_rig import Bed

BROKER, TP = 1, ("t", 0)
SETTINGS = {
    "producer.id.expiration.ms": "2000",
    "producer.id.expiration.check.interval.ms": "100",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class Transactions(Protocol):
    """A transactional producer of a library; every method blocks until the broker has answered."""

    def write(self, key: str) -> None:
        """Begin a transaction with a record."""

    def end(self, *, commits: bool) -> None:
        """End the transaction."""


class LibrdkafkaTransactions:
    """Implements `Transactions`: version 1."""

    def __init__(self, bed: Bed) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bed.client.bootstrap, "transactional.id": "writer", "log_level": 0}
        )
        self._producer.init_transactions()

    def write(self, key: str) -> None:
        """Begin a transaction with a record."""
        self._producer.begin_transaction()
        self._producer.produce(TP[0], key=key, value="v", partition=TP[1])
        self._producer.flush()

    def end(self, *, commits: bool) -> None:
        """End the transaction."""
        (self._producer.commit_transaction if commits else self._producer.abort_transaction)()


class JavaTransactions:
    """Implements `Transactions`: version 2 with brokers from 4.0 on."""

    def __init__(self, bed: Bed) -> None:
        self._bed, self._producer = bed, bed.producer(transactional_id="writer")
        self._producer.initTransactions()

    def write(self, key: str) -> None:
        """Begin a transaction with a record."""
        self._producer.beginTransaction()
        self._producer.send(self._bed.record(TP[0], key, "v")).get()

    def end(self, *, commits: bool) -> None:
        """End the transaction."""
        (self._producer.commitTransaction if commits else self._producer.abortTransaction)()


CLIENTS: dict[str, Callable[[Bed], Transactions]] = {"librdkafka": LibrdkafkaTransactions, "java": JavaTransactions}


def marker(bed: Bed, number: int) -> Batch:
    """Return the nth marker of the partition, from 1, once it is written: a client does not wait for markers."""
    markers: list[Batch] = []

    def is_written() -> bool:
        markers[:] = [batch for batch in bed.read(BROKER, TP).batches if batch.is_control]
        return len(markers) >= number

    bed.cluster.wait(is_written, f"marker {number}")
    return markers[number - 1]


def coordinator_epoch(batch: Batch) -> int:
    """Return the coordinator's epoch in a marker: the 32 bits after its version (``EndTransactionMarker``)."""
    (record,) = iter_records(batch, source=SOURCE)
    return int.from_bytes((record.value or b"")[2:6], "big")


def send_again(bed: Bed, commit: Batch) -> str:
    """Send a COMMIT marker again, as its coordinator would; return the broker's answer."""
    again: dict[str, Any] = {
        "producer_id": commit.producer_id,
        "producer_epoch": commit.producer_epoch,
        "transaction_result": True,
        "topics": numbers_per_topic([TP]),
        "coordinator_epoch": coordinator_epoch(commit),
    }
    try:
        ask(bed.cluster.runtime.address(BROKER), acknowledged(WriteTxnMarkersRequest, 1, "rejected", markers=[again]))
    except RefusedError as error:
        return str(error)
    return "accepted"


def late_markers(bed: Bed, client: str) -> dict[str, str]:
    """Go the whole way; return the answers to the late marker, by the key of the transaction that was open."""
    bed.create_topic(TP[0], (BROKER,), {})
    transactions = CLIENTS[client](bed)
    transactions.write("first")
    transactions.end(commits=True)
    first = marker(bed, 1)
    bed.restart(BROKER)
    transactions.write("second")
    transactions.end(commits=True)
    if coordinator_epoch(marker(bed, 2)) == coordinator_epoch(first):
        sys.exit("the coordinator has the same epoch as before the restart")
    transactions.write("aborted, of a known producer")
    answers = {"known producer": send_again(bed, first)}
    transactions.end(commits=False)
    address = bed.cluster.runtime.address(BROKER)
    bed.cluster.wait(lambda: not ask(address, describe_producers([TP]))[TP], "the producer to expire")
    transactions.write("aborted, of a forgotten producer")
    answers["forgotten producer"] = send_again(bed, first)
    transactions.end(commits=False)
    return answers


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--client", default="librdkafka", show_default=True, type=click.Choice(list(CLIENTS)))
def main(version: str, client: str) -> None:
    """Go the way once."""
    with booted(version, (BROKER,), SETTINGS) as bed:
        answers = late_markers(bed, client)
        keys = bed.served(TP)
    for state, answer in answers.items():
        print(f"the late COMMIT in a transaction of a {state}: {answer}")
    print(f"a read_committed consumer gets: {'; '.join(keys)}")
    sys.exit(EXIT_ANOMALY if any(key.startswith("aborted") for key in keys) else EXIT_CLEAN)


if __name__ == "__main__":
    main()
