"""A coordinator's log as a list of keys and values: each record is a batch, its offset the place in the list."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from harness.kafka_api import TopicPartition


@dataclass
class LoggedCoordinator:
    """A coordinator of one partition, and the calls of it."""

    partition: TopicPartition
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def batches(self, partition: TopicPartition) -> Sequence[Any]:
        assert partition == self.partition
        return [SimpleNamespace(is_control=False, last_offset=n, n=n) for n in range(len(self.log))]


Fake = TypeVar("Fake", bound=LoggedCoordinator)


def read_records_of(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Have producers read the records of its batches; return it."""

    def records(batch: Any, *, source: str) -> Sequence[Any]:
        assert source
        key, value = fake.log[batch.n]
        return [SimpleNamespace(offset=batch.n, key=key, value=value)]

    monkeypatch.setattr("workloads.group_records.iter_records", records)
    return fake
