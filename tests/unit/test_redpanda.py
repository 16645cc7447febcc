"""Redpanda as a cluster is handled, on a stand-in of its admin API; its segments are read as Kafka's batches."""

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
from stored_markers import encode_marker

from harness.broker_files.segments.batches import HEADER as KAFKA_HEADER
from harness.broker_files.segments.batches import CorruptLogError, iter_batches, iter_records, marker
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.broker_files.segments.redpanda import HEADER, RAFT_DATA, is_segment, to_kafka
from harness.errors import HarnessError, UsageError
from harness.kafka_api import address, fetch, metadata
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


def test_the_isr_has_the_live_replicas_and_a_data_directory_has_an_id(subject: Subject) -> None:
    alive = [{"node_id": broker, "is_alive": broker != 2} for broker in (1, 2, 3)]
    subject.answer("/v1/brokers", alive)
    assert subject.control.registered() == {1, 3}
    assert subject.control.states(["stuck-lso"]) == {TOPIC: metadata.PartitionState(1, (1, 3, 2), (1, 3))}
    subject.answer("/v1/broker_uuids", [{"node_id": 1, "uuid": "a"}, {"node_id": 2, "uuid": "b"}])
    assert subject.control.identities() == {1: "a", 2: "b"}


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
    nobody = address.Address("127.0.0.1", 1)
    assert RedpandaAdmin(lambda: {1: nobody, 2: place}).config() == {"a": 1}
    with pytest.raises(HarnessError, match=f"no broker answers GET {CONFIG}"):
        RedpandaAdmin(lambda: {1: nobody}).config()
    subject.admins[1].answers[CONFIG] = (307, f"http://{place}{CONFIG}")
    assert subject.admin.config() == {"a": 1}


def test_the_coordinator_and_the_controller_lead_internal_partitions(subject: Subject) -> None:
    subject.answer("/v1/partitions/kafka_internal/tx/0", {"leader_id": 3})
    assert subject.control.coordinator == TX
    assert subject.control.leads({TX: (3, 1)})
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


@pytest.mark.parametrize(("state", "settings", "expected"), [
    ("active", {REMOVAL: True}, (True, True)),
    ("unavailable", {REMOVAL: True}, (False, True)),
    ("active", {REMOVAL: False}, (True, False)),
    ("active", {}, (True, False)),
])  # fmt: skip
def test_requirements_of_coordinated_compaction_are_reported(
    subject: Subject, state: str, settings: dict[str, bool], expected: tuple[bool, bool]
) -> None:
    names = ("coordinated_compaction", REMOVAL)
    assert subject.control.coordination() == dict.fromkeys(names, False), "no broker answers"
    features = [{"name": "audit_logging", "state": "active"}, {"name": "coordinated_compaction", "state": state}]
    subject.answer("/v1/features", {"features": features})
    subject.answer(CONFIG, settings)
    assert subject.control.coordination() == dict(zip(names, expected, strict=True))


def test_open_transactions_are_not_reported() -> None:
    nobody: Any = None
    assert fetch.WireReader(nobody, lists_open=False).open_transactions([TOPIC]) == {TOPIC: None}


def stored_batch(batch: bytes, raft_offset: int) -> bytes:
    fields = KAFKA_HEADER.unpack_from(batch)
    return HEADER.pack(0, len(batch), raft_offset, RAFT_DATA, *fields[4:]) + batch[KAFKA_HEADER.size :]


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
def test_files_are_moved_and_of_a_stopped_broker_converted(subject: Subject, tmp_path: Path, *, is_up: bool) -> None:
    segment = stored_batch(encode_batch(base_offset=0, records=[Record(0, 1000, b"K", b"V")]), 0)
    (tmp_path / "0-1-v1.log").write_bytes(segment)
    subject.control.file_logs(tmp_path, is_up=is_up)
    assert (tmp_path / "redpanda" / "0-1-v1.log").read_bytes() == segment
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


