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
from typing import TYPE_CHECKING, Any

import click
from kafka.protocol.producer import WriteTxnMarkersRequest
from known_bugs_rig import SOURCE, booted

from harness.broker_files.segments.batches import Batch, iter_records
from harness.clients import CLIENTS, LIBRDKAFKA, ClientError, LibraryProducer, find_client
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.kafka_api.connection import ask
from harness.kafka_api.messages import RefusedError, acknowledged, numbers_per_topic
from harness.kafka_api.transactions import describe_producers

if TYPE_CHECKING:
    from known_bugs_rig import Bed

BROKER, TP = 1, ("t", 0)
SETTINGS = {
    "producer.id.expiration.ms": "2000",
    "producer.id.expiration.check.interval.ms": "100",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def write(producer: LibraryProducer, key: str) -> None:
    """Begin a transaction with a record."""
    producer.transact("begin")
    producer.send(TP, key, "v", [], raise_if_failed)
    producer.flush()


def raise_if_failed(error: ClientError | None, _offset: int) -> None:
    """Raise the error of a record that was not written."""
    if error is not None:
        raise error


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


def late_markers(bed: Bed, producer: LibraryProducer) -> dict[str, str]:
    """Go the whole way; return the answers to the late marker, by the key of the transaction that was open."""
    bed.create_topic(TP[0], (BROKER,), {})
    producer.transact("init")
    write(producer, "first")
    producer.transact("commit")
    first = marker(bed, 1)
    bed.restart(BROKER)
    write(producer, "second")
    producer.transact("commit")
    if coordinator_epoch(marker(bed, 2)) == coordinator_epoch(first):
        sys.exit("the coordinator has the same epoch as before the restart")
    write(producer, "aborted, of a known producer")
    answers = {"known producer": send_again(bed, first)}
    producer.transact("abort")
    address = bed.cluster.runtime.address(BROKER)
    bed.cluster.wait(lambda: not ask(address, describe_producers([TP]))[TP], "the producer to expire")
    write(producer, "aborted, of a forgotten producer")
    answers["forgotten producer"] = send_again(bed, first)
    producer.transact("abort")
    return answers


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--client", default=LIBRDKAFKA, show_default=True, type=click.Choice(CLIENTS))
def main(version: str, client: str) -> None:
    """Go the way once."""
    with booted(version, (BROKER,), SETTINGS) as bed, find_client(client)(bed.client) as library:
        answers = late_markers(bed, library.producer("writer"))
        keys = bed.served(TP)
    for state, answer in answers.items():
        print(f"the late COMMIT in a transaction of a {state}: {answer}")
    print(f"a read_committed consumer gets: {'; '.join(keys)}")
    sys.exit(EXIT_ANOMALY if any(key.startswith("aborted") for key in keys) else EXIT_CLEAN)


if __name__ == "__main__":
    main()
