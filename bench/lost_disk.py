"""Does a lost disk leave a replica that differs, if its copy has two leaders and its broker restarts? On real brokers.

    python bench/lost_disk.py --version 4.4.0 --gate
    python bench/lost_disk.py --version 4.4.0 --gate --restart

``p puts K; p deletes K; 3 cleans; time passes; 3 cleans; 2 loses its disk; 2 copies a batch; 2 restarts; 3 leads; 2
returns`` (`harness.models.faults`): broker 1, whose cleaner is late, leads while broker 2 copies the value. Broker 3
leads before the copy gets to the tombstone, which is gone there. Of the disk only the folder of the partition is lost.
The gate begins the copy anew, unless the broker has restarted and forgotten where the copy began. Prints what K is on
each replica at the end; exits 1 where broker 2 has a value.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click
from known_bugs_rig import COMPACTED, booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.host.java import find_java
from harness.protect.gate.build import build_agent
from nemesis import throttle

if TYPE_CHECKING:
    from known_bugs_rig import Bed

CONTROLLER, LATE, LOSES, CLEANED = 4, 1, 2, 3
MOVED = ("moved", 0)
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    **throttle.FAULT.broker_settings,
}
BALLAST, BALLAST_BYTES, BYTES_PER_S = 60, 100_000, 200_000
"""The bulk between the value and its tombstone: the copy takes half a minute for it."""
CLEANER_BOUND_S = 40.0


def values_after_copy(bed: Bed, *, restart: bool) -> dict[int, list[str]]:
    """Go the whole way, and return the values of K by broker."""
    bed.create_topic(MOVED[0], (LATE, CLEANED, LOSES), COMPACTED)
    bed.cluster.admin.alter_broker(LATE, bed.cluster.runtime.address(LATE), {"log.cleaner.backoff.ms": "3600000"})
    producer = bed.producer(acks="all", compression_type="none")

    def write(key: str, value: str | None) -> None:
        producer.send(bed.record(MOVED[0], key, value)).get()

    bed.cluster.wait(lambda: bed.isr(MOVED) == {LATE, LOSES, CLEANED}, "the ISR to be full")
    write("K", "value")
    for number in range(BALLAST):
        write(f"ballast-{number}", "x" * BALLAST_BYTES)
    write("K", None)
    tombstone = bed.read(LATE, MOVED).log_end - 1

    def cleaned() -> bool:
        write("filler", "x")
        return bed.values(CLEANED, MOVED) == []

    bed.cluster.wait(cleaned, "broker 3 to remove value and tombstone", CLEANER_BOUND_S)
    click.echo(f"K before: broker 1 {bed.values(LATE, MOVED)}, broker 3 {bed.values(CLEANED, MOVED)}")
    bed.cluster.runtime.kill(LOSES)
    bed.cluster.wait(lambda: bed.isr(MOVED) == {LATE, CLEANED}, "broker 2 to be out of the ISR")
    shutil.rmtree(bed.partition_folder(LOSES, MOVED))
    bed.cluster.admin.alter_topics([MOVED[0]], dict.fromkeys(throttle.REPLICAS, "*"))
    bed.cluster.admin.alter_brokers(dict.fromkeys(throttle.RATES, str(BYTES_PER_S)))
    bed.cluster.runtime.start(LOSES)
    bed.cluster.wait(lambda: 0 < bed.read(LOSES, MOVED).log_end <= tombstone, "broker 2 to have copied the value")
    if restart:
        bed.cluster.runtime.stop(LOSES)
        bed.cluster.runtime.start(LOSES)
        bed.cluster.wait(lambda: 0 < bed.read(LOSES, MOVED).log_end <= tombstone, "broker 2 to be back in mid-copy")
    bed.cluster.admin.reassign({MOVED: (CLEANED, LATE, LOSES)})
    bed.elect(MOVED, CLEANED)
    click.echo(f"broker 2 has copied up to {bed.read(LOSES, MOVED).log_end}; the tombstone is at {tombstone}")
    bed.cluster.admin.alter_brokers(dict.fromkeys(throttle.RATES))
    bed.cluster.admin.alter_topics([MOVED[0]], dict.fromkeys(throttle.REPLICAS))
    bed.cluster.wait(lambda: LOSES in bed.isr(MOVED), "broker 2 to be in the ISR")
    return {broker: bed.values(broker, MOVED) for broker in (LATE, LOSES, CLEANED)}


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--gate", is_flag=True, help="Every broker has the gate.")
@click.option("--restart", is_flag=True, help="Broker 2 restarts in the middle of its copy.")
def main(version: str, gate: bool, restart: bool) -> None:  # noqa: FBT001
    """Go the way once."""
    flags = (build_agent(find_java(), lambda *_: None).flag(""),) if gate else ()
    with booted(version, (CONTROLLER, LATE, LOSES, CLEANED), SETTINGS, jvm_flags=flags) as bed:
        found = values_after_copy(bed, restart=restart)
        anew = bed.log_text(LOSES).count("began-anew") if gate else 0
    click.echo(f"at the end: {found}; copies begun anew: {anew}")
    sys.exit(EXIT_ANOMALY if "value" in found[LOSES] and "-" not in found[LOSES] else EXIT_CLEAN)


if __name__ == "__main__":
    main()
