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
from harness.kafka_api.address import Address
from harness.kafka_api.fetch import WireReader
from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.redpanda_admin import RedpandaAdmin
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.systems.redpanda import RedpandaControl
from harness.targets import TARGETS

TX = ("tx", 0)
INTERVAL, REMOVAL = "log_compaction_interval_ms", "log_compaction_tx_batch_removal_enabled"
CONFIG, LEADER = "/v1/cluster_config", "/v1/partitions/kafka/stuck-lso/0"
TRANSFER = f"{LEADER}/transfer_leadership?target=2"


class Subject:
    """A control, an admin client, and the servers that they ask."""

    def __init__(self, admins: dict[int, FakeServer]) -> None:
        self.admins, self.kafka = admins, LeaderAdmin()
        self.runtime = FakeRuntime(admin_ports={broker: admin.port for broker, admin in admins.items()})
        self.control = RedpandaControl(self.runtime, self.kafka)
        self.admin = RedpandaAdmin(lambda: {broker: self.runtime.admin_address(broker) for broker in admins})

    def answer(self, path: str, body: Any, status: int = 200) -> None:
        for admin in self.admins.values():
            admin.answers[path] = (status, body)

    def asked(self, method: str) -> list[tuple[int, str, Any]]:
        return [(b, path, body) for b, admin in self.admins.items() for m, path, body in admin.asked if m == method]


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
    subject.answer(LEADER, {"leader_id": 3, "raft_group_id": 5})
    subject.answer(TRANSFER, None)
    assert not subject.control.leads({TOPIC: (2, 1, 3)})
    assert subject.asked("POST") == [(3, TRANSFER, None)], "the leader is asked"
    subject.answer(LEADER, {"leader_id": 2})
    subject.kafka.leaders = {1: 2, 2: 2, 3: 1}
    assert not subject.control.leads({TOPIC: (2, 1, 3)}), "broker 3 would send clients to broker 1"
    subject.kafka.leaders[3] = 2
    assert subject.control.leads({TOPIC: (2, 1, 3)})
    subject.admin.transfer_leadership(TOPIC, 2)
    assert len(subject.asked("POST")) == 1, "a broker that leads already gets no request"


def test_a_refused_transfer_is_reported_in_the_brokers_words_and_repeated(subject: Subject) -> None:
    subject.answer(LEADER, {"leader_id": 1})
    subject.answer(TRANSFER, {"message": "exponential backoff", "code": 504}, 504)
    assert not subject.control.leads({TOPIC: (2, 1, 3)})
    with pytest.raises(HarnessError, match=r"504 .*exponential backoff"):
        subject.admin.transfer_leadership(TOPIC, 2)
    subject.answer(LEADER, {"leader_id": -1})
    with pytest.raises(HarnessError, match="stuck-lso-0 has no leader that could give way to broker 2"):
        subject.admin.transfer_leadership(TOPIC, 2)


def test_a_silent_broker_is_passed_over_and_redirects_are_followed(subject: Subject) -> None:
    place = subject.runtime.admin_address(2)
    subject.admins[2].answers[CONFIG] = (200, {"a": 1})
    nobody = Address("127.0.0.1", 1)
    assert RedpandaAdmin(lambda: {1: nobody, 2: place}).config() == {"a": 1}
    with pytest.raises(HarnessError, match=f"no broker answers GET {CONFIG}"):
        RedpandaAdmin(lambda: {1: nobody}).config()
    subject.admins[1].answers[CONFIG] = (307, f"http://{place}{CONFIG}")
    assert subject.admin.config() == {"a": 1}


def test_the_coordinator_and_the_controller_lead_internal_partitions(subject: Subject) -> None:
    subject.answer("/v1/partitions/kafka_internal/tx/0", {"leader_id": 3})
    assert subject.control.coordinator == TX
    assert subject.control.leads({TX: (3, 1)})
    ntp = {"namespace": "kafka_internal", "topic": "tx", "partition": 0}
    subject.answer("/v1/transaction/stuck-lso.tx/find_coordinator", {"coordinator": 3, "ntp": ntp})
    assert subject.admin.coordinator("stuck-lso.tx") == (TX, 3)
    subject.answer("/v1/partitions/redpanda/controller/0", {"leader_id": 3})
    assert subject.control.active_controller() == 3


