"""Does a power failure leave a replica that differs, if it takes a tombstone that the others have removed since?

    python bench/lost_tail.py --version 4.4.0
    python bench/lost_tail.py --version 4.4.0 --gate
    python bench/lost_tail.py --version 4.4.0 --gate --gate-options max-unsynced-ms=2000

``p puts K; p deletes K; 1 cleans; time passes; 1 cleans; 2 loses power, and its log from 1 on; 2 returns``
(`harness.models.faults`), on real brokers. Nobody cuts the power: broker 2 is killed, and its log is cut off before the
tombstone, as if the operating system had never written what follows. Prints what K is on each replica at the end; exits
1 where broker 2 has a value.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from known_bugs_rig import COMPACTED, booted

from harness.broker_files.segments.batches import iter_batches
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.host.java import find_java
from harness.protect.gate.build import build_agent

if TYPE_CHECKING:
    from pathlib import Path

    from known_bugs_rig import Bed

CONTROLLER, CLEANS, LOSES = 3, 1, 2
TP = ("t", 0)
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}
CLEANER_BOUND_S = 40.0


def cut(folder: Path, offset: int) -> None:
    """Cut a replica's log before the batch with this offset, and drop the files that brokers derive from the log."""
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        kept = [one for one in iter_batches(content, source=str(path)) if one.last_offset < offset]
        size = sum(one.size_bytes for one in kept)
        if int(path.stem) < offset:
            path.write_bytes(content[:size])
        else:
            path.unlink()
    for path in (*folder.glob("*.snapshot"), *folder.glob("*index")):
        path.unlink()


def values_after_loss(bed: Bed, kept_in: str) -> dict[int, list[str]]:
    """Go the whole way, and return the values of K by broker. ``kept_in``: the file of high watermarks that counts."""
    bed.create_topic(TP[0], (CLEANS, LOSES), COMPACTED)
    bed.cluster.admin.alter_broker(LOSES, bed.cluster.runtime.address(LOSES), {"log.cleaner.backoff.ms": "3600000"})
    producer = bed.producer(acks="all")

    def write(key: str, value: str | None) -> None:
        producer.send(bed.record(TP[0], key, value)).get()

    bed.cluster.wait(lambda: bed.isr(TP) == {CLEANS, LOSES}, "the ISR to be full")
    write("K", "value")
    write("K", None)

    def cleaned() -> bool:
        write("filler", "x")
        return bed.values(CLEANS, TP) == []

    bed.cluster.wait(cleaned, "broker 1 to remove value and tombstone", CLEANER_BOUND_S)
    click.echo(f"K before: broker 1 {bed.values(CLEANS, TP)}, broker 2 {bed.values(LOSES, TP)}")
    end, offsets = bed.read(LOSES, TP).log_end, bed.partition_folder(LOSES, TP).parent / kept_in

    def is_kept() -> bool:
        lines = offsets.read_text().splitlines() if offsets.exists() else []
        return any(line.startswith(f"{TP[0]} 0 ") and int(line.split()[2]) >= end for line in lines)

    bed.cluster.wait(is_kept, "the high watermark to be on disk")
    bed.cluster.runtime.kill(LOSES)
    bed.cluster.wait(lambda: bed.isr(TP) == {CLEANS}, "broker 2 to be out of the ISR")
    cut(bed.partition_folder(LOSES, TP), offset=1)
    bed.cluster.runtime.start(LOSES)
    bed.cluster.wait(lambda: LOSES in bed.isr(TP), "broker 2 to be in the ISR")
    return {broker: bed.values(broker, TP) for broker in (CLEANS, LOSES)}


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--gate", is_flag=True, help="Every broker has the gate.")
@click.option("--gate-options", default="max-unsynced-ms=0", show_default=True)
def main(version: str, gate: bool, gate_options: str) -> None:  # noqa: FBT001
    """Go the way once."""
    flags = (build_agent(find_java(), lambda *_: None).flag(gate_options),) if gate else ()
    with booted(version, (CONTROLLER, CLEANS, LOSES), SETTINGS, jvm_flags=flags) as bed:
        is_older = gate and gate_options != "max-unsynced-ms=0"
        found = values_after_loss(bed, "compaction-gate.older-offsets" if is_older else "replication-offset-checkpoint")
        anew = bed.log_text(LOSES).count("reason=lost") if gate else 0
    click.echo(f"at the end: {found}; copies begun anew: {anew}")
    sys.exit(EXIT_ANOMALY if "value" in found[LOSES] and "-" not in found[LOSES] else EXIT_CLEAN)


if __name__ == "__main__":
    main()
