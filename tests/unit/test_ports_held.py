"""Ports of brokers that are down."""

import fcntl
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.host import ports


def test_a_port_of_a_broker_that_is_down_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(ports, "_HELD", {})
    (port,) = ports.free_ports(1)
    assert ports.free_ports(1, base=port) == [port], "the run's own"
    # Another process has its own table.
    monkeypatch.setattr(ports, "_HELD", {})
    with pytest.raises(UsageError, match=f"port {port} on 127.0.0.1 is taken"):
        ports.free_ports(1, base=port)
    with (tmp_path / "ports" / str(port)).open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
