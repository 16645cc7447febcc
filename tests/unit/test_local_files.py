"""The data folders of running brokers: who is killed with what lying there, and what a power failure leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.runtime import FakeRuntime

from harness.errors import HarnessError
from harness.protect.gate.build import Agent
from harness.runtimes import power
from harness.runtimes.power import LocalFiles

SUFFIXES = (".cleaned", ".swap")
CLEANED = "t-0/00000000000000000000.log.cleaned"
AGENT = Agent(Path("notes.jar"))


@dataclass
class Processes(FakeRuntime):
    """``on_pause`` and ``on_kill`` change the files on disk."""

    on_pause: Callable[[], object] = lambda: None
    on_kill: Callable[[], object] = lambda: None

    def kill(self, broker: int) -> None:
        super().kill(broker)
        self.on_kill()

    def pause(self, broker: int) -> None:
        super().pause(broker)
        self.on_pause()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(power, "WATCH_S", 0.01)
    for folder in ("t-0", "__cluster_metadata-0"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_bytes(bytes(3))
    (tmp_path / "data" / "__cluster_metadata-0" / "a.checkpoint.swap").write_bytes(b"x")
    return tmp_path / "data"


def test_a_broker_is_killed_with_such_a_file_and_resumed_if_the_file_vanished(data: Path) -> None:
    processes = Processes()
    files = LocalFiles(processes, lambda _: data)
    assert (files.kill_with_files(2, SUFFIXES), processes.actions) == ({}, []), "there is no such file"
    (data / CLEANED).write_bytes(bytes(12))
    assert (files.kill_with_files(2, SUFFIXES), processes.actions) == ({CLEANED: 12}, ["pause 2", "kill 2"])
    processes.on_pause = (data / CLEANED).unlink
    processes.actions.clear()
    assert (files.kill_with_files(2, SUFFIXES), processes.actions) == ({}, ["pause 2", "resume 2"])


def test_unsynced_data_are_removed(data: Path) -> None:
    processes = Processes(on_kill=lambda: (data / "t-0" / "late").write_bytes(bytes(4)))
    subject = LocalFiles(processes, lambda _: data, AGENT)
    subject.begin_notes([2])
    log = data / "t-0" / "00000000000000000000.log"
    log.write_bytes(bytes(12))
    with (data.parent / "synced").open("a") as notes:
        notes.write("sync\t5\tt-0/00000000000000000000.log\n")
    assert [file_cut.file for file_cut in subject.unsynced(2)] == ["t-0/00000000000000000000.log"]
    cuts = [(file_cut.file, file_cut.from_bytes, file_cut.to_bytes) for file_cut in subject.cut_power(2)]
    assert cuts == [("t-0/00000000000000000000.log", 12, 5), ("t-0/late", 4, 0)]
    assert (log.stat().st_size, (data / "meta.properties").stat().st_size, processes.actions) == (5, 3, ["kill 2"])
    assert subject.unsynced(2) == []


def test_only_brokers_with_the_agent_have_notes(data: Path) -> None:
    subject = LocalFiles(Processes(), lambda _: data)
    subject.begin_notes([2])
    assert subject.flags(2) == []
    assert not (data.parent / "synced").exists()
    for act in (subject.unsynced, subject.cut_power):
        with pytest.raises(HarnessError, match="are not brokers that record their syncs to disk"):
            act(2)
    with_agent = LocalFiles(Processes(), lambda _: data, AGENT)
    assert with_agent.flags(2) == [f"-javaagent:notes.jar={data.parent}/synced={data}"]
