"""The filler continues after a rejected transaction, and gives up when rejections do not end."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from fakes.clients import FakeLibrary

from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.run_folder.history import History
from harness.schedules.scenario import Phase
from workloads.filler import MOST_RENEWALS, Filler

BOUND_S = 20.0


def fill(library: FakeLibrary, path: Path, transactions: int) -> None:
    """Run the filler until this number of transactions has ended."""
    clock = RealClock()
    with closing(History(path, clock)) as history:
        filler = Filler([("t", 0)], 1, 0.001, library.make, history, clock)
        filler.init()

        def is_enough() -> bool:
            filler.raise_if_failed()
            return library.ended >= transactions

        with filler.running(Phase.BEFORE):
            clock.wait_until(is_enough, BOUND_S, "transactions to end")


def test_a_refused_transaction_is_written_down_and_the_next_has_a_new_producer(tmp_path: Path) -> None:
    library = FakeLibrary(refusals=2)
    fill(library, tmp_path / "history.jsonl", transactions=5)
    assert library.made == 3 + 2
    events = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [e["error"] for e in events if e["type"] == "info"] == ["INVALID_TXN_STATE"] * 2
    begun = [(e["transactional_id"], e["txn"]) for e in events if (e["f"], e["type"]) == ("begin", "ok")]
    assert len(begun) == len(set(begun))


def test_transactions_that_are_refused_again_and_again_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"the filler failed: .*INVALID_TXN_STATE"):
        fill(FakeLibrary(refusals=MOST_RENEWALS + 10), tmp_path / "history.jsonl", transactions=1)
