"""Does a broker that recovers open a transaction again whose marker its own cleaner has removed? On a real broker.

    python bench/recovered_transaction.py --version 4.4.0

A transaction has its record in one segment and its marker in the next one: the producer snapshot at the base of the
second has it open. A clean restart between both writes down the recovery point, in the second segment. Then the record
is overwritten, the producer expires, and the cleaner removes record and marker. The broker is killed before the next
recovery point is written (``log.flush.offset.checkpoint.interval.ms``, a minute by default), and recovers the second
segment: ``LogLoader.recoverSegment`` begins with the snapshot at its base, and finds no marker. Found by soaks (4.3.1
with the patch of ``results/upstream``, seeds 301 and 481; 4.4.0 with the gate, seed 507).

Prints last stable offset and high watermark before and after, and what a read_committed consumer gets in the end; exits
1 where the last stable offset is not the high watermark.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from known_bugs_rig import COMPACTED, booted

from checkers.evidence.parse import read_log_checkpoint
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, HarnessError

if TYPE_CHECKING:
    from known_bugs_rig import Bed

BROKER, TP = 1, ("t", 0)
SEGMENT_BYTES, FILLER = 1 << 20, "x" * 700_000
"""Each filler begins a segment, and no two of them fit into one: a pass puts no segments together."""
MOST_PASSES = 10
LONG_MS = 3_600_000
ROLLED_BY_SIZE = {
    "segment.bytes": str(SEGMENT_BYTES),
    "segment.ms": str(LONG_MS),
    "max.compaction.lag.ms": str(LONG_MS),  # segments are rolled by it, too
}
SETTINGS = {
    "producer.id.expiration.ms": "500",
    "producer.id.expiration.check.interval.ms": "100",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": str(LONG_MS),
    "log.initial.task.delay.ms": str(LONG_MS),
}


def make_log(bed: Bed) -> None:
    """Write the transaction over two segments, and wait until the cleaner has removed its record and its marker.

    Raises `HarnessError` if it has not after 10 passes.
    """
    bed.create_topic(TP[0], (BROKER,), {**COMPACTED, **ROLLED_BY_SIZE})
    plain = bed.producer(enable_idempotence="false")
    plain.send(bed.record(TP[0], "first segment", FILLER)).get()
    producer = bed.producer(transactional_id="writer")
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(bed.record(TP[0], "k", "of the transaction")).get()
    plain.send(bed.record(TP[0], "second segment", FILLER)).get()
    bed.restart(BROKER)  # the recovery point is behind the filler, the marker behind the recovery point
    producer.commitTransaction()
    producer.close()
    plain.send(bed.record(TP[0], "k", "newer")).get()
    for _ in range(MOST_PASSES):
        plain.send(bed.record(TP[0], "later segments", FILLER)).get()
        read = bed.read(BROKER, TP)
        if not any(batch.is_transactional for batch in read.batches):
            return
        bed.cluster.wait(lambda: cleaned_to(bed) == read.log_end - 1, "a pass up to the active segment")  # noqa: B023  # now
    raise HarnessError(f"{MOST_PASSES} passes of the cleaner have left batches of the transaction")


def cleaned_to(bed: Bed) -> int | None:
    """Return the offset up to which the log was cleaned, by the cleaner's checkpoint."""
    folder = bed.partition_folder(BROKER, TP)
    return read_log_checkpoint(folder.parent, "cleaner-offset", folder.name)


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
def main(version: str) -> None:
    """Go the way once."""
    with booted(version, (BROKER,), SETTINGS) as bed:
        make_log(bed)
        before = bed.read(BROKER, TP)
        bed.cluster.runtime.kill(BROKER)
        bed.cluster.runtime.start(BROKER)
        bed.cluster.wait(lambda: bed.read(BROKER, TP).high_watermark == before.log_end, "the broker to be back")
        after = bed.read(BROKER, TP)
        served = bed.served(TP)
    for when, one in (("before", before), ("after", after)):
        print(f"{when}: last stable offset {one.last_stable_offset}, high watermark {one.high_watermark}")
    print(f"a read_committed consumer gets: {', '.join(served)}")
    sys.exit(EXIT_ANOMALY if after.last_stable_offset != after.high_watermark else EXIT_CLEAN)


if __name__ == "__main__":
    main()
