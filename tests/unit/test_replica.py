"""One replica read over the wire, and snapshots over links that lose packets."""

import json
from pathlib import Path
from typing import Any, cast

import kafka.errors
import pytest
from fakes.admin import PARTITION
from fakes.brokers import FakeBroker, Held
from fakes.cluster import FakeCluster
from fakes.connections import SegmentConnection, StallingReader
from sample_logs import small_batch as batch

from harness.broker_files.segments.batches import CorruptLogError
from harness.cluster import snapshot
from harness.errors import HarnessError
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import CONSUMER_REPLICA_ID, DEBUG_REPLICA_ID, ReplicaEnds, ReplicaState, WireReader
from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.transactions import OpenTransaction
from harness.run_folder.store import BEFORE_RETURN, RunFolder

TP, OTHER = ("t", 0), ("t", 1)
NOT_HERE = kafka.errors.NotLeaderForPartitionError.errno


def fetched(connection: SegmentConnection, *partitions: tuple[str, int], **more: int) -> dict[tuple[str, int], Any]:
    return WireReader(connection).read(partitions or (TP,), **more)


def test_a_log_of_several_segments_is_read_to_its_end_and_an_empty_one_ends_where_it_starts() -> None:
    connection = SegmentConnection({TP: [(2, batch(0) + batch(1)), (3, batch(2))]})
    assert fetched(connection)[TP] == ReplicaState(0, 9, 8, (), batch(0) + batch(1) + batch(2))
    assert fetched(connection)[TP].log_end == 3
    assert connection.asked[:3] == [(DEBUG_REPLICA_ID, offset) for offset in (0, 2, 3)]
    assert fetched(SegmentConnection())[TP].records == b""
    assert ReplicaState(7, 7, 7, (), b"").log_end == 7


def test_a_batch_that_an_answer_cuts_off_is_asked_for_again_and_what_is_no_batch_is_damage() -> None:
    connection = SegmentConnection({TP: [(1, batch(0) + batch(1)[:30]), (2, batch(1))]})
    assert fetched(connection)[TP].records == batch(0) + batch(1)
    damaged = batch(0)[:-1] + b"\xff"
    with pytest.raises(CorruptLogError):
        fetched(SegmentConnection({TP: [(1, damaged)]}))


def test_one_partition_that_is_not_served_does_not_hide_another() -> None:
    connection = SegmentConnection({TP: [(1, batch(0))]}, errors={OTHER: NOT_HERE})
    result = fetched(connection, TP, OTHER)
    assert (result[TP].records, result[OTHER]) == (batch(0), "NotLeaderForPartitionError")
    ends = WireReader(connection).ends({TP: 0, OTHER: 0})
    assert ends == {TP: ReplicaEnds(1, 9, 8), OTHER: "NotLeaderForPartitionError"}
    with pytest.raises(HarnessError, match=r"t-1 at 127\.0\.0\.1:9092: NotLeaderForPartitionError"):
        WireReader(connection).open_transactions([TP, OTHER])


def test_the_end_of_a_replica_is_found_from_the_offset_that_it_is_known_to_reach() -> None:
    connection = SegmentConnection({TP: [(2, batch(0) + batch(1)), (3, batch(2))]})
    assert WireReader(connection).ends({TP: 1}) == {TP: ReplicaEnds(3, 9, 8)}
    assert connection.asked == [(DEBUG_REPLICA_ID, offset) for offset in (1, 2, 3)]
    assert WireReader(connection).ends({TP: 3}) == {TP: ReplicaEnds(3, 9, 8)}


@pytest.mark.parametrize("position", [0, 9])
def test_a_log_whose_first_records_were_deleted_is_read_from_where_it_starts(position: int) -> None:
    broker = FakeBroker({TP: [Held(7, 7, log_start=5, batches=(batch(5), batch(6)))]})
    reader = WireReader(cast("Connection", broker))
    state = reader.read([TP])[TP]
    assert isinstance(state, ReplicaState)
    assert (state.log_start, state.log_end, state.records) == (5, 7, batch(5) + batch(6))
    assert reader.ends({TP: position}) == {TP: ReplicaEnds(7, 7, 7)}


@pytest.mark.parametrize("log_start", [0, 5])
def test_replicas_are_read_to_their_ends_where_the_first_of_them_use_up_the_answers(log_start: int) -> None:
    batches = batch(log_start), batch(log_start + 1)
    held = Held(log_start + 2, log_start + 2, log_start=log_start, batches=batches)
    broker = FakeBroker({tp: [held] for tp in (TP, OTHER, ("u", 0))}, answer_bytes=len(batches[0]))
    reader = WireReader(cast("Connection", broker))
    states = reader.read(broker.states).values()
    assert [isinstance(state, ReplicaState) and state.records for state in states] == [b"".join(batches)] * 3
    ends = reader.ends(dict.fromkeys(broker.states, 0)).values()
    assert [isinstance(end, ReplicaEnds) and end.log_end for end in ends] == [log_start + 2] * 3


def test_who_does_not_say_where_a_log_starts_leaves_it_unread() -> None:
    follower = FakeBroker({TP: [Held(7, 7, log_start=5)]}, is_redpanda_follower=True)
    assert WireReader(cast("Connection", follower)).read([TP]) == {TP: "OffsetOutOfRangeError"}


def test_aborted_transactions_are_reported_once_and_only_producers_with_one_hold_one_open() -> None:
    connection = SegmentConnection({TP: [(1, batch(0)), (2, batch(1))]}, held=Held(9, 8, aborted=((5, 0), (6, 3))))
    state = fetched(connection, replica_id=CONSUMER_REPLICA_ID)[TP]
    assert state.aborted == ((5, 0), (6, 3))
    assert {replica_id for replica_id, _ in connection.asked} == {CONSUMER_REPLICA_ID}
    producers = (OpenTransaction(5, 0, 10), OpenTransaction(6, 2, -1), OpenTransaction(7, 1, 0))
    connection = SegmentConnection(held=Held(9, 8, open=producers))
    assert WireReader(connection).open_transactions([TP]) == {TP: (OpenTransaction(5, 0, 10), OpenTransaction(7, 1, 0))}


def take(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, stalls: int = 0, state: PartitionState | None = None
) -> StallingReader:
    network = StallingReader(stalls)
    cluster = FakeCluster({PARTITION: (1,)})
    cluster.admin.states = {} if state is None else {PARTITION: state}
    cluster.runtime.brokers = (1,)
    monkeypatch.setattr(cluster.control, "reader", network.reader)
    snapshot.take(cluster, RunFolder(folder), BEFORE_RETURN)
    return network


def test_a_stalled_fetch_is_repeated_and_then_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = take(tmp_path, monkeypatch, stalls=snapshot.FETCH_ATTEMPTS - 1)
    assert network.opened == network.closed == snapshot.FETCH_ATTEMPTS
    (stored,) = tmp_path.rglob("batches.bin")
    assert stored.read_bytes() == b"batch"
    with pytest.raises(TimeoutError):
        take(tmp_path, monkeypatch, stalls=snapshot.FETCH_ATTEMPTS)


def test_a_snapshot_has_the_leader_where_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = {"leader": 3, "leader_epoch": 7}
    for state, fields in ((PartitionState(3, (1,), (1,), 7), leader), (None, {})):
        take(tmp_path, monkeypatch, state=state)
        (stored,) = tmp_path.rglob("state.json")
        content = json.loads(stored.read_text())
        assert {name: content[name] for name in content if name.startswith("leader")} == fields
