"""The brokers' metadata logs compared with the brokers' answers: leaders, leader epochs, ISRs and replicas."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_cluster import local_cluster
from metadata_logs import read_metadata_log

from harness.broker_files.copies.copies import find_copies
from harness.broker_files.metadata_log.history import PartitionState
from harness.broker_files.segments.batches import iter_batches
from harness.cluster.cluster import Cluster
from harness.runtimes.local import LocalRuntime
from harness.schedules.timers import FAST

BROKERS = (1, 2, 3)
T = ("moved", 0)
SETTINGS = {**FAST.broker, "metadata.log.max.record.bytes.between.snapshots": "2000"}


@dataclass(frozen=True)
class Seen:
    """The partition as a broker answers."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


@dataclass(frozen=True)
class Moved:
    """The brokers' answers after each step, and the folders that they left."""

    seen: list[Seen]
    folders: dict[int, Path]


class Mover:
    """Moves the leader of a topic about on a cluster that loses brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._admin, self._runtime = cluster, cluster.admin, cluster.runtime

    def move(self) -> list[Seen]:
        """Do every step, and return what the brokers answered after each."""
        self._runtime.start_cluster()
        self._cluster.wait_registered()
        self._admin.create_topics({T: (1, 2, 3)}, {})
        seen = [self._settled(leader=1)]
        self._admin.reassign({T: (3, 2, 1)})
        seen.append(self._elected(3))
        self._runtime.kill(3)
        seen.append(self._settled(leader=2, isr={1, 2}))
        self._runtime.start(3)
        seen += [self._settled(leader=2), self._elected(3)]
        self._runtime.stop(2)
        seen.append(self._settled(leader=3, isr={1, 3}))
        self._admin.reassign({T: (3, 1)})
        seen.append(self._settled(leader=3, isr={1, 3}, replicas=(3, 1)))
        self._runtime.start(2)
        self._cluster.wait_registered()
        return seen

    def _elected(self, leader: int) -> Seen:
        def is_leader() -> bool:
            self._admin.elect_preferred([T])
            return self._see().leader == leader

        self._cluster.wait(is_leader, f"broker {leader} to lead")
        return self._settled(leader)

    def _settled(self, leader: int, *, isr: set[int] | None = None, replicas: tuple[int, ...] | None = None) -> Seen:
        def is_settled() -> bool:
            seen = self._see()
            return seen.leader == leader and seen.isr == (isr or set(BROKERS)) and replicas in {None, seen.replicas}

        self._cluster.wait(is_settled, f"{T} to be led by {leader}")
        return self._see()

    def _see(self) -> Seen:
        """Ask the controller's broker, whose metadata is the newest."""
        state = self._admin.partitions([T[0]], at=self._runtime.address(1))[T]
        assert state.leader_epoch is not None
        return Seen(state.leader, state.leader_epoch, state.replicas, frozenset(state.isr))


@pytest.fixture(scope="module", params=["kafka-3.9", "kafka-4.4"])
def moved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Moved:
    folder = tmp_path_factory.mktemp("metadata")
    folders = {broker: folder / "copies" / str(broker) for broker in BROKERS}
    with local_cluster(request.param, folder, SETTINGS) as cluster:
        seen = Mover(cluster).move()
        assert isinstance(cluster.runtime, LocalRuntime)
        for broker, copy in folders.items():
            cluster.runtime.kill(broker)
            shutil.copytree(cluster.runtime._log_dir(broker), copy)
    return Moved(seen, folders)


def as_seen(state: PartitionState) -> Seen:
    return Seen(state.leader, state.leader_epoch, state.replicas, frozenset(state.isr))


def in_order(wanted: list[Seen], states: tuple[PartitionState, ...]) -> bool:
    """Return whether the log has every one of these records, in order."""
    left = iter(map(as_seen, states))
    return all(one in left for one in wanted)


def test_the_log_tells_what_the_brokers_answered(moved: Moved) -> None:
    found = find_copies({broker: [moved.folders[broker]] for broker in (1, 3)}, [T[0]], "real")
    assert found.metadata is not None
    history = found.metadata.histories[T]
    assert in_order(moved.seen, history.states), (moved.seen, history.states)
    assert as_seen(history.states[-1]) == moved.seen[-1]
    assert history.since_creation
    assert [state.partition_epoch for state in history.states] == list(range(len(history.states)))
    assert T[0] in found.metadata.topics
    assert not any("metadata log" in note for note in found.notes if "alone" not in note)


def test_the_log_tells_which_processes_registered(moved: Moved) -> None:
    metadata = read_metadata_log(moved.folders[1] / "__cluster_metadata-0")
    assert {broker: len(offsets) for broker, offsets in metadata.registrations.items()} == {1: 1, 2: 2, 3: 2}
    states = metadata.histories[T].states
    of_two = [state for state in states if state.leader == 2]
    away, back = (next(state.offset for state in of_two if (3 in state.isr) is inside) for inside in (False, True))
    assert metadata.registrations[3][0] < away < metadata.registrations[3][1] < back


def test_directories_are_those_of_the_brokers(moved: Moved) -> None:
    metadata = read_metadata_log(moved.folders[2] / "__cluster_metadata-0")
    ids = {}
    for broker, folder in moved.folders.items():
        found = re.search(r"^directory\.id=(\S+)", (folder / "meta.properties").read_text(), re.MULTILINE)
        assert found is not None
        ids[broker] = found[1].replace("\\", "")
    for state in metadata.histories[T].states:
        assert state.directories == tuple(ids[broker] for broker in state.replicas)


def test_every_snapshot_and_the_log_after_it_give_the_same_states(moved: Moved, tmp_path: Path) -> None:
    """The log before a snapshot is removed, as after `metadata.max.retention.bytes`."""
    whole = read_metadata_log(moved.folders[1] / "__cluster_metadata-0")
    states = whole.histories[T].states
    compared = 0
    for snapshot in moved.folders[1].glob("__cluster_metadata-0/*.checkpoint"):
        end_offset = int(snapshot.name[:20])
        if not states[0].offset < end_offset:
            continue  # there was no such topic yet
        later = read_metadata_log(_from_snapshot(moved.folders[1], snapshot.name, tmp_path / snapshot.name))
        first, *following = later.histories[T].states
        before = [state for state in states if state.offset < end_offset]
        assert first.offset == end_offset - 1
        assert (as_seen(first), first.partition_epoch) == (as_seen(before[-1]), before[-1].partition_epoch)
        assert tuple(following) == states[len(before) :]
        assert set(later.registrations[3]) <= set(whole.registrations[3])
        compared += 1
    assert compared


def _from_snapshot(log_dir: Path, name: str, top: Path) -> Path:
    """Return a copy of the metadata log that begins with the batch at which the snapshot ends."""
    source, folder = log_dir / "__cluster_metadata-0", top / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    shutil.copy(source / name, folder)
    end_offset = int(name[:20])
    data = (source / f"{0:020}.log").read_bytes()
    starts = [batch.position for batch in iter_batches(data, source="log") if batch.base_offset >= end_offset]
    (folder / f"{end_offset:020}.log").write_bytes(data[starts[0] :] if starts else b"")
    return folder
