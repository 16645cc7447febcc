"""Does a transaction hang that ends while one of its partitions has no leader? On real brokers.

    python bench/skipped_marker.py --version 4.4.0

A producer writes to a partition that is on broker 2 alone. Broker 2 is killed, the producer commits, and broker 2 is
started again. The coordinator, on broker 1, has to send the marker once the partition has a leader. From 4.3 on,
``KRaftMetadataCache.getPartitionLeaderEndpoint`` says of a partition without a leader what it says of one that does not
exist, and the coordinator leaves the marker out ("these partitions are likely deleted already and hence can be
skipped"). The transaction counts as committed, and stays open in that partition for good. Found by soaks with the gate.

Prints the last stable offset and the high watermark; exits 1 where they differ.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from known_bugs_rig import booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, WaitTimeoutError

if TYPE_CHECKING:
    from known_bugs_rig import Bed

COORDINATES, LEADS = 1, 2
TP, STATE = ("t", 0), ("__transaction_state", 0)
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
MARKER_S = 20.0
SKIPPED = "likely deleted already and hence can be skipped"


def offsets(bed: Bed) -> tuple[int, int]:
    """Go the whole way; return the last stable offset and the high watermark."""
    bed.create_topic(STATE[0], (COORDINATES,), {"cleanup.policy": "compact"})
    bed.create_topic(TP[0], (LEADS,), {})
    producer = bed.producer(transactional_id="writer")
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(bed.record(TP[0], "k", "v")).get()
    bed.runtime.kill(LEADS)
    bed.wait(lambda: bed.admin.partitions([TP[0]])[TP].leader not in {COORDINATES, LEADS}, "nobody to lead")
    producer.commitTransaction()
    bed.runtime.start(LEADS)
    bed.wait(lambda: bed.admin.partitions([TP[0]])[TP].leader == LEADS, "broker 2 to lead again")

    def has_ended() -> bool:
        state = bed.read(LEADS, TP)
        return state.last_stable_offset == state.high_watermark > 1

    with suppress(WaitTimeoutError):
        bed.wait(has_ended, "the marker", MARKER_S)
    state = bed.read(LEADS, TP)
    return state.last_stable_offset, state.high_watermark


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
def main(version: str) -> None:
    """Print what the partition has."""
    with booted(version, (COORDINATES, LEADS), SETTINGS) as bed:
        stable, high = offsets(bed)
        skipped = bed.log_text(COORDINATES).count(SKIPPED)
    print(f"last stable offset {stable}, high watermark {high}; the coordinator skipped {skipped} markers")
    sys.exit(EXIT_ANOMALY if stable != high else EXIT_CLEAN)


if __name__ == "__main__":
    main()
