"""Snapshots over links that lose packets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from harness import snapshot
from harness.protocol.replica import ReplicaState
from harness.protocol.wire import Address
from harness.store import BEFORE_RETURN, RunFolder
from harness.systems.kafka import KafkaControl

if TYPE_CHECKING:
    from pathlib import Path

TP = ("stuck-lso", 0)


class Network:
    """Connections of which the first ``stalls`` stall at a Fetch."""

    def __init__(self, stalls: int) -> None:
        self.stalls = stalls
        self.opened = self.closed = 0

    def connect(self, _address: Address) -> Any:
        self.opened += 1
        return SimpleNamespace(stalls=self.opened <= self.stalls, close=self._close)

    def _close(self) -> None:
        self.closed += 1


def fetch_all(connection: Any, _held: Any, **_who: Any) -> dict[Any, ReplicaState]:
    if connection.stalls:
        raise TimeoutError("timed out")
    return {TP: ReplicaState(log_start=0, high_watermark=1, last_stable_offset=1, aborted=(), records=b"batch")}


def take(folder: Path, monkeypatch: pytest.MonkeyPatch, *, stalls: int) -> Network:
    network = Network(stalls)
    monkeypatch.setattr(snapshot, "Connection", network.connect)
    monkeypatch.setattr(snapshot, "fetch_all", fetch_all)
    runtime: Any = SimpleNamespace(
        brokers=(1,),
        copy_partition=lambda *_: None,
        copy_checkpoints=lambda *_: None,
        is_up=lambda _: True,
        address=lambda _: Address("127.0.0.1", 9092),
    )
    control = KafkaControl(runtime, runtime)
    monkeypatch.setattr(control, "open_transactions", lambda *_: {TP: ()})
    cluster: Any = SimpleNamespace(runtime=runtime, control=control, replicas={TP: (1,)})
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
