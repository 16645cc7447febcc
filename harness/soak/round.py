"""A round: play what was drawn, heal whatever is broken, let everything settle, and take the logs of all replicas."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.brokers.protocol.replica import ReplicaState
from harness.cluster import snapshot
from harness.errors import HarnessError, UsageError, WaitTimeoutError
from harness.run_folder.history import History
from harness.run_folder.store import AFTER_REJOIN
from harness.soak.administrators import Administrators
from harness.soak.clients import ClientProcess
from harness.soak.operations import ADMIN, NEMESIS, Step, step_of
from harness.soak.plan import Client, plan_of
from harness.soak.player import Player, Process
from harness.soak.rig import FILLER_PERIOD_S, TIMERS
from harness.soak.situation import Situation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.clients import Library
    from harness.cluster.cluster import Cluster
    from harness.run_folder.store import RunFolder
    from harness.soak.generators import Generator
    from harness.soak.plan import Plan
    from harness.soak.rig import Rig

SCHEMA: Final = 1
ROUND: Final = "round.json"
FILLS_AFTER: Final = 4
"""So many times the filler writes once everything is healed, so that cleaners pass."""
MARKERS_S: Final = 30.0


@dataclass(frozen=True)
class PlayedRound:
    """What was played: ``plan`` and ``steps`` are the schedule. ``failure``: why it did not go to its end."""

    plan: Plan
    steps: tuple[Step, ...]
    target: str
    failure: str | None = None
    finding: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            "schema": SCHEMA,
            "target": self.target,
            "failure": self.failure,
            "finding": self.finding,
            "plan": self.plan.as_json(),
            "steps": [step.as_json() for step in self.steps],
        }


def write_round(path: Path, played: PlayedRound) -> None:
    """Write a round down, a step a line. Raises OSError."""
    content = played.as_json()
    steps = ",\n  ".join(json.dumps(step) for step in content.pop("steps"))
    head = json.dumps(content, indent=1)[:-2]
    path.write_text(f'{head},\n "steps": [\n  {steps}\n ]\n}}\n')


def read_round(path: Path) -> PlayedRound:
    """Return a round that was written down: a schedule. Raises `UsageError` with what is wrong with the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("steps"), list):
        raise UsageError(f"{path} is no round of this release: give the {ROUND} of a round of `harness soak`")
    steps = tuple(step_of(step, f"{path}: step {at}") for at, step in enumerate(content["steps"], 1))
    plan = plan_of(content.get("plan", {}), str(path))
    names = {client.name for client in plan.clients} | {ADMIN, NEMESIS}
    for at, step in enumerate(steps, 1):
        if step.operation.process not in names:
            raise UsageError(f"{path}: step {at}: the plan has no client {step.operation.process}")
    return PlayedRound(plan, steps, str(content.get("target", "")), finding=content.get("finding"))


def play_round(
    rig: Rig, plan: Plan, generator: Generator, folder: RunFolder, progress: Callable[[str], None]
) -> PlayedRound:
    """Play a round and take its evidence. What goes wrong after its topics were created is its ``failure``.

    Raises `HarnessError` where the topics cannot be created.
    """
    with (
        closing(History(folder.history_path, rig.clock)) as history,
        closing(rig.observer_for(plan, folder)) as observer,
        rig.libraries() as libraries,
    ):
        cluster = rig.cluster_for(plan, observer)
        admins = Administrators(plan, cluster, history, TIMERS.copy_bytes_per_s)
        progress("create topics")
        admins.create_topics()
        cluster.wait(lambda: bool(cluster.states()), "the topics to exist")
        cluster.wait_in_isr(plan.brokers)
        failure: str | None = None
        numbers: dict[str | None, Any] = defaultdict(lambda: itertools.count(1))
        clients = {
            one.name: ClientProcess(one, libraries[one.library], history, numbers[one.transactional_id])
            for one in plan.clients
        }
        processes = {name: Process(name, one.play) for name, one in clients.items()}
        processes |= {name: Process(name, admins.play, most_waiting=1) for name in (ADMIN, NEMESIS)}
        player = Player(rig.clock, processes, rig.runtime.raise_if_died)
        filler = _Filler(rig, libraries, plan, history)
        try:
            progress("play")
            writers = frozenset(one.name for one in plan.clients if one.transactional_id)
            with player.running():
                player.play(generator, plan.seed, Situation(writers), plan.lasts_s)
                progress("heal")
                cluster.wait(lambda: processes[NEMESIS].is_idle, "the nemesis to end what it began")
                admins.heal()
                player.drain()
            progress("settle")
            _settle(cluster, admins, list(clients.values()), filler)
            progress("take logs")
            snapshot.take(cluster, folder, AFTER_REJOIN)
        except (HarnessError, OSError) as error:
            failure = str(error)
        finally:
            filler.stop()
        if failure is None:
            admins.delete_topics()
    return PlayedRound(plan, tuple(player.steps), rig.setup.target.name, failure)


class _Filler:
    """Writes to every partition again and again, from its beginning until `stop`."""

    def __init__(self, rig: Rig, libraries: Mapping[str, Library], plan: Plan, history: History) -> None:
        client = Client("filler", rig.setup.shape.libraries[0])
        self._process = ClientProcess(client, libraries[client.library], history, itertools.count(1), part="filler")
        self._partitions = plan.filled or plan.partitions
        self.fills = 0
        self._routine = rig.clock.every(FILLER_PERIOD_S, self._fill, "filler")

    def _fill(self) -> None:
        self._process.fill(self._partitions)
        self.fills += 1

    def stop(self) -> None:
        self._routine.stop()

    def raise_if_failed(self) -> None:
        self._routine.raise_if_failed()


def _settle(cluster: Cluster, admins: Administrators, clients: list[ClientProcess], filler: _Filler) -> None:
    """Wait until everybody is back, every transaction has ended, cleaners have passed, and the replicas are level."""
    cluster.checks.append(filler.raise_if_failed)
    cluster.wait_registered(admins.plan.brokers)
    cluster.wait(admins.is_placed, "every partition to have its replicas")
    cluster.wait_in_isr(admins.plan.brokers)
    for client in clients:
        client.close()
    with suppress(WaitTimeoutError):
        # One that hangs is found in the logs.
        cluster.wait(lambda: not cluster.admin.ending_transactions(), "the last transaction markers", MARKERS_S)
    wanted = filler.fills + FILLS_AFTER
    cluster.wait(lambda: filler.fills >= wanted, "the filler")
    filler.stop()
    cluster.freeze()
    cluster.wait_in_isr(admins.plan.brokers)
    cluster.wait(lambda: _is_level(cluster), "the replicas to be level")


def _is_level(cluster: Cluster) -> bool:
    """Whether every replica of a partition ends, and has its high watermark, at the same offset."""
    ends: dict[tuple[str, int], set[int]] = defaultdict(set)
    for broker in cluster.placement.brokers:
        with closing(cluster.control.reader(broker)) as reader:
            for tp, state in reader.read(list(cluster.replicas)).items():
                if not isinstance(state, ReplicaState):
                    return False
                ends[tp] |= {state.log_end, state.high_watermark}
    return all(len(seen) == 1 for seen in ends.values())
