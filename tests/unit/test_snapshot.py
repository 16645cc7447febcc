"""Snapshots over links that lose packets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from harness import snapshot
from harness.protocol.replica import ReplicaState
from harness.store import BEFORE_RETURN, RunFolder
from harness.systems.kafka import KafkaControl

if TYPE_CHECKING:
    from pathlib import Path

TP = ("stuck-lso", 0)


class Network:
    """Readers of which the first ``stalls`` stall at a Fetch."""

    def __init__(self, stalls: int) -> None:
        self.stalls = stalls
        self.opened = self.closed = 0

    def reader(self, _broker: int) -> Network:
        self.opened += 1
        return self

    def open_transactions(self, _held: Any) -> dict[Any, tuple[()]]:
        return {TP: ()}

    def read(self, _held: Any, **_who: Any) -> dict[Any, ReplicaState]:
        if self.opened <= self.stalls:
            raise TimeoutError("timed out")
        return {TP: ReplicaState(log_start=0, high_watermark=1, last_stable_offset=1, aborted=(), records=b"batch")}

    def close(self) -> None:
        self.closed += 1


def take(folder: Path, monkeypatch: pytest.MonkeyPatch, *, stalls: int) -> Network:
    network = Network(stalls)
    runtime: Any = SimpleNamespace(
        brokers=(1,),
        copy_partition=lambda *_: None,
        copy_checkpoints=lambda *_: None,
        is_up=lambda _: True,
    )
    control = KafkaControl(runtime, runtime)
    monkeypatch.setattr(control, "reader", network.reader)
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
