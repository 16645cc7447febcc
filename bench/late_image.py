"""Does a broker whose metadata are late remove a tombstone that a replica lacks, and lead that replica afterwards?

    python bench/late_image.py --version 4.4.0 --gate
    python bench/late_image.py --version 4.4.0 --gate --gate-options max-image-age-ms=600000     without the rule
    python bench/late_image.py --version 4.3+/tmp/patched/classes

``p puts K; 3's image is late; 2 leaves; p deletes K; 3 cleans; time passes; 3 cleans; 3's image is current; 3 leads; 2
returns`` (`harness.models.faults`), on real brokers: the firewall of broker 3 drops what the controller sends, and
nothing else. So broker 3 stays in the ISR, and goes on by the ISR that it knew. Prints what K is on each replica at the
end; exits 1 where broker 2 has a value. Needs root.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from known_bugs_rig import COMPACTED, booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.host.java import find_java
from harness.protect.gate.build import build_agent
from harness.runtimes.base import Firewalls, Need, ability

if TYPE_CHECKING:
    from known_bugs_rig import Bed

CONTROLLER, LEADS, LEAVES, LATE = 4, 1, 2, 3
TP = ("t", 0)
RETENTION_MS = 3_000
SETTINGS = {"replica.lag.time.max.ms": "3000", "broker.session.timeout.ms": "300000"}
"""The controller fences no broker: neither the broker that it does not reach, nor the paused broker that lags."""
TOPIC = {**COMPACTED, "delete.retention.ms": str(RETENTION_MS)}
MAX_IMAGE_AGE_MS = 2_000
WAITS_S = 5 * RETENTION_MS / 1000
"""In that time a cleaner that does not wait removes the tombstone several times over."""
CLEANER_BOUND_S = 40.0


def values_after_return(bed: Bed) -> dict[int, list[str]]:
    """Go the whole way, and return the values of K by broker."""
    replicas = (LEADS, LEAVES, LATE)
    bed.create_topic(TP[0], replicas, TOPIC)
    producer, links = bed.producer(acks="all"), ability(bed.cluster.runtime, Firewalls)

    def write(key: str, value: str | None) -> None:
        producer.send(bed.record(TP[0], key, value)).get()

    bed.cluster.wait(lambda: bed.isr(TP) == set(replicas), "the ISR to be full")
    write("K", "value")
    bed.cluster.wait(lambda: bed.values(LEAVES, TP) == ["value"], "broker 2 to have the value")
    links.block([(CONTROLLER, LATE)])
    bed.cluster.runtime.pause(LEAVES)
    # A replica that has everything that the leader has is not behind.
    producer.send(bed.record(TP[0], "filler", "x"))
    bed.cluster.wait(lambda: bed.isr(TP) == {LEADS, LATE}, "broker 2 to be out of the ISR")
    write("K", None)
    since_s = bed.cluster.clock.now_s()

    def is_removed() -> bool:
        write("filler", "x")
        return bed.values(LATE, TP) == []

    bed.cluster.wait(
        lambda: is_removed() or bed.cluster.clock.now_s() > since_s + WAITS_S,
        "broker 3 to have cleaned",
        CLEANER_BOUND_S,
    )
    click.echo(f"K while broker 2 is down: { ({broker: bed.values(broker, TP) for broker in (LEADS, LATE)}) }")
    links.clear_links()
    address = bed.cluster.runtime.address(LATE)
    bed.cluster.wait(
        lambda: set(bed.cluster.admin.partitions([TP[0]], at=address)[TP].isr) == {LEADS, LATE}, "broker 3's image"
    )
    bed.cluster.admin.reassign({TP: (LATE, LEADS, LEAVES)})
    bed.elect(TP, LATE)
    bed.cluster.runtime.resume(LEAVES)
    bed.cluster.wait(lambda: bed.isr(TP) == set(replicas), "broker 2 to be in the ISR")
    return {one: bed.values(one, TP) for one in replicas}


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--gate", is_flag=True, help="Every broker has the gate.")
@click.option("--gate-options", default=f"max-image-age-ms={MAX_IMAGE_AGE_MS}", show_default=True)
def main(version: str, gate: bool, gate_options: str) -> None:  # noqa: FBT001
    """Go the way once."""
    flags = (build_agent(find_java(), lambda *_: None).flag(gate_options),) if gate else ()
    brokers = (CONTROLLER, LEADS, LEAVES, LATE)
    with booted(version, brokers, SETTINGS, jvm_flags=flags, needs=frozenset({Need.FIREWALL})) as bed:
        found = values_after_return(bed)
    click.echo(f"at the end: {found}")
    sys.exit(EXIT_ANOMALY if "value" in found[LEAVES] and "-" not in found[LEAVES] else EXIT_CLEAN)


if __name__ == "__main__":
    main()
