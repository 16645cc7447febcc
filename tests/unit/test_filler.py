"""The filler after rejected transactions; and ballast, which a replica copies for longer than the window lasts."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from fakes.clients import FakeLibrary
from fakes.clock import TickingClock

from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.run_folder.history import History
from harness.schedules.scenario import Phase
from harness.schedules.timers import FAST, TIMERS, Timers
from workloads.filler import MOST_RENEWALS, RECORD_BYTES, Filler, write_ballast

BOUND_S = 20.0


def fill(library: FakeLibrary, path: Path, transactions: int) -> None:
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


PARTITIONS = [("s", 0), ("s", 1), ("t", 0)]


def written(tmp_path: Path, timers: Timers = FAST, seed: int = 1) -> FakeLibrary:
    library = FakeLibrary()
    with closing(History(tmp_path / f"history-{seed}.jsonl", TickingClock())) as history:
        write_ballast(PARTITIONS, timers, seed, library.make, history)
    return library


@pytest.mark.parametrize("timers", TIMERS.values(), ids=lambda timers: timers.name)
def test_copying_it_takes_longer_than_every_wait_until_the_end_of_the_window(tmp_path: Path, timers: Timers) -> None:
    for log in written(tmp_path, timers).logs.values():
        copied_s = sum(len(sent.value or "") for sent in log) / timers.copy_bytes_per_s
        assert copied_s >= timers.window_s + timers.settle_s
        assert copied_s - RECORD_BYTES / timers.copy_bytes_per_s < timers.window_s + timers.settle_s, "and no more"


def test_ballast_has_keys_that_are_written_once_and_values_of_its_seed_and_is_written_plainly(tmp_path: Path) -> None:
    library = written(tmp_path)
    assert list(library.logs) == PARTITIONS
    for log in library.logs.values():
        keys = [sent.key for sent in log]
        assert len(set(keys)) == len(keys)
        assert all(key.startswith("ballast.") for key in keys), "nobody else has such keys"
    values = [sent.value for sent in library.logs["s", 0]]
    assert len(set(values)) == len(values), "it cannot be compressed away"
    assert [sent.value for sent in written(tmp_path, seed=2).logs["s", 0]] != values
    with closing(History(tmp_path / "history-1.jsonl", TickingClock(), resumed=True)) as history:
        actual = {(event["part"], event["phase"], event.get("transactional_id")) for event in history.past}
        ends = [event["type"] for event in history.past]
    assert actual == {("ballast", "outage", None)}
    assert ends.count("ok") == ends.count("invoke")
