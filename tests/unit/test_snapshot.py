"""Snapshots over links that lose packets."""

import json
from pathlib import Path

import pytest
from fakes.admin import PARTITION
from fakes.cluster import FakeCluster
from fakes.connections import StallingReader

from harness.cluster import snapshot
from harness.kafka_api.metadata import PartitionState
from harness.run_folder.store import BEFORE_RETURN, RunFolder


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


def test_a_stalled_fetch_is_repeated_on_other_connections_and_then_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
