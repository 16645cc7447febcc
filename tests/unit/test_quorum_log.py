"""The metadata log as an audit fetches it from a controller: which records, from whom, and what a refusal says."""

from pathlib import Path

import pytest
from fakes.controllers import CLUSTER_ID, EPOCH, FakeQuorum
from kafka.protocol.consumer import FetchRequest
from metadata_logs import change, encode_log, encode_snapshot, partition, register, topic

from harness.audit.live.metadata_log import fetch_metadata_log, verify_controllers
from harness.broker_files.metadata_log.join import JoinedLog
from harness.errors import HarnessError, UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.quorum import METADATA_TOPIC_ID, LogPosition, fetch_metadata, fetch_snapshot

ONE, LEADER, BROKER, NOBODY = (Address("c", port) for port in (1, 3, 9, 101))
STATE = [topic("t"), partition("t", 0, (1, 2, 3))]
LOG = [register(1, 0), *STATE, change("t", 0, isr=(1, 3)), change("t", 0, isr=(1, 2, 3))]
NOT_FETCHED = "the metadata log could not be fetched from a controller"


def fetched(quorum: FakeQuorum, folder: Path, *controllers: Address) -> JoinedLog:
    return fetch_metadata_log(quorum.client(), controllers or (LEADER,), CLUSTER_ID, folder / "log", {"t"})


def isrs(joined: JoinedLog) -> list[tuple[int, ...]]:
    assert joined.metadata is not None, joined.notes
    return [state.isr for state in joined.metadata.histories["t", 0].states]


def test_a_whole_log_is_fetched_but_the_first_election(tmp_path: Path) -> None:
    joined = fetched(FakeQuorum(LOG), tmp_path)
    assert joined.notes == ()
    assert isrs(joined) == [(1, 2, 3), (1, 3), (1, 2, 3)]
    assert joined.metadata is not None
    assert joined.metadata.histories["t", 0].since_creation
    (stored,) = (tmp_path / "log").iterdir()
    assert (stored.name, stored.read_bytes()) == (f"{0:020}.log", encode_log(LOG[1:], first_offset=1))


@pytest.mark.parametrize("snapshot_epoch", [0, 2, EPOCH])
def test_a_log_that_starts_later_is_fetched_from_its_oldest_snapshot_on(tmp_path: Path, snapshot_epoch: int) -> None:
    """No answer has the epoch of the oldest snapshot."""
    quorum = FakeQuorum(LOG[3:], first_offset=40, snapshots={40: STATE, 41: STATE}, snapshot_epoch=snapshot_epoch)
    joined = fetched(quorum, tmp_path)
    assert isrs(joined) == [(1, 2, 3), (1, 3), (1, 2, 3)]
    snapshot = tmp_path / "log" / f"{40:020}-{snapshot_epoch:010}.checkpoint"
    assert snapshot.read_bytes() == encode_snapshot(STATE)
    assert sum(name == "FetchSnapshotRequest" for _, name, _ in quorum.asked) > 1


def test_records_above_the_high_watermark_are_left_out(tmp_path: Path) -> None:
    assert isrs(fetched(FakeQuorum(LOG, high_watermark=4), tmp_path)) == [(1, 2, 3), (1, 3)]
    (note,) = fetched(FakeQuorum(LOG, high_watermark=-1), tmp_path / "elected").notes
    assert "was just elected" in note


def test_a_controller_that_does_not_lead_names_the_leader_or_every_controller_is_asked(tmp_path: Path) -> None:
    quorum = FakeQuorum(LOG)
    assert fetched(quorum, tmp_path, ONE).metadata is not None
    assert [port for port, *_ in quorum.asked[:4]] == [1, 1, 3, 3]
    quorum = FakeQuorum(LOG, names_leader=False)
    assert fetched(quorum, tmp_path / "all", NOBODY, ONE, LEADER).metadata is not None
    failed = fetched(quorum, tmp_path / "second", ONE)
    assert failed == JoinedLog(None, (f"{NOT_FETCHED}: c:1: NotLeaderForPartitionError",))


@pytest.mark.parametrize(("moves", "is_fetched"), [(2, True), (3, False)])
def test_a_log_whose_start_moves_is_fetched_again(tmp_path: Path, moves: int, *, is_fetched: bool) -> None:
    joined = fetched(FakeQuorum(LOG, moves=moves), tmp_path)
    assert (joined.metadata is not None) == is_fetched
    assert is_fetched or "serves nothing from offset 3 on" in joined.notes[0]


def test_a_user_without_the_right_gets_a_note(tmp_path: Path) -> None:
    quorum = FakeQuorum(LOG, denied=True)
    for controllers in ([], [LEADER]):
        verify_controllers(quorum.client(), controllers, CLUSTER_ID)
    (note,) = fetched(quorum, tmp_path).notes
    assert note == f"{NOT_FETCHED}: c:3: this user does not have ClusterAction on the cluster"


@pytest.mark.parametrize(("address", "cluster_id", "words"), [
    (BROKER, CLUSTER_ID, "c:9: it is a listener of a broker, not of a controller"),
    (LEADER, "another", "c:3: it is a controller of another cluster"),
    (NOBODY, CLUSTER_ID, "c:101: .*Connection refused"),
])  # fmt: skip
def test_an_address_of_no_controller_of_this_cluster_is_rejected(address: Address, cluster_id: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"--controllers: {words}"):
        verify_controllers(FakeQuorum(LOG).client(), [address], cluster_id)


def test_requests_are_those_of_an_observer() -> None:
    """Bytes: KIP-595 and KIP-630, by ``FetchRequest.json`` and ``FetchSnapshotRequest.json`` of Kafka 4.4."""
    asked = fetch_metadata(LogPosition(7, 4), quorum_epoch=5, cluster_id="id", version=17).message
    asked.with_header(correlation_id=1, client_id="c")
    decoded = FetchRequest.decode(asked.encode(header=False), version=17, header=False)
    (topic,) = decoded.topics
    assert (decoded.cluster_id, topic.topic_id) == ("id", METADATA_TOPIC_ID)
    assert decoded.replica_state is None or decoded.replica_state.replica_id == -1
    (at,) = topic.partitions
    assert (at.partition, at.fetch_offset, at.last_fetched_epoch, at.current_leader_epoch) == (0, 7, 4, 5)
    snapshot = fetch_snapshot(LogPosition(40, 2), 100, quorum_epoch=5, cluster_id="id").message
    snapshot.with_header(correlation_id=1, client_id="c")
    assert bytes(snapshot.encode(header=False)) == bytes.fromhex(
        "ffffffff 04000000 02 13 5f5f636c75737465725f6d65746164617461 02"
        "00000000 00000005 0000000000000028 00000002 00 0000000000000064 00 00"
        "01 00 03 03 6964"
    )


def test_an_answer_without_the_partition_is_an_error() -> None:
    connection = FakeQuorum(LOG).client().connect(LEADER)
    with pytest.raises(HarnessError, match="InconsistentClusterIdError"):
        connection.ask(fetch_metadata(LogPosition(0, 0), quorum_epoch=0, cluster_id="x", version=17))
