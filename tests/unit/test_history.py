"""The files that a resumed run continues: a single history and single observations, as if nothing had happened."""

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fakes.clients import FakeLibrary
from fakes.clock import NOW_MS, TickingClock
from fakes.host import append_half_a_line
from fakes.runtime import FakeRuntime

from harness.clients.recorded import RecordingProducer
from harness.cluster.observe import ObservedReplica, ReplicaObserver
from harness.errors import UsageError
from harness.run_folder.history import HEADER_OP, HEADER_TXN, History, read_lines

TX = ("filler.tx", "filler", "filler.tx")


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


def test_only_the_incomplete_line_is_touched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = path.read_bytes()
    append_half_a_line(path)
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    read_lines(path)
    assert path.read_bytes() == written, "a kill or a full disk must not lose the complete lines"


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


def test_only_a_whole_history_that_exists_is_continued_and_only_if_the_run_is_resumed(path: Path) -> None:
    first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, second[:20] + "\n", *rest]))
    with pytest.raises(UsageError, match=f"the run folder is damaged: {path} line 2: "):
        History(path, TickingClock(), resumed=True)
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
        RecordingProducer(library.make, history, "filler.plain", "filler").put("t", 0, "K", None)
    sent, plain = library.logs["t", 0]
    assert sent.headers[HEADER_TXN] == "filler.tx/3"
    assert set(plain.headers) == {HEADER_OP}
    assert [line.get("txn") for line in lines(path)[-8:]] == [2, 2, 3, 3, 3, 3, None, None]
    assert lines(path)[-1]["tombstone"] is True


TP = ("stuck-lso", 0)
OTHER = ("stuck-lso", 1)
PRODUCER = 5
View = dict[int, tuple[str, int]]
Observe = Callable[..., ReplicaObserver]

VALUE, COMMIT, EMPTY, FILLER = ("value", PRODUCER), ("commit", PRODUCER), ("empty", PRODUCER), ("value", -1)
WHOLE = {0: VALUE, 1: FILLER, 2: COMMIT, 3: FILLER}
EMPTIED = {0: VALUE, 1: FILLER, 2: EMPTY, 3: FILLER}
REMOVED = {0: VALUE, 1: FILLER, 3: FILLER}


def view(present: View, log_end: int = 4) -> ObservedReplica:
    return ObservedReplica(0, log_end, log_end, log_end, present=present)


@pytest.fixture
def observe(tmp_path: Path) -> Iterator[Observe]:
    """Make an observer that looks at nothing by itself; one after another they write one file."""
    made: list[ReplicaObserver] = []

    def make(*, resumed: bool = True) -> ReplicaObserver:
        runtime = FakeRuntime()
        path, clock = tmp_path / "observations.jsonl", TickingClock()
        replicas = dict.fromkeys((TP, OTHER), runtime.brokers)
        nobody: Any = None
        made.append(ReplicaObserver(runtime, replicas, path, clock, period_s=1, reader=nobody, resumed=resumed))
        return made[-1]

    yield make
    for observer in made:
        observer.close()


def test_every_replica_has_its_last_view(observe: Observe, tmp_path: Path) -> None:
    first = observe(resumed=False)
    first._take(1, TP, view(WHOLE))
    first._take(1, TP, view({**REMOVED, 4: FILLER}, log_end=5))
    first._take(2, TP, view({0: VALUE}, log_end=1))
    first._take(1, OTHER, view({0: FILLER}, log_end=1))
    append_half_a_line(tmp_path / "observations.jsonl")
    subject = observe()
    assert subject.view(1, TP) == view({**REMOVED, 4: FILLER}, log_end=5)
    assert subject.view(2, TP) == view({0: VALUE}, log_end=1)
    assert subject.view(1, OTHER) == view({0: FILLER}, log_end=1)
    assert subject.view(3, TP) is None
    assert not subject.looked_since(1, 0.0), "polls of an earlier process do not count"
    subject._take(2, TP, view({0: VALUE, 1: FILLER}, log_end=2))
    assert len(lines(tmp_path / "observations.jsonl")) == 5, "the half of a line is cut off"


@pytest.mark.parametrize("last", [WHOLE, EMPTIED, REMOVED], ids=["whole", "emptied", "removed"])
def test_earlier_markers_and_removals_are_remembered(observe: Observe, last: View) -> None:
    first = observe(resumed=False)
    for present in (WHOLE, last):
        first._take(1, TP, view(present))
    first._take(2, TP, view({0: VALUE}, log_end=1))
    subject = observe()
    assert subject.seen(TP) == WHOLE
    assert subject.marker_after(TP, 0) == 2
    assert subject.is_removed(1, TP, 2) == (2 not in last)
    assert not subject.is_removed(1, TP, 0), "it is there"
    assert not subject.is_removed(2, TP, 2), "that replica never got there"
    assert not subject.is_removed(3, TP, 2), "nobody has looked at that replica"


def test_an_emptied_marker_keeps_its_kind_and_another_empty_batch_is_no_marker(observe: Observe) -> None:
    first = observe(resumed=False)
    first._take(1, TP, view(WHOLE))
    first._take(1, OTHER, view(EMPTIED))
    subject = observe()
    subject._take(1, TP, view(EMPTIED))
    assert subject.seen(TP)[2] == COMMIT
    assert observe().seen(TP)[2] == COMMIT, "and when the run is resumed once more"
    assert 2 not in subject.seen(OTHER)
    assert subject.marker_after(OTHER, 0) is None


def test_removals_during_an_interruption_are_written_at_the_first_poll(observe: Observe, tmp_path: Path) -> None:
    observe(resumed=False)._take(1, TP, view(WHOLE))
    subject = observe()
    subject._take(1, TP, view({**REMOVED, 4: FILLER}, log_end=5))
    assert len(lines(tmp_path / "observations.jsonl")) == 2
    line = lines(tmp_path / "observations.jsonl")[-1]
    assert line["time_ms"] == NOW_MS
    assert line["removed"] == [{"offset": 2, "kind": "commit"}]
    assert line["appeared"] == [{"offset": 4, "kind": "value", "producer_id": -1}], "the rest had appeared before"


def test_an_unchanged_view_is_written_once_and_a_new_replica_as_a_whole(observe: Observe, tmp_path: Path) -> None:
    first = observe(resumed=False)
    for _ in range(3):
        first._take(1, TP, view(WHOLE))
    assert len(lines(tmp_path / "observations.jsonl")) == 1
    with pytest.raises(FileExistsError):
        observe(resumed=False)
    observe()._take(3, TP, view(WHOLE))
    assert [entry["offset"] for entry in lines(tmp_path / "observations.jsonl")[-1]["appeared"]] == [0, 1, 2, 3]


def test_the_longest_silence_of_any_broker(observe: Observe) -> None:
    subject = observe(resumed=False)
    now_s = subject._clock.now_s()
    subject._started_s = now_s - 9
    assert 9 <= subject.longest_silence_s(now_s - 20) < 9.5, "no broker has answered since the first poll"
    subject._answered_s = {broker: [now_s - 6, now_s - 5, now_s - 1] for broker in (1, 2, 3)}
    assert 4 <= subject.longest_silence_s(now_s - 6.5) < 4.5
    subject._answered_s[2] = [now_s - 6]
    assert subject.longest_silence_s(now_s - 6.5) >= 6
