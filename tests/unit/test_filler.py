"""The filler goes on where one of its transactions is refused, and gives up where that does not end."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from harness.clients import ClientError
from harness.clock import RealClock
from harness.errors import HarnessError
from harness.history import History
from harness.scenario import Phase
from workloads.filler import MOST_RENEWALS, Filler, FillerSpec

if TYPE_CHECKING:
    from pathlib import Path

    from harness.clients import Answered
    from harness.protocol.replica import TopicPartition

BOUND_S = 20.0


@dataclass
class FakeBrokers:
    """Refuses so many commits and aborts."""

    refusals: int
    ended: int = 0
    made: list[str] = field(default_factory=list)

    def make(self, transactional_id: str | None) -> FakeProducer:
        self.made.append(transactional_id or "")
        return FakeProducer(self)


@dataclass
class FakeProducer:
    brokers: FakeBrokers

    def init_transactions(self) -> None:
        """It has a producer id."""

    def begin_transaction(self) -> None:
        """It has begun."""

    def commit_transaction(self) -> None:
        if self.brokers.refusals:
            self.brokers.refusals -= 1
            raise ClientError("INVALID_TXN_STATE")
        self.brokers.ended += 1

    abort_transaction = commit_transaction

    def send(
        self, _to: TopicPartition, _key: str, _value: str | None, _headers: list[tuple[str, bytes]], answered: Answered
    ) -> None:
        answered(None, 0)

    def flush(self) -> int:
        return 0


def fill(brokers: FakeBrokers, path: Path, transactions: int) -> None:
    """Run the filler until so many transactions have ended."""
    clock = RealClock()
    with closing(History(path, clock)) as history:
        filler = Filler(FillerSpec([("t", 0)], seed=1, period_s=0.001), brokers.make, history, clock)
        filler.init()

        def is_enough() -> bool:
            filler.raise_if_failed()
            return brokers.ended >= transactions

        with filler.running(Phase.BEFORE):
            clock.wait_until(is_enough, BOUND_S, "transactions to end")


def test_a_refused_transaction_is_written_down_and_the_next_has_a_new_producer(tmp_path: Path) -> None:
    brokers = FakeBrokers(refusals=2)
    fill(brokers, tmp_path / "history.jsonl", transactions=5)
    assert len(brokers.made) == 3 + 2
    events = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [e["error"] for e in events if e["type"] == "info"] == ["INVALID_TXN_STATE"] * 2
    begun = [(e["transactional_id"], e["txn"]) for e in events if (e["f"], e["type"]) == ("begin", "ok")]
    assert len(begun) == len(set(begun))


def test_transactions_that_are_refused_again_and_again_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"the filler failed: .*INVALID_TXN_STATE"):
        fill(FakeBrokers(refusals=MOST_RENEWALS + 10), tmp_path / "history.jsonl", transactions=1)