def test_redpanda_takes_no_logins_and_kafka_has_no_http_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login: Any = SimpleNamespace(scram_user=None)
    with pytest.raises(UsageError, match="does not configure logins on Redpanda's brokers"):
        containers_of("redpanda-26.2", tmp_path, monkeypatch, security=login)
    containers = containers_of("kafka-4.4", tmp_path, monkeypatch)
    with pytest.raises(HarnessError, match="broker 1 has no HTTP API"):
        containers.runtime.admin_address(1)


CONFIGURATION, TX_FENCE = 2, 10
EPOCH = 3


def own(kind: int, raft_offset: int, count: int = 1) -> bytes:
    body = b"whatever is in it"
    size = HEADER.size + len(body)
    return HEADER.pack(0, size, raft_offset, kind, 0, 0, count - 1, 0, 0, -1, -1, -1, count, *()) + body


def put_batch(offset: int, *keys: str, leader_epoch: int = EPOCH) -> bytes:
    records = [Record(offset + n, 1000, key.encode(), b"value") for n, key in enumerate(keys)]
    return encode_batch(base_offset=offset, records=records, producer_id=7, producer_epoch=0, is_transactional=True,
                        leader_epoch=leader_epoch)  # fmt: skip


def commit(offset: int) -> bytes:
    return encode_marker(
        base_offset=offset, producer_id=7, producer_epoch=0, commit=True, timestamp_ms=1, leader_epoch=EPOCH
    )


def test_offsets_are_those_of_clients_over_all_segments() -> None:
    first = own(CONFIGURATION, 0) + stored_batch(put_batch(0, "a"), 1) + own(CONFIGURATION, 2, count=2)
    second = stored_batch(put_batch(0, "b"), 4) + own(TX_FENCE, 5) + stored_batch(commit(0), 6)
    rewritten = to_kafka({"4-3-v1.log": second, "0-2-v1.log": first})
    batches = list(iter_batches(rewritten, source="rewritten"))
    assert [batch.base_offset for batch in batches] == [0, 1, 3], "a fence is a gap, a configuration is nothing"
    assert [batch.leader_epoch for batch in batches] == [2, 3, 3]
    assert [record.key for batch in batches[:2] for record in iter_records(batch, source="")] == [b"a", b"b"]
    assert marker(batches[2], source="") is not None


def test_segments_come_out_in_the_order_of_their_offsets_as_kafka_has_them_and_zeros_end_a_file() -> None:
    segments = {"10-1-v1.log": stored_batch(put_batch(10, "z"), 10), "9-1-v1.log": stored_batch(put_batch(9, "a"), 9)}
    assert [batch.base_offset for batch in iter_batches(to_kafka(segments), source="")] == [9, 10], "not of their names"
    segment = stored_batch(put_batch(0, "a", "b"), 0) + stored_batch(commit(2), 2) + bytes(4096)
    assert to_kafka({f"0-{EPOCH}-v1.log": segment}) == put_batch(0, "a", "b") + commit(2)


@pytest.mark.parametrize("kept", [30, HEADER.size + 3])
def test_a_batch_that_is_cut_is_reported_with_its_place_unless_it_is_the_last_one(kept: int) -> None:
    whole = stored_batch(put_batch(0, "a"), 0)
    cut = whole + stored_batch(put_batch(1, "b"), 1)[:kept]
    assert to_kafka({"0-1-v1.log": cut}) == put_batch(0, "a", leader_epoch=1), "the broker was killed while it wrote"
    with pytest.raises(CorruptLogError, match=r"0-1-v1\.log at byte \d+: batch is cut") as raised:
        to_kafka({"0-1-v1.log": cut, "2-1-v1.log": stored_batch(put_batch(2, "c"), 2)})
    assert (raised.value.cut, raised.value.position) == (True, len(whole))


def test_only_segments_are_segments_and_a_size_that_cannot_be_is_reported() -> None:
    names = ["0-1-v1.log", "12-3-v1.log", "0-1-v1.base_index", "0-1-v1.log.staging", "snapshot", "x-0-1-v1.log"]
    assert [name for name in names if is_segment(name)] == names[:2]
    with pytest.raises(CorruptLogError, match="impossible size 5"):
        to_kafka({"0-1-v1.log": HEADER.pack(0, 5, 0, RAFT_DATA, 0, 0, 0, 0, 0, -1, -1, -1, 1)})
