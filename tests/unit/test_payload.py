"""The payload: every step in each partition, and where what must vanish lies, also after a run was cut off."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.clients import FakeLibrary
from fakes.clock import TickingClock
from fakes.observer import FakeObserver

from harness.errors import HarnessError
from harness.run_folder.history import HEADER_TXN, History
from harness.schedules.catalog import CONTROL, SCENARIOS, Anomaly, abort, commit, delete, put
from harness.schedules.operations import Write
from harness.schedules.scenario import Critical, Phase, Scenario
from workloads.payload import Payload

SCENARIO = Scenario(
    name="s",
    anomaly=Anomaly.COMMITTED_TO_ABORTED,
    payload="delete",
    summary="A plain value, and a transaction that the outage ends; then a delete.",
    before=(put("plain", "K", "old"), put("tx", "L", "new")),
    outage=(commit("tx"), delete("plain", "K")),
    late=(put("tx", "garbage", "g"), abort("tx")),
)
STARTS = {("s", 0): 10, ("s", 1): 20, ("s", 2): 30}
OBSERVER = FakeObserver(TickingClock())


@dataclass
class Subject:
    """A payload of three partitions that begin at different offsets, and its history."""

    history: History
    library: FakeLibrary
    payload: Payload

    def __init__(
        self, folder: Path, scenario: Scenario = SCENARIO, *, resumed: bool = False, refused: tuple[str, ...] = ()
    ) -> None:
        self.history = History(folder / "history.jsonl", TickingClock(), resumed=resumed)
        self.library = FakeLibrary({(scenario.name, p): start for (_, p), start in STARTS.items()}, refused)
        self.payload = Payload(
            scenario, [(scenario.name, p) for p in range(len(STARTS))], self.library.make, self.history
        )

    def run(self, phase: Phase) -> None:
        for operation in getattr(self.payload.scenario, phase):
            self.payload.play(phase, operation)

    def critical_offsets(self, kind: Critical) -> list[int | None]:
        return [self.payload.critical_offset(kind, tp, OBSERVER) for tp in self.payload.partitions]


def test_every_step_is_done_in_each_partition_in_one_transaction(tmp_path: Path) -> None:
    subject = Subject(tmp_path)
    with closing(subject.history):
        subject.payload.init()
        for phase in (Phase.BEFORE, Phase.OUTAGE, Phase.LATE):
            subject.run(phase)
    assert subject.library.calls == [
        "init s.tx",
        "put K in s-0", "put K in s-1", "put K in s-2",
        "begin s.tx", "put L in s-0", "put L in s-1", "put L in s-2",
        "commit s.tx", "delete K in s-0", "delete K in s-1", "delete K in s-2",
        "begin s.tx", "put garbage in s-0", "put garbage in s-1", "put garbage in s-2", "abort s.tx",
    ]  # fmt: skip
    for log in subject.library.logs.values():
        assert [sent.headers.get(HEADER_TXN) for sent in log] == [None, "s.tx/1", None, "s.tx/2"]


def test_a_write_without_a_value_says_who_wrote_it(tmp_path: Path) -> None:
    subject = Subject(tmp_path)
    with closing(subject.history):
        subject.payload.play(Phase.BEFORE, Write("plain", "K"))
    assert {sent.value for log in subject.library.logs.values() for sent in log} == {"plain puts K"}


def test_what_must_vanish_lies_elsewhere_in_each_partition(tmp_path: Path) -> None:
    subject = Subject(tmp_path)
    with closing(subject.history):
        assert subject.critical_offsets(Critical.TOMBSTONE) == [None, None, None]
        assert subject.critical_offsets(Critical.MARKER) == [None, None, None]
        subject.run(Phase.BEFORE)
        blind = FakeObserver(TickingClock(), marker_distance=None)
        assert subject.payload.critical_offset(Critical.MARKER, ("s", 0), blind) is None, "nobody saw it"
        assert subject.critical_offsets(Critical.TOMBSTONE) == [None, None, None], "that comes in the outage"
        assert subject.critical_offsets(Critical.MARKER) == [111, 121, 131], "asked for the transaction's first record"
        subject.run(Phase.OUTAGE)
        assert subject.critical_offsets(Critical.TOMBSTONE) == [12, 22, 32]
        subject.run(Phase.LATE)
        assert subject.critical_offsets(Critical.MARKER) == [111, 121, 131], "the late transaction is another"


@pytest.mark.parametrize("scenario", [*SCENARIOS, CONTROL, SCENARIO], ids=lambda scenario: scenario.name)
def test_what_the_history_tells_is_what_was_written(tmp_path: Path, scenario: Scenario) -> None:
    live = Subject(tmp_path, scenario)
    with closing(live.history):
        live.run(Phase.BEFORE)
        live.run(Phase.OUTAGE)
    again = Subject(tmp_path, scenario, resumed=True)
    with closing(again.history):
        assert again.payload._written == live.payload._written
        assert len(again.payload._written) >= 3
        for kind in scenario.critical:
            assert None not in live.critical_offsets(kind)
            assert again.critical_offsets(kind) == live.critical_offsets(kind)
        again.run(Phase.LATE)
    if scenario is SCENARIO:
        assert {sent.headers[HEADER_TXN] for log in again.library.logs.values() for sent in log} == {"s.tx/2"}


def test_only_the_scenarios_own_acknowledged_records_are_recalled(tmp_path: Path) -> None:
    with closing(Subject(tmp_path).history) as history:
        record = {"f": "produce", "phase": "outage", "partition": 0, "key": "K", "tombstone": True}
        for part, process, topic, kind in (
            ("payload", "other.plain", "other", "ok"),
            ("filler", "filler.plain", "s", "ok"),
            ("payload", "s.plain", "s", "info"),
        ):
            history.complete(kind, history.invoke(**record, part=part, process=process, topic=topic), offset=7)
        history.complete("ok", history.invoke(f="commit", part="payload", process="s.tx", phase="outage"))
    again = Subject(tmp_path, resumed=True)
    with closing(again.history):
        assert again.payload._written == []


def test_a_record_that_is_not_acknowledged_ends_the_payload(tmp_path: Path) -> None:
    subject = Subject(tmp_path, refused=("L",))
    with closing(subject.history), pytest.raises(HarnessError, match=r"s\.tx: timed out"):
        subject.run(Phase.BEFORE)
    assert [step.key for _, step, _, _ in subject.payload._written] == ["K", "K", "K"]
