"""Repairs of diverged clusters under traffic: brokers of runs that found every payload and were kept."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kept import kept_cluster
from sandbox import Going, Sandbox, copy_live_disk, wait_until

from harness.audit.live.cluster import client_of, describe
from harness.clients.librdkafka import CONFIG
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE
from harness.kafka_api.address import parse_bootstrap
from harness.kafka_api.admin import Admin
from harness.protect.guard.cluster import PAUSE

pytestmark = pytest.mark.timeout(1200)

OFFSETS = "__consumer_offsets"
BOUND_S = 60.0
FIRST_STEP_S = 90.0
GROUP = "traffic"


@dataclass(frozen=True)
class Diverged:
    """A diverged cluster that is up, the audit of its disks, and its log directories by broker."""

    bootstrap: str
    audit: Path
    log_dirs: dict[int, Path]
    sandbox: Sandbox

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(json.loads(self.audit.read_text())["findings"])

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted({(one["topic"], one["partition"]) for one in self.findings})

    def save_folders(self, folder: Path) -> Path:
        names = {f"{topic}-{partition}" for topic, partition in self.partitions}
        for broker, log_dir in self.log_dirs.items():
            for path in (path for path in log_dir.iterdir() if path.name in names):
                copy_live_disk(path, folder / str(broker) / path.name)
        return folder

    def arguments(self, *more: str) -> tuple[str, ...]:
        return ("repair", str(self.audit), "--bootstrap-server", self.bootstrap, *more)

    def settings(self) -> dict[str, dict[str, str]]:
        topics = sorted({topic for topic, _ in self.partitions})
        return self.admin.topic_settings(parse_bootstrap(self.bootstrap)[0], topics)

    def replicas(self) -> dict[tuple[str, int], tuple[int, ...]]:
        states = self.admin.partitions(sorted({topic for topic, _ in self.partitions}))
        return {tp: states[tp].replicas for tp in self.partitions}

    @property
    def admin(self) -> Admin:
        return Admin(lambda: parse_bootstrap(self.bootstrap))


@contextmanager
def audited(sandbox: Sandbox, target: str, anomalies: str, *options: str) -> Iterator[Diverged]:
    with kept_cluster(sandbox, target, anomalies, *options) as kept:
        folders = [word for broker, log_dir in kept.log_dirs.items() for word in ("--broker", f"{broker}={log_dir}")]
        path = sandbox.root / "audit.json"
        path.write_text(sandbox.call("audit", "disk", *folders, "--format", "json", code=EXIT_ANOMALY).stdout)
        yield Diverged(kept.bootstrap, path, kept.log_dirs, sandbox)


@pytest.fixture(scope="module", params=["kafka-4.4", "kafka-3.9"])
def diverged(make_sandbox: Callable[[str], Sandbox], request: pytest.FixtureRequest) -> Iterator[Diverged]:
    with audited(make_sandbox("repair"), request.param, "all") as one:
        yield one


@dataclass
class Traffic:
    """Writes to partitions and commits offsets until `stop`. ``acked``: the last acknowledged value of each key."""

    bootstrap: str
    partitions: list[tuple[str, int]]
    acked: dict[tuple[str, int, str], int] = field(default_factory=dict)
    committed: int = -1
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._write, self._commit)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True}
        producer = Producer({**CONFIG, **settings, "delivery.timeout.ms": int(BOUND_S * 1000)})
        number = 0

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(f"{message.topic()}-{message.partition()}: {error}")
            else:
                self.acked[message.topic(), message.partition(), message.key().decode()] = int(message.value())

        while not self._stopped.wait(0.02):
            number += 1
            for topic, partition in self.partitions:
                key, value = f"traffic-{number % 50}", str(number)
                producer.produce(topic, key=key, value=value, partition=partition, on_delivery=delivered)
            producer.poll(0)
        left = producer.flush(BOUND_S)
        self.errors += [f"{left} records were not delivered"] if left else []

    def _commit(self) -> None:
        topic, partition = self.partitions[0]
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
        number = 0
        while not self._stopped.wait(0.2):
            number += 1
            try:
                consumer.commit(offsets=[TopicPartition(topic, partition, number)], asynchronous=False)
            except Exception:  # noqa: BLE001, S112  (a coordinator that moves: only acknowledged offsets count)
                continue
            self.committed = number
        consumer.close()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(2 * BOUND_S)
            assert not thread.is_alive()

    def lost(self) -> list[str]:
        """Return the acknowledged records that are missing."""
        served: dict[tuple[str, int, str], int] = {}
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False,
            "isolation.level": "read_uncommitted", "enable.partition.eof": True,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self.partitions])
        ended: set[tuple[str, int]] = set()

        def read() -> bool:
            messages: list[Any] = consumer.consume(1000, timeout=0.5)
            for message in messages:
                place = (message.topic(), message.partition())
                if message.error():
                    ended.add(place)
                elif (message.key() or b"").startswith(b"traffic-"):
                    served[(*place, message.key().decode())] = int(message.value())
            return len(ended) == len(self.partitions)

        wait_until(read, BOUND_S, "the end of every partition")
        group = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP})
        (stored,) = group.committed([TopicPartition(*self.partitions[0])], timeout=BOUND_S)
        consumer.close()
        older = [f"{key}: {served.get(key)} instead of {n}" for key, n in self.acked.items() if served.get(key, -1) < n]
        return older + [f"offset {stored.offset} instead of {self.committed}"] * (stored.offset < self.committed)


def wait_for_text(going: Going, text: str, times: int = 1) -> None:
    """Wait until the progress of a command has a text so often, or the command ends."""

    def is_there() -> bool:
        return going._err.read_text().count(text) >= times or going.process.poll() is not None

    wait_until(is_there, FIRST_STEP_S, text)


def test_every_diverged_partition_is_repaired_under_traffic_and_a_kill(diverged: Diverged, tmp_path: Path) -> None:
    sandbox = diverged.sandbox
    topics = {topic for topic, _ in diverged.partitions}
    assert {"stuck-lso", "tombstone-divergence", "aborted-to-committed", OFFSETS} <= topics
    settings, replicas = diverged.settings(), diverged.replicas()

    planned = sandbox.call(*diverged.arguments("--plan", "--format", "json"))
    assert planned.code in {EXIT_CLEAN, EXIT_UNKNOWN}, planned.output
    plan = json.loads(planned.stdout)
    assert plan["refused"] == [], planned.output
    assert {broker for one in plan["repairs"] for broker in one["wrong"]} == {2}, planned.output
    assert (diverged.settings(), diverged.replicas()) == (settings, replicas), "a plan changes nothing"

    # Broker 1 stayed all the time.
    decided = [f"{one['topic']}-{one['partition']}=1" for one in plan["undecided"]]
    decisions = [word for right in decided for word in ("--right", right)]
    if decisions:
        sandbox.call(*diverged.arguments("--apply", *decisions), code=EXIT_USAGE)
        decisions += ["--saved-folders", str(diverged.save_folders(tmp_path / "saved"))]
    apply = diverged.arguments("--apply", *decisions, "--at-once", "3", "--throttle-mb", "20")

    written = [tp for tp in diverged.partitions if not tp[0].startswith("__")]
    traffic = Traffic(diverged.bootstrap, written)
    try:
        killed = sandbox.start(*apply)
        wait_for_text(killed, ": assign ")
        killed.kill()
        held = {topic for topic, values in diverged.settings().items() if is_paused(values)}
        assert held, "a repair that was killed leaves compaction paused"
        resumed = sandbox.start(*apply, "--format", "json")
        wait_for_text(resumed, "ask the cluster", times=2)
    finally:
        traffic.stop()
    ran = resumed.end()
    assert ran.code in {EXIT_CLEAN, EXIT_UNKNOWN}, ran.output
    result = json.loads(ran.stdout)
    assert [one["why"] for one in result["partitions"] if one["why"]] == [], ran.output
    assert {one["after"] for one in result["partitions"]} <= {"agree", "unknown"}, ran.output
    assert result["figures"]["copied_bytes"] > 0
    assert traffic.errors == []
    assert len(traffic.acked) > 50
    assert traffic.committed > 0
    assert traffic.lost() == []
    assert (diverged.settings(), diverged.replicas()) == (settings, replicas)

    # Without traffic, and with nothing left to do, everything agrees.
    again = sandbox.call(*apply, "--format", "json", code=EXIT_CLEAN)
    assert json.loads(again.stdout)["repairs"] == []
    patterns = [word for topic in sorted(topics) for word in ("--topic", topic)]
    sandbox.call("audit", "live", "--bootstrap-server", diverged.bootstrap, *patterns, code=EXIT_CLEAN)
    states = describe(client_of(parse_bootstrap(diverged.bootstrap)), sorted(topics)).state.partitions
    assert all(set(state.isr) == set(state.replicas) for state in states.values())


def is_paused(values: dict[str, str]) -> bool:
    return all(float(values[name]) == float(value) for name, value in PAUSE.items())


def test_two_replicas_take_a_spare_broker(make_sandbox: Callable[[str], Sandbox]) -> None:
    sandbox = make_sandbox("repair-spare")
    with audited(sandbox, "kafka-4.4", "stuck-lso", "--replication-factor", "2") as one:
        (partition,) = one.partitions
        before = one.replicas()[partition]
        assert len(before) == 2
        planned = sandbox.call(*one.arguments("--plan", "--format", "json"))
        (planned_repair,) = json.loads(planned.stdout)["repairs"]
        assert planned_repair["spare"] not in before, planned.output
        sandbox.call(*one.arguments("--apply", "--format", "json"), code=EXIT_CLEAN)
        assert one.replicas()[partition] == before
