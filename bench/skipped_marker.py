"""Does a transaction hang that ends while one of its partitions has no leader? On real brokers.

    python bench/skipped_marker.py --version 4.4.0
    python bench/skipped_marker.py --version 4.4.0 --abort

A producer writes to a partition that is on broker 2 alone. Broker 2 is killed, the producer commits (``--abort``:
aborts), and broker 2 is started again. The coordinator, on broker 1, has to send the marker once the partition has a
leader. From 4.3 on, ``KRaftMetadataCache.getPartitionLeaderEndpoint`` says of a partition without a leader what it says
of one that does not exist, and the coordinator leaves the marker out ("these partitions are likely deleted already and
hence can be skipped"). The transaction counts as ended, and stays open in that partition. Found by soaks with the gate.

Then the same producer writes once more there, and ends that transaction the other way: its marker ends both. Prints the
last stable offset and the high watermark before that, and what a read_committed consumer is delivered after it; exits 1
where the offsets differ, or that is not what was committed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from known_bugs_rig import booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, WaitTimeoutError
from harness.soak.causes.skipped_marker import parse_line

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


@dataclass(frozen=True)
class Seen:
    """Offsets before the second transaction; keys ``committed`` and ``delivered`` after it."""

    last_stable_offset: int
    high_watermark: int
    committed: list[str]
    delivered: list[str]


def seen(bed: Bed, *, aborts: bool) -> Seen:
    """Go the whole way. ``aborts``: the first transaction, and the second one commits."""
    bed.create_topic(STATE[0], (COORDINATES,), {"cleanup.policy": "compact"})
    bed.create_topic(TP[0], (LEADS,), {})
    producer = bed.producer(transactional_id="writer")
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(bed.record(TP[0], "first", "v")).get()
    bed.cluster.runtime.kill(LEADS)
    bed.cluster.wait(
        lambda: bed.cluster.admin.partitions([TP[0]])[TP].leader not in {COORDINATES, LEADS}, "nobody to lead"
    )
    _end(producer, aborts=aborts)
    bed.cluster.runtime.start(LEADS)
    bed.cluster.wait(lambda: bed.cluster.admin.partitions([TP[0]])[TP].leader == LEADS, "broker 2 to lead again")

    def has_ended() -> bool:
        state = bed.read(LEADS, TP)
        return state.last_stable_offset == state.high_watermark > 1

    with suppress(WaitTimeoutError):
        bed.cluster.wait(has_ended, "the marker", MARKER_S)
    state = bed.read(LEADS, TP)
    producer.beginTransaction()
    producer.send(bed.record(TP[0], "second", "v")).get()
    _end(producer, aborts=not aborts)
    bed.cluster.wait(lambda: bed.read(LEADS, TP).last_stable_offset > state.high_watermark, "the second marker")
    committed = "second" if aborts else "first"
    return Seen(state.last_stable_offset, state.high_watermark, [committed], bed.served(TP))


def _end(producer: Any, *, aborts: bool) -> None:
    if aborts:
        producer.abortTransaction()
    else:
        producer.commitTransaction()


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--abort", "aborts", is_flag=True, help="Abort the first transaction, and commit the second one.")
def main(version: str, *, aborts: bool) -> None:
    """Print what the partition has."""
    with booted(version, (COORDINATES, LEADS), SETTINGS) as bed:
        one = seen(bed, aborts=aborts)
        log = bed.log_text(COORDINATES).encode().splitlines()
    skipped = sum(parse_line(line, COORDINATES) is not None for line in log)
    print(
        f"last stable offset {one.last_stable_offset}, high watermark {one.high_watermark}; the coordinator skipped"
        f" {skipped} markers; committed: {', '.join(one.committed)}; delivered: {', '.join(one.delivered) or 'nothing'}"
    )
    is_right = one.last_stable_offset == one.high_watermark and one.delivered == one.committed
    sys.exit(EXIT_CLEAN if is_right else EXIT_ANOMALY)


if __name__ == "__main__":
    main()
