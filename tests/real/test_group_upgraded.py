"""A coordinator that missed the tombstone of a classic group cannot load its partition (`world.members`): 4.4."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Consumer

from harness.broker_files.side_files.checkpoints import read_checkpoint
from harness.cluster.boot import equip
from harness.console import ConsoleProgress
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.kafka_api.connection import Connection
from harness.model_checking.conform.brokers import CLEANED, Brokers, fetch_offsets, running
from harness.model_checking.conform.schedules import FILLER, PUT, STAYING, partition_schedule
from harness.models.world.world import Rules
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import RuntimeRequest
from harness.schedules.operations import CleanerPass, ElectLeader, Heal, Inject
from harness.schedules.scenario import CONSUMER_OFFSETS
from harness.targets import find_target

PASSES = 5
"""Enough for a tombstone to get its delete horizon, and to be removed."""
FAILS = "Group upgraded is not a consumer group"


@contextmanager
def member(brokers: Brokers, protocol: str) -> Iterator[Consumer]:
    addresses = ",".join(str(brokers.cluster.runtime.address(broker)) for broker in (1, 3))
    consumer = Consumer({"bootstrap.servers": addresses, "group.id": "upgraded", "group.protocol": protocol})
    assigned: list[object] = []
    consumer.subscribe(["K"], on_assign=lambda _, partitions: assigned.extend(partitions))

    def joined() -> bool:
        consumer.poll(0.2)
        return bool(assigned)

    try:
        brokers.cluster.wait(joined, f"a member by the {protocol} protocol")
        yield consumer
    finally:
        consumer.close()


def answers(brokers: Brokers, broker: int, group: str) -> bool:
    """Return whether a broker answers about a group of the partition that it leads."""
    with closing(Connection(brokers.cluster.runtime.address(broker))) as connection:
        return group in fetch_offsets(connection, [group])


def cleaned_to(brokers: Brokers, broker: int) -> int:
    """Return the checkpoint of a broker's cleaner; -1 before its first pass."""
    brokers.cluster.runtime.copy_checkpoints(broker, brokers.scratch)
    path = brokers.scratch / CLEANED
    offsets = read_checkpoint(path.read_bytes(), source=CLEANED) if path.exists() else {}
    return offsets.get((CONSUMER_OFFSETS, 0), -1)


def test_no_group_of_the_partition_has_a_coordinator(tmp_path: Path) -> None:
    equipment = equip(RuntimeRequest(find_target("kafka-4.4"), find_java(), ConsoleProgress().jars), LOCAL)
    logs = tmp_path / "logs"
    with (
        Workspace(f"upgraded-{new_run_id()}", tmp_path) as workspace,
        running(equipment, workspace, logs, Rules(), groups=1) as brokers,
    ):
        brokers.create([partition_schedule("other", of_groups=True)])
        other = brokers.partitions["other"]
        assert other.group is not None
        other.take(PUT)
        with member(brokers, "classic"):
            pass
        with brokers.during(Inject("kill", 2)):
            pass
        with member(brokers, "consumer"):
            for _ in range(PASSES):
                brokers.wait_for_next_timestamp()
                other.take(FILLER)
                before = {broker: cleaned_to(brokers, broker) for broker in STAYING}
                with brokers.during(CleanerPass((1, 3))):
                    brokers.cluster.wait(
                        lambda before=before: all(cleaned_to(brokers, one) > at for one, at in before.items()),  # type: ignore[misc]
                        "a pass of both cleaners",
                    )
            with brokers.during(Heal("outage", 2)):
                pass
            other.take(ElectLeader(2))
            log = next(path for path in logs.rglob("*.log") if path.parent.name == "2")
            brokers.cluster.wait(lambda: FAILS in log.read_text(encoding="utf-8"), "broker 2 to fail to load it")
            assert not answers(brokers, 2, other.group)
            other.take(ElectLeader(3))
            brokers.cluster.wait(lambda: answers(brokers, 3, str(other.group)), "broker 3 to coordinate the groups")
