"""Redpanda as a cluster is handled: its admin API is a stand-in, its protocol and its brokers are made up."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.admin import PARTITION as TOPIC
from fakes.admin import LeaderAdmin
from fakes.containers import ContainerCluster, packed
from fakes.http_servers import FakeServer, served
from fakes.runtime import FakeRuntime

from harness.broker_files.segments.batches import HEADER as KAFKA_HEADER
from harness.broker_files.segments.batches import iter_batches
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.broker_files.segments.redpanda import HEADER, RAFT_DATA
from harness.errors import HarnessError, UsageError
from harness.kafka_api.fetch import WireReader
from harness.kafka_api.metadata import PartitionState
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.systems.redpanda import RedpandaControl
from harness.targets import TARGETS

TX = ("tx", 0)
INTERVAL = "log_compaction_interval_ms"


class Subject:
    """A control and whom it asks."""

    def __init__(self, admins: dict[int, FakeServer]) -> None:
        self.admins, self.kafka = admins, LeaderAdmin()
        self.runtime = FakeRuntime(admin_ports={broker: admin.port for broker, admin in admins.items()})
        self.control = RedpandaControl(self.runtime, self.kafka)

    def answer(self, path: str, body: Any, status: int = 200) -> None:
        """Have every broker answer so."""
        for admin in self.admins.values():
            admin.answers[path] = (status, body)

    def asked(self, method: str) -> list[tuple[int, str, Any]]:
        """Return the requests of a method: broker, path, body."""
        return [
            (broker, path, body)
            for broker, admin in self.admins.items()
            for asked, path, body in admin.asked
            if asked == method
        ]


@pytest.fixture
def subject() -> Iterator[Subject]:
    with served(3) as admins:
        yield Subject(admins)


def test_the_isr_has_the_live_replicas(subject: Subject) -> None:
    alive = [{"node_id": broker, "is_alive": broker != 2} for broker in (1, 2, 3)]
    subject.answer("/v1/brokers", alive)
    assert subject.control.registered() == {1, 3}
    assert subject.control.states(["stuck-lso"]) == {TOPIC: PartitionState(1, (1, 3, 2), (1, 3))}


def test_leadership_is_transferred_until_every_broker_has_the_new_metadata(subject: Subject) -> None:
    path = "/v1/partitions/kafka/stuck-lso/0"
    subject.answer(path, {"leader_id": 1})
    subject.answer(f"{path}/transfer_leadership?target=2", None)
    assert not subject.control.leads({TOPIC: (2, 1, 3)})
    assert subject.asked("POST") == [(1, f"{path}/transfer_leadership?target=2", None)]
    subject.answer(path, {"leader_id": 2})
    subject.kafka.leaders = {1: 2, 2: 2, 3: 1}
    assert not subject.control.leads({TOPIC: (2, 1, 3)}), "broker 3 would send clients to broker 1"
    subject.kafka.leaders[3] = 2
    assert subject.control.leads({TOPIC: (2, 1, 3)})
    assert len(subject.asked("POST")) == 1


def test_a_refused_transfer_is_repeated(subject: Subject) -> None:
    path = "/v1/partitions/kafka/stuck-lso/0"
    subject.answer(path, {"leader_id": 1})
    subject.answer(f"{path}/transfer_leadership?target=2", {"message": "exponential backoff"}, 504)
    assert not subject.control.leads({TOPIC: (2, 1, 3)})


def test_the_coordinator_and_the_controller_lead_internal_partitions(subject: Subject) -> None:
    subject.answer("/v1/partitions/kafka_internal/tx/0", {"leader_id": 3})
    assert subject.control.coordinator == TX
    assert subject.control.leads({TX: (3, 1)})
    subject.answer("/v1/partitions/redpanda/controller/0", {"leader_id": 3})
    assert subject.control.active_controller() == 3


def test_topics_are_frozen_when_every_live_broker_has_the_configuration(subject: Subject) -> None:
    subject.answer("/v1/cluster_config", {INTERVAL: 60, "config_version": 7})
    subject.answer(
        "/v1/cluster_config/status", [{"node_id": b, "config_version": v} for b, v in ((1, 7), (2, 6), (3, 7))]
    )
    subject.control.freeze(["stuck-lso"])
    assert not subject.control.is_frozen(["stuck-lso"])
    subject.runtime.down.add(2)
    assert subject.control.is_frozen(["stuck-lso"])
    subject.control.thaw(["stuck-lso"], {})
    assert [body["upsert"] for _, _, body in subject.asked("PUT")] == [{INTERVAL: 86_400_000}, {INTERVAL: 60}]


def test_the_progress_of_compaction_has_kafka_offsets(subject: Subject) -> None:
    replicas = [
        {
            "raft_state": {"node_id": broker}, "high_watermark": 20, "last_stable_offset": 20, "committed_offset": 24,
            "max_cleanly_compacted_offset": compacted, "max_tombstone_removal_offset": 3,
        }
        for broker, compacted in ((1, 17), (2, -1), (3, None))
    ]  # fmt: skip
    subject.answer("/v1/debug/partition/kafka/stuck-lso/0", {"replicas": replicas})
    result = subject.control.compaction(TOPIC)
    assert {broker: value["cleaner_offset"] for broker, value in result.items()} == {1: 12, 2: 0, 3: 0}
    assert result[1]["cleanly_compacted"] == 17
    assert result[1]["tombstone_removable"] == 3
    assert result[1]["transaction_removable"] is None
    json.dumps(result)


@pytest.mark.parametrize(
    ("state", "removal", "expected"),
    [("active", True, (True, True)), ("unavailable", True, (False, True)), ("active", None, (True, False))],
)
def test_requirements_of_coordinated_compaction_are_reported(
    subject: Subject, state: str, removal: object, expected: tuple[bool, bool]
) -> None:
    assert tuple(subject.control.coordination().values()) == (False, False), "no broker answers"
    subject.answer("/v1/features", {"features": [{"name": "coordinated_compaction", "state": state}]})
    settings = {} if removal is None else {"log_compaction_tx_batch_removal_enabled": removal}
    subject.answer("/v1/cluster_config", settings)
    assert subject.control.coordination() == dict(
        zip(("coordinated_compaction", "log_compaction_tx_batch_removal_enabled"), expected, strict=True)
    )


def test_a_data_directory_has_an_id(subject: Subject) -> None:
    subject.answer("/v1/broker_uuids", [{"node_id": 1, "uuid": "a"}, {"node_id": 2, "uuid": "b"}])
    assert subject.control.identities() == {1: "a", 2: "b"}


def test_open_transactions_are_not_reported() -> None:
    nobody: Any = None
    assert WireReader(nobody, lists_open=False).open_transactions([TOPIC]) == {TOPIC: None}


def segment() -> bytes:
    batch = encode_batch(base_offset=0, records=[Record(0, 1000, b"K", b"V")])
    fields = (0, len(batch), 0, RAFT_DATA, *KAFKA_HEADER.unpack_from(batch)[4:])
    return HEADER.pack(*fields) + batch[61:]


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
def test_files_are_moved_and_those_of_a_broker_that_is_down_converted(
    subject: Subject, tmp_path: Path, *, is_up: bool
) -> None:
    (tmp_path / "0-1-v1.log").write_bytes(segment())
    subject.control.file_logs(tmp_path, is_up=is_up)
    assert (tmp_path / "redpanda" / "0-1-v1.log").read_bytes() == segment()
    logs = list(tmp_path.glob("*.log"))
    assert len(logs) == (0 if is_up else 1)
    for log in logs:
        (batch,) = iter_batches(log.read_bytes(), source="rewritten")
        assert batch.last_offset == 0


REDPANDA = [target.name for target in TARGETS.values() if target.system == "redpanda"]


@pytest.mark.parametrize("target", REDPANDA)
def test_settings_are_mapped_from_the_timers(target: str) -> None:
    test = plan_run(RunOptions(target, "stuck-lso", nemesis="partition", broker_settings={"x_y": "1"}))
    assert test.topic_settings == {
        "cleanup.policy": "compact", "delete.retention.ms": "300", "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.0",
    }  # fmt: skip
    assert test.broker_settings[INTERVAL] == "60"
    assert test.broker_settings["alive_timeout_ms"] == "1000"
    assert test.broker_settings["x_y"] == "1"
    assert ("log_compaction_tx_batch_removal_enabled" in test.broker_settings) is (target != "redpanda-25.2")
    assert not any("." in name for name in test.broker_settings), "those would be Kafka's"
    assert test.replicas["control", 0] == (1,), "Redpanda takes odd numbers of replicas only"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"replication_factor": 2}, "--replication-factor 2: Redpanda takes odd numbers only"),
        ({"brokers": 5, "absent": 2}, "--absent 2: with 3 replicas of a partition no majority is left"),
        ({"nemesis": "join"}, "--nemesis join: Redpanda cannot be put through it; choose kill, lossy, none, one-way"),
        ({"nemesis": "controller-kill"}, "--nemesis controller-kill: Redpanda cannot be put through it"),
    ],
)
def test_impossible_placements_are_rejected(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        plan_run(RunOptions("redpanda-25.3", "stuck-lso", **options))


def containers_of(target: str, path: Path, monkeypatch: pytest.MonkeyPatch, **spec: Any) -> ContainerCluster:
    settings = {INTERVAL: "60", "partition_autobalancing_mode": "off"}
    return ContainerCluster(target, path, monkeypatch, settings, **spec)


def test_brokers_get_properties_and_an_admin_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = containers_of("redpanda-26.2", tmp_path, monkeypatch)
    containers.runtime.start_cluster()
    ((words, variables),) = containers.composed
    assert words[-3:] == ("broker-1", "broker-2", "broker-3")
    assert variables["HARNESS_PORT_2"] == "19002"
    assert variables["HARNESS_ADMIN_PORT_2"] == str(containers.runtime.admin_address(2).port)
    uploads = containers.brokers[2].uploads["/etc/redpanda/.bootstrap.yaml"].decode()
    assert uploads == "log_compaction_interval_ms: 60\npartition_autobalancing_mode: off\n"
    assert all(container.calls == ["start"] for container in containers.brokers.values())


def test_a_partition_is_one_of_its_topics_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = containers_of("redpanda-26.2", tmp_path, monkeypatch)
    files = {
        "0_23/0-1-v1.log": b"ours",
        "0_23/0-1-v1.base_index": b"-",
        "0_23/0-1-v1.log.compaction.staging": b"-",
        "10_24/0-1-v1.log": b"another partition's",
    }
    containers.brokers[2].archives["/var/lib/redpanda/data/kafka/stuck-lso"] = [packed(files, "stuck-lso")]
    containers.runtime.start_cluster()
    containers.runtime.copy_partition(2, "stuck-lso", 0, tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {"0-1-v1.log": b"ours"}


def test_logins_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login: Any = SimpleNamespace(scram_user=None)
    with pytest.raises(UsageError, match="does not configure logins on Redpanda's brokers"):
        containers_of("redpanda-26.2", tmp_path, monkeypatch, security=login)


def test_kafkas_brokers_have_no_http_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = containers_of("kafka-4.4", tmp_path, monkeypatch)
    with pytest.raises(HarnessError, match="broker 1 has no HTTP API"):
        containers.runtime.admin_address(1)