def test_topics_are_frozen_when_every_live_broker_has_the_configuration(subject: Subject) -> None:
    subject.answer(CONFIG, {INTERVAL: 60, "config_version": 7})
    versions = [{"node_id": broker, "config_version": version} for broker, version in ((1, 7), (2, 6), (3, 7))]
    subject.answer(f"{CONFIG}/status", versions)
    subject.control.freeze(["stuck-lso"])
    assert not subject.control.is_frozen(["stuck-lso"])
    subject.runtime.down.add(2)
    assert subject.control.is_frozen(["stuck-lso"])
    subject.control.thaw(["stuck-lso"], {})
    changes = [{"upsert": {INTERVAL: interval_ms}, "remove": []} for interval_ms in (86_400_000, 60)]
    assert subject.asked("PUT") == [(1, CONFIG, change) for change in changes]


def test_the_progress_of_compaction_has_kafka_offsets(subject: Subject) -> None:
    replicas = [
        {
            "raft_state": {"node_id": broker}, "high_watermark": 20, "last_stable_offset": 19, "committed_offset": 24,
            "max_cleanly_compacted_offset": compacted, **tombstones, "max_transaction_removable_offset": -1,
        }
        for broker, compacted, tombstones in (
            (1, 17, {"max_tombstone_removable_offset": 3}), (2, -1, {"max_tombstone_removal_offset": 4}), (3, None, {}),
        )
    ]  # fmt: skip
    subject.answer("/v1/debug/partition/kafka/stuck-lso/0", {"replicas": replicas})
    result = subject.control.compaction(TOPIC)
    assert {broker: value["cleaner_offset"] for broker, value in result.items()} == {1: 12, 2: 0, 3: 0}
    assert [value["tombstone_removable"] for value in result.values()] == [3, 4, None], "names of two versions"
    assert [value["cleanly_compacted"] for value in result.values()] == [17, -1, None]
    assert (result[1]["transaction_free"], result[1]["transaction_removable"]) == (None, -1)
    assert (result[1]["high_watermark"], result[1]["last_stable_offset"]) == (20, 19)
    json.dumps(result)


@pytest.mark.parametrize(
    ("state", "settings", "expected"),
    [
        ("active", {REMOVAL: True}, (True, True)),
        ("unavailable", {REMOVAL: True}, (False, True)),
        ("active", {REMOVAL: False}, (True, False)),
        ("active", {}, (True, False)),
    ],
)
def test_requirements_of_coordinated_compaction_are_reported(
    subject: Subject, state: str, settings: dict[str, bool], expected: tuple[bool, bool]
) -> None:
    names = ("coordinated_compaction", REMOVAL)
    assert subject.control.coordination() == dict.fromkeys(names, False), "no broker answers"
    features = [{"name": "audit_logging", "state": "active"}, {"name": "coordinated_compaction", "state": state}]
    subject.answer("/v1/features", {"features": features})
    subject.answer(CONFIG, settings)
    assert subject.control.coordination() == dict(zip(names, expected, strict=True))


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
    batches = [list(iter_batches(log.read_bytes(), source="rewritten")) for log in tmp_path.glob("*.log")]
    assert [[batch.last_offset for batch in log] for log in batches] == ([] if is_up else [[0]])


@pytest.mark.parametrize("target", [target.name for target in TARGETS.values() if target.system == "redpanda"])
def test_settings_are_mapped_from_the_timers(target: str) -> None:
    test = plan_run(RunOptions(target, "stuck-lso", nemesis="partition", broker_settings={"x_y": "1"}))
    assert test.topic_settings == {
        "cleanup.policy": "compact", "delete.retention.ms": "300", "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.0",
    }  # fmt: skip
    assert {INTERVAL: "60", "alive_timeout_ms": "1000", "x_y": "1"}.items() <= test.broker_settings.items()
    assert (REMOVAL in test.broker_settings) is (target != "redpanda-25.2")
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
    segment, *others = (f"0_23/0-1-v1.{suffix}" for suffix in ("log", "base_index", "log.compaction.staging"))
    files = {segment: b"ours", **dict.fromkeys(others, b"-"), "10_24/0-1-v1.log": b"another partition's"}
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
