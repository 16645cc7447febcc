"""Does an unclean leader election leave replicas that differ? The way of the model, on real brokers.

    python bench/unclean_election.py --version 4.4.0
    python bench/unclean_election.py --version 4.4.0 --gate
    python bench/unclean_election.py --version 4.4.0 --gate --gate-options hold=markers

``p puts K; 2 leaves; p puts K; 1 cleans; 2 leads uncleanly; 1 returns`` (`harness.models.faults`): broker 1 removes the
first value because of the second one, which broker 2 never gets. Broker 2 leads, and broker 1 truncates its log: the
second value goes, too. Prints the values of K on each replica at the end; exits 1 where they differ.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from known_bugs_rig import COMPACTED, booted

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.host.java import find_java
from harness.protect.gate.build import build_agent

if TYPE_CHECKING:
    from known_bugs_rig import Bed

CONTROLLER, STAYS, LEAVES = 3, 1, 2
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
LOGS, CONTROL = ("logs", 0), ("control", 0)
"""A partition on brokers 1 and 2, and one on broker 1 alone: there the same is written, and its cleaner never waits."""
CLEANER_BOUND_S, LONGER_S = 40.0, 3.0


def values_after_election(bed: Bed) -> dict[int, list[str]]:
    """Go the whole way, and return the values of K by broker."""
    settings = {**COMPACTED, "unclean.leader.election.enable": "true"}
    bed.create_topic(LOGS[0], (STAYS, LEAVES), settings)
    bed.create_topic(CONTROL[0], (STAYS,), settings)
    producer = bed.producer(acks="1", enable_idempotence="false")

    def write(key: str, value: str) -> None:
        for topic, _ in (LOGS, CONTROL):
            producer.send(bed.record(topic, key, value)).get()

    bed.cluster.wait(lambda: bed.isr(LOGS) == {STAYS, LEAVES}, "the ISR to be full")
    write("K", "first")
    bed.cluster.wait(lambda: bed.values(LEAVES, LOGS) == ["first"], "broker 2 to have the first value")
    bed.cluster.runtime.kill(LEAVES)
    bed.cluster.wait(lambda: bed.isr(LOGS) == {STAYS}, "broker 2 to be out of the ISR")
    write("K", "second")

    def cleaned() -> bool:
        write("filler", "x")
        return bed.values(STAYS, CONTROL) == ["second"]

    bed.cluster.wait(cleaned, "the cleaner to pass the control partition", CLEANER_BOUND_S)
    passed_s = bed.cluster.clock.now_s()
    bed.cluster.wait(lambda: cleaned() and bed.cluster.clock.now_s() > passed_s + LONGER_S, "further passes")
    click.echo(f"broker 1 before the election: {bed.values(STAYS, LOGS)}")
    bed.cluster.runtime.kill(STAYS)
    bed.cluster.runtime.start(LEAVES)
    bed.cluster.wait(
        lambda: bed.cluster.admin.partitions([LOGS[0]])[LOGS].leader == LEAVES, "broker 2 to lead uncleanly"
    )
    bed.cluster.runtime.start(STAYS)
    bed.cluster.wait(lambda: bed.isr(LOGS) == {STAYS, LEAVES}, "broker 1 to be in the ISR")
    return {broker: bed.values(broker, LOGS) for broker in (STAYS, LEAVES)}


@click.command()
@click.option("--version", default="4.4.0", show_default=True)
@click.option("--gate", is_flag=True, help="Every broker has the gate.")
@click.option("--gate-options", default="", help="Of the gate.")
def main(version: str, gate: bool, gate_options: str) -> None:  # noqa: FBT001
    """Go the way once."""
    flags = (build_agent(find_java(), lambda *_: None).flag(gate_options),) if gate else ()
    with booted(version, (CONTROLLER, STAYS, LEAVES), SETTINGS, jvm_flags=flags) as bed:
        found = values_after_election(bed)
    click.echo(f"at the end: {found}")
    sys.exit(EXIT_CLEAN if found[STAYS] == found[LEAVES] else EXIT_ANOMALY)


if __name__ == "__main__":
    main()
