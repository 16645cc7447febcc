"""Does a broker notice, when it starts, that a segment in the middle of its log is empty? It goes on behind it.

    python bench/lost_segment.py --version 4.4.0
    python bench/lost_segment.py --version 4.4.0 --gate

A broker syncs a segment in the background, after it has rolled. If the power fails before, the file of the segment may
be empty, and that of the next one be there. Nobody cuts the power: broker 2 is killed, and the log of its last segment
but one is emptied, as if the operating system had never written it. Prints which offsets each replica serves once
broker 2 is in the ISR again, and what a consumer gets with broker 2 as the leader; exits 1 where acknowledged records
are gone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from known_bugs_rig import booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.host.java import find_java
from harness.protect.gate.build import build_agent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from known_bugs_rig import Bed

CONTROLLER, LEADS, LOSES = 3, 1, 2
TP = ("t", 0)
# The gate covers compacted topics; nothing is cleaned meanwhile.
TOPIC = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000", "segment.ms": "200"}
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
SEGMENTS = 3


def offsets_after_loss(bed: Bed) -> dict[int, list[int]]:
    """Go the whole way, and return the offsets that each replica serves in the end."""
    bed.create_topic(TP[0], (LEADS, LOSES), TOPIC)
    producer, folder = bed.producer(acks="all"), bed.partition_folder(LOSES, TP)
    bed.cluster.wait(lambda: bed.isr(TP) == {LEADS, LOSES}, "the ISR to be full")

    def segments() -> Sequence[int]:
        return sorted(int(path.stem) for path in folder.glob("*.log"))

    def has_rolled() -> bool:
        producer.send(bed.record(TP[0], "K", "value")).get()
        return len(segments()) >= SEGMENTS

    bed.cluster.wait(has_rolled, "broker 2 to roll segments")
    *_, lost, following = segments()
    bed.cluster.runtime.kill(LOSES)
    bed.cluster.wait(lambda: bed.isr(TP) == {LEADS}, "broker 2 to be out of the ISR")
    click.echo(f"acknowledged: offsets 0 to {bed.read(LEADS, TP).log_end - 1}; lost: {lost} to {following - 1}")
    (folder / f"{lost:020}.log").write_bytes(b"")
    bed.cluster.runtime.start(LOSES)
    bed.cluster.wait(lambda: LOSES in bed.isr(TP), "broker 2 to be in the ISR")
    return {broker: [one.offset for one in bed.records(broker, TP)] for broker in (LEADS, LOSES)}


def delivered(bed: Bed) -> int:
    """Return how many records a consumer gets once broker 2 leads."""
    bed.cluster.runtime.kill(LEADS)
    bed.cluster.wait(lambda: bed.cluster.admin.partitions([TP[0]])[TP].leader == LOSES, "broker 2 to lead")
    return len(bed.read(LOSES, TP, committed=True).batches)


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--gate", is_flag=True, help="Every broker has the gate.")
def main(version: str, gate: bool) -> None:  # noqa: FBT001
    """Go the way once."""
    flags = (build_agent(find_java(), lambda *_: None).flag("max-unsynced-ms=0"),) if gate else ()
    with booted(version, (CONTROLLER, LEADS, LOSES), SETTINGS, jvm_flags=flags) as bed:
        found = offsets_after_loss(bed)
        click.echo(f"broker 1: {found[LEADS]}\nbroker 2: {found[LOSES]}")
        anew = bed.log_text(LOSES).count("reason=lost") if gate else 0
        click.echo(f"a consumer gets {delivered(bed)} batches of {len(found[LEADS])} records from broker 2")
    click.echo(f"copies begun anew: {anew}")
    sys.exit(EXIT_ANOMALY if found[LOSES] != found[LEADS] else EXIT_CLEAN)


if __name__ == "__main__":
    main()
