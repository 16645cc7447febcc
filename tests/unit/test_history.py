"""The history of a run that continues after it was cut off: a single history, as if nothing had happened."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fakes.clients import FakeLibrary
from fakes.clock import TickingClock
from fakes.host import append_half_a_line

from harness.clients.recorded import RecordingProducer
from harness.errors import UsageError
from harness.run_folder.history import HEADER_OP, HEADER_TXN, History

TX = ("filler.tx", "filler", "filler.tx")
PLAIN = ("filler.plain", "filler")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write what one producer did before it was cut off: a committed transaction, and one just begun."""
    path = tmp_path / "history.jsonl"
    library = FakeLibrary()
    with closing(History(path, TickingClock())) as history:
        producer = RecordingProducer(library.make, history, *TX)
        producer.init()
        producer.begin()
        producer.put("t", 0, "K", "V")
        producer.commit()
        history.invoke(f="begin", process="filler.tx", part="filler", transactional_id="filler.tx", txn=2)
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def resumed(path: Path) -> closing[History]:
    return closing(History(path, TickingClock(), resumed=True))


@pytest.mark.parametrize("is_cut", [False, True])
def test_index_and_operation_go_on_and_a_line_that_was_being_written_is_cut_off(path: Path, *, is_cut: bool) -> None:
    written = lines(path)
    if is_cut:
        append_half_a_line(path)
    with resumed(path) as history:
        assert history.past == written
        history.complete("ok", history.invoke(f="poll", part="reader"))
    assert lines(path)[:-2] == written
    assert [line["index"] for line in lines(path)] == list(range(len(written) + 2))
    assert [line["op"] for line in lines(path)][-4:] == [4, 5, 6, 6]


def test_nothing_but_half_a_line_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append_half_a_line(path)
    with resumed(path) as history:
        assert history.past == []
        assert history.invoke(f="poll")["op"] == 1
    assert lines(path)[0]["index"] == 0


def test_a_broken_line_in_the_middle_is_not_passed_over(path: Path) -> None:
    first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, second[:20] + "\n", *rest]))
    with pytest.raises(UsageError, match=f"the run folder is damaged: {path} line 2: "):
        History(path, TickingClock(), resumed=True)


def test_only_a_history_that_exists_is_continued_and_only_if_the_run_is_resumed(path: Path) -> None:
    with pytest.raises(FileExistsError):
        History(path, TickingClock())
    path.unlink()
    with pytest.raises(UsageError, match=r"damaged: .*history\.jsonl: No such file"):
        History(path, TickingClock(), resumed=True)


def test_a_producer_numbers_its_transactions_on(path: Path) -> None:
    library = FakeLibrary()
    with resumed(path) as history:
        # A transaction that was begun and not answered counts, too.
        assert [history.last_txn(name) for name in ("filler.tx", "another", None)] == [2, 0, 0]
        producer = RecordingProducer(library.make, history, *TX)
        producer.init()
        producer.begin()
        producer.put("t", 0, "K", "V")
        RecordingProducer(library.make, history, *PLAIN).put("t", 0, "K", None)
    sent, plain = library.logs["t", 0]
    assert sent.headers[HEADER_TXN] == "filler.tx/3"
    assert set(plain.headers) == {HEADER_OP}
    assert [line.get("txn") for line in lines(path)[-8:]] == [2, 2, 3, 3, 3, 3, None, None]
    assert lines(path)[-1]["tombstone"] is True
