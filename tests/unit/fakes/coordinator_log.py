"""A coordinator's log as a list of keys and values: each record is a batch, its offset the place in the list."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import pytest


class Logged(Protocol):
    """A coordinator that stands in for a real one."""

    log: list[tuple[bytes, bytes | None]]


def batches(fake: Logged) -> Sequence[Any]:
    """Return the batches of its log."""
    return [SimpleNamespace(is_control=False, last_offset=n, n=n) for n in range(len(fake.log))]


def read_records_of(fake: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have producers read the records of these batches."""

    def records(batch: Any, *, source: str) -> Sequence[Any]:
        assert source
        key, value = fake.log[batch.n]
        return [SimpleNamespace(offset=batch.n, key=key, value=value)]

    monkeypatch.setattr("workloads.group_records.iter_records", records)
