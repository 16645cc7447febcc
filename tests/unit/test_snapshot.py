"""Snapshots over links that lose packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.cluster import FakeCluster
from fakes.connections import StallingReader

from harness.cluster import snapshot
from harness.run_folder.store import BEFORE_RETURN, RunFolder

if TYPE_CHECKING:
    from pathlib import Path


def take(folder: Path, monkeypatch: pytest.MonkeyPatch, *, stalls: int) -> StallingReader:
    network = StallingReader(stalls)
    cluster = FakeCluster({("stuck-lso", 0): (1,)})
    cluster.runtime.brokers = (1,)
    monkeypatch.setattr(cluster.control, "reader", network.reader)
    snapshot.take(cluster, RunFolder(folder), BEFORE_RETURN)
    return network


def test_what_stalls_is_fetched_over_another_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = take(tmp_path, monkeypatch, stalls=snapshot.FETCH_ATTEMPTS - 1)
    assert network.opened == network.closed == snapshot.FETCH_ATTEMPTS
    (stored,) = tmp_path.rglob("batches.bin")
    assert stored.read_bytes() == b"batch"


def test_half_a_snapshot_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError):
        take(tmp_path, monkeypatch, stalls=snapshot.FETCH_ATTEMPTS)
