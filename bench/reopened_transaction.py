"""Does a truncation open a transaction again that had ended? On real brokers.

    python bench/reopened_transaction.py --version 4.4.0
    python bench/reopened_transaction.py --version 4.4.0 --first abort

The leader, broker 2, writes a record of a transaction, rolls its segment, and writes the marker: the producer snapshot
between both has the transaction open. The producer expires. Broker 2 then writes a record that broker 1 does not get,
is paused, and becomes the follower of broker 1: it truncates its log behind the marker. There,
``UnifiedLog.rebuildProducerState`` loads the last snapshot, and does not replay what follows it, as there was no
producer before the truncation. So the transaction is open again on broker 2, until the next marker of its producer ends
it there once more. If the first transaction was committed, an aborted one of the same producer takes the committed
record with it. If it was aborted, too, its marker ends both for consumers and for the cleaner: the aborted record of
the second one is delivered. Found by soaks (4.4.0, seeds 2, 12, 639 and 757).

Prints the last stable offset of each replica, and what a read_committed consumer is delivered by each as the leader,
after that transaction; exits 1 where an offset is not the high watermark, the committed record is not delivered, or an
aborted one is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from known_bugs_rig import booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN

if TYPE_CHECKING:
    from known_bugs_rig import Bed

CONTROLLER, FOLLOWS, LEADS = 3, 1, 2
TP = ("t", 0)
ROLL_MS, LONG_MS = 500, 3_600_000
SETTINGS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "60000",
    "producer.id.expiration.ms": "500",
    "producer.id.expiration.check.interval.ms": "100",
    "auto.leader.rebalance.enable": "false",
}
FIRST, SECOND = "first", "second"
"""Keys of the transactions."""
FETCH_WAIT_S = 1.0
"""Twice ``replica.fetch.wait.max.ms``: after that time the last, empty answer of a paused follower is waiting."""


def stable_offsets(bed: Bed, *, is_commit: bool) -> dict[int, tuple[int, int]]:
    """Go the whole way; return last stable offset and high watermark by broker."""
    bed.create_topic(TP[0], (LEADS, FOLLOWS), {"segment.ms": str(ROLL_MS)})
    producer = bed.producer(transactional_id="writer")
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(bed.record(TP[0], FIRST, "v")).get()
    began_s = bed.cluster.clock.now_s()
    bed.cluster.wait(
        lambda: bed.cluster.clock.now_s() > began_s + 2 * ROLL_MS / 1000, "the segment to be old enough to roll"
    )
    end(producer, is_commit=is_commit)
    bed.cluster.admin.alter_topics([TP[0]], {"segment.ms": str(LONG_MS)})
    producer.close()
    bed.cluster.wait(
        lambda: bed.read(FOLLOWS, TP).high_watermark == bed.read(LEADS, TP).log_end, "the marker to be replicated"
    )
    bed.cluster.wait(lambda: not producers(bed), "the producer to expire")
    plain = bed.producer(acks="1", enable_idempotence="false")
    plain.send(bed.record(TP[0], "replicated", "v")).get()
    bed.cluster.wait(
        lambda: bed.read(FOLLOWS, TP).high_watermark == bed.read(LEADS, TP).log_end, "that to be replicated"
    )
    bed.cluster.runtime.pause(FOLLOWS)
    paused_s = bed.cluster.clock.now_s()
    bed.cluster.wait(
        lambda: bed.cluster.clock.now_s() > paused_s + FETCH_WAIT_S, "the follower's last fetch to be answered"
    )
    plain.send(bed.record(TP[0], "not replicated", "v")).get()
    bed.cluster.runtime.pause(LEADS)
    bed.cluster.runtime.resume(FOLLOWS)
    # Until it knows that itself, a fetch of its own may be answered as soon as broker 2 goes on.
    bed.cluster.wait(lambda: f"Leader {TP[0]}-{TP[1]} " in bed.log_text(FOLLOWS), "broker 1 to lead")
    bed.cluster.runtime.resume(LEADS)
    bed.cluster.wait(
        lambda: f"Truncating partition {TP[0]}-{TP[1]} " in bed.log_text(LEADS), "broker 2 to truncate its log"
    )
    bed.cluster.wait(lambda: bed.isr(TP) == {FOLLOWS, LEADS}, "broker 2 to be in the ISR again")
    plain.send(bed.record(TP[0], "after", "v")).get()

    read: dict[int, Any] = {}

    def is_level() -> bool:
        read.update({broker: bed.read(broker, TP) for broker in (FOLLOWS, LEADS)})
        return len({offset for one in read.values() for offset in (one.log_end, one.high_watermark)}) == 1

    bed.cluster.wait(is_level, "the replicas to be level")
    return {broker: (one.last_stable_offset, one.high_watermark) for broker, one in read.items()}


def end(producer: Any, *, is_commit: bool) -> None:
    """End the transaction of a producer."""
    (producer.commitTransaction if is_commit else producer.abortTransaction)()


def delivered(bed: Bed) -> dict[int, list[str]]:
    """Abort a transaction of the same producer; return the keys that are delivered then, by leader."""
    producer = bed.producer(transactional_id="writer")
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(bed.record(TP[0], SECOND, "v")).get()
    end(producer, is_commit=False)
    producer.close()
    keys = {FOLLOWS: bed.served(TP)}
    bed.elect(TP, LEADS)
    return {**keys, LEADS: bed.served(TP)}


def producers(bed: Bed) -> list[Any]:
    """Return the producers that the leader of the partition knows."""
    admin = bed.jvm.org.apache.kafka.clients.admin.Admin.create(bed.config({}))
    try:
        partition = bed.jvm.org.apache.kafka.common.TopicPartition(*TP)
        wanted = bed.jvm.java.util.List.of(partition)
        return list(admin.describeProducers(wanted).partitionResult(partition).get().activeProducers())
    finally:
        admin.close()


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--first", type=click.Choice(["commit", "abort"]), default="commit", show_default=True)
def main(version: str, first: str) -> None:
    """Print the offsets of each replica, and the records that it delivered after an aborted transaction."""
    is_commit = first == "commit"
    with booted(version, (CONTROLLER, FOLLOWS, LEADS), SETTINGS) as bed:
        offsets = stable_offsets(bed, is_commit=is_commit)
        keys = delivered(bed)
    for broker, (stable, high) in offsets.items():
        print(
            f"broker {broker}: last stable offset {stable}, high watermark {high};"
            f" after the aborted transaction it delivers {', '.join(keys[broker])}"
        )
    is_right = all(
        stable == high and (FIRST in keys[broker]) == is_commit and SECOND not in keys[broker]
        for broker, (stable, high) in offsets.items()
    )
    sys.exit(EXIT_CLEAN if is_right else EXIT_ANOMALY)


if __name__ == "__main__":
    main()
