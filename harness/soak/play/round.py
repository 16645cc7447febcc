"""A round: play the drawn schedule, heal all faults, let the cluster settle, and copy the logs of all replicas."""

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harness.clients import Library
from harness.cluster import snapshot
from harness.cluster.cluster import MOST_NAMED, Cluster
from harness.cluster.routines import at_once
from harness.errors import HarnessError, UsageError, WaitTimeoutError, raised_as
from harness.host.clock import Stages
from harness.judge.finding import name_of
from harness.play.failures import stalled_replica
from harness.run_folder.history import History
from harness.run_folder.store import AFTER_REJOIN, GATE, OFFSETS, SKIPPED_MARKERS, RunFolder
from harness.schedules.generators import Generator, Situation
from harness.schedules.operations import ADMIN, NEMESIS
from harness.schedules.schedule import (
    RoundClient,
    RoundPlan,
    Schedule,
    Step,
    read_content,
    read_schedule,
    write_schedule,
)
from harness.soak.draw.plan import FILLER_PERIOD_S, LIBRARIES, OF_GROUPS, as_round
from harness.soak.evidence.internal_topics import filled_offsets, prepare_offsets, take_internal
from harness.soak.evidence.offsets import sampled_offsets
from harness.soak.judge.truth import FILLER
from harness.soak.play.administrators import Administrators
from harness.soak.play.clients import ClientProcess
from harness.soak.play.player import MOST_WAITING, Player, Process
from harness.soak.play.rig import SETTLE_S, TIMERS, Rig

FILLS_AFTER: Final = 4
"""So many times the filler writes once everything is healed, so that cleaners pass."""
PLACED_S: Final = 2 * SETTLE_S
MARKERS_S: Final = 30.0
CLOSE_S: Final = 90.0
"""A client that closes may first wait for an end, then for a new start, each for as long as its library does."""


class StalledError(HarnessError):
    """A replica does not come back into the ISR after all faults have ended; ``stall``: `stalled_replica`."""

    def __init__(self, text: str, stall: Mapping[str, object]) -> None:
        super().__init__(text)
        self.stall = stall


@dataclass(frozen=True)
class PlayedRound:
    """A round that was played, with its times. ``failure``: why it ended early. ``took_s``: real seconds by phase.

    ``stall``: the replica that it ended for, see `harness.play.failures`.
    """

    schedule: Schedule
    failure: str | None = None
    stall: Mapping[str, Any] | None = None
    took_s: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def plan(self) -> RoundPlan:
        """The topics and clients of the round."""
        return self.schedule.plan


def write_round(path: Path, played: PlayedRound) -> None:
    """Write the schedule of a round, and how it was played. Raises `UsageError` where that cannot be."""
    outcome = {"failure": played.failure, "stall": played.stall, "took_s": dict(played.took_s)}
    write_schedule(path, played.schedule, outcome)


def read_round(path: Path) -> Schedule:
    """Return the schedule of a round. Raises `UsageError` with the defect of the file."""
    with raised_as(UsageError, f"{path} is not a round", UsageError):
        schedule = as_round(read_schedule(path))
    names = {client.name for client in schedule.plan.clients} | {ADMIN, NEMESIS}
    for at, operation in enumerate(schedule.operations, 1):
        if operation.process not in names:
            raise UsageError(f"{path}: step {at}: the plan has no client {operation.process}")
    return schedule


def read_played(path: Path) -> PlayedRound:
    """Return a round that was played, to judge it. Raises `UsageError` with the defect of the file."""
    content = read_content(path)
    try:
        took_s = {str(phase): float(second) for phase, second in content["took_s"].items()}
        return PlayedRound(read_round(path), content["failure"], content.get("stall"), took_s)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{path} does not say how its round was played: {error!r}") from error


def play_round(rig: Rig, plan: RoundPlan, generator: Generator, folder: RunFolder) -> PlayedRound:
    """Play a round, and take its evidence; an error is its ``failure``. Raises `UsageError` for impossible topics."""
    phases, steps, failure, stall = Stages(time.monotonic), list[Step](), None, None
    try:
        _play(rig, plan, generator, folder, phases, steps)
    except UsageError:
        raise
    except (HarnessError, OSError) as error:
        failure = str(error)
        stall = error.stall if isinstance(error, StalledError) else None
    phases.end()
    return PlayedRound(Schedule(tuple(steps), target=rig.setup.target.name, plan=plan), failure, stall, phases.took_s)


def _play(  # noqa: PLR0917
    rig: Rig, plan: RoundPlan, generator: Generator, folder: RunFolder, phases: Stages, steps: list[Step]
) -> None:
    """Append each step to ``steps`` as it is begun. Raises what ends the round before its time."""
    gate_events = len(rig.gates.events()) if rig.gates else 0
    cluster = replace(rig.cluster, replicas=plan.replicas, checks=[*rig.cluster.checks])
    phases.begin("open clients")
    folder.observations_path.touch()  # empty: a round is judged by its end
    opened = rig.setup.equipment.system.client
    with closing(History(folder.history_path, cluster.clock)) as history, ExitStack() as owned:
        # For one round: producers end with their library.
        libraries = {name: owned.enter_context(opened(cluster.runtime, name)(rig.client)) for name in LIBRARIES}
        admins = Administrators(plan, cluster, history, TIMERS.copy_bytes_per_s)
        phases.begin("create topics")
        admins.create_topics()
        sizes = {b: rig.spec.log_path(b).stat().st_size for b in cluster.brokers if rig.setup.shape.is_real}
        prepare_offsets(rig, plan.seed)
        cluster.wait(lambda: bool(cluster.states()), "the topics to exist")
        cluster.wait_in_isr(plan.brokers)
        numbers: dict[str | None, Any] = defaultdict(lambda: itertools.count(1))
        clients = [
            ClientProcess(client, libraries[client.library], history, numbers[client.transactional_id])
            for client in plan.clients
        ]
        processes = {
            **{client.client.name: Process(client.play, _most_waiting(client.client)) for client in clients},
            **{name: Process(admins.play, most_waiting=1) for name in (ADMIN, NEMESIS)},
        }
        player = Player(cluster, processes, steps)
        filler = _Filler(rig, libraries, plan, history)
        try:
            phases.begin("play")
            with (
                filled_offsets(rig, cluster, plan.topics[0].name, plan.seed),
                sampled_offsets(cluster, plan.partitions, folder.path / OFFSETS) as offsets,
            ):
                with player.running():
                    player.play(generator, plan.seed, Situation(plan.transactional), plan.lasts_s)
                    phases.begin("heal")
                    cluster.wait(lambda: not processes[NEMESIS].waiting, "the nemesis to end its operations")
                    admins.heal()
                    player.drain()
                phases.begin("settle")
                _settle(cluster, admins, clients, filler, phases)
                offsets.raise_if_failed()
            phases.begin("take logs")
            snapshot.take(cluster, folder, AFTER_REJOIN)
            take_internal(rig, cluster, folder, steps, sizes)
        except (UsageError, StalledError):
            raise
        except (HarnessError, OSError) as error:
            raise HarnessError(f"{error}{_out_of_isr(cluster)}") from error
        finally:
            with suppress(HarnessError):  # a write that hangs: by what ends the round, if anything, it is judged
                filler.routine.stop()
            if rig.gates is not None:
                folder.write_lines(folder.path / GATE, gate_events_of(plan, rig.gates.events(), gate_events))
            folder.write_lines(folder.path / SKIPPED_MARKERS, skipped_of(plan, rig.skipped.events()))
        phases.begin("delete topics")
        admins.delete_topics()
        phases.begin("close clients")


def _out_of_isr(cluster: Cluster) -> str:
    """Return which replicas are out of the ISR, in words; nothing where none is, or nobody answers."""
    with suppress(HarnessError, OSError):
        out = [f"broker {broker} of {name_of(tp)}" for broker, tp in cluster.out_of_isr()]
        return f"; out of the ISR: {', '.join(out[:MOST_NAMED])} ({len(out)} replicas)" if out else ""
    return ""


def gate_events_of(plan: RoundPlan, events: Sequence[Mapping[str, Any]], before: int) -> list[Mapping[str, Any]]:
    """Return the events of a round's topics, and of all partitions since the first ``before`` events."""
    topics = {None, *(topic.name for topic in plan.topics)}
    return [event for event in events[before:] if event.get("topic") in topics]


def skipped_of(plan: RoundPlan, events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the skipped markers of the clients of a round: no other round has their transactional ids."""
    writers = {client.transactional_id for client in plan.clients}
    return [event for event in events if event["transactional_id"] in writers]


def _most_waiting(client: RoundClient) -> int:
    """Return how many operations may wait for a client: of one whose operations block, for 20 s each, only one."""
    is_plain = client.transactional_id is None and not client.name.startswith(OF_GROUPS)
    return MOST_WAITING if is_plain else 1


class _Filler:
    """Writes to every partition again and again, from its beginning until its routine is stopped."""

    def __init__(self, rig: Rig, libraries: Mapping[str, Library], plan: RoundPlan, history: History) -> None:
        client = RoundClient(FILLER, LIBRARIES[0])
        self._process = ClientProcess(client, libraries[client.library], history, itertools.count(1), part=FILLER)
        self._partitions = plan.filled or plan.partitions
        self.fills = 0
        self.routine = rig.cluster.clock.every(FILLER_PERIOD_S, self._fill, "filler")

    def _fill(self) -> None:
        self._process.fill(self._partitions)
        self.fills += 1


def _settle(
    cluster: Cluster, admins: Administrators, clients: list[ClientProcess], filler: _Filler, phases: Stages
) -> None:
    """Wait until everybody is back, every transaction has ended, cleaners have passed, and the replicas are level."""
    cluster.checks.append(filler.routine.raise_if_failed)
    cluster.wait_registered(admins.plan.brokers)
    try:
        cluster.wait(admins.is_placed, "every partition to have its replicas, all in the ISR", PLACED_S)
    except WaitTimeoutError as error:
        if stall := stalled_replica(cluster, PLACED_S):
            raise StalledError(f"{error}{_out_of_isr(cluster)}", stall) from error
        raise
    phases.begin("close transactions")
    at_once(cluster, {f"client {client.client.name}": client.close for client in clients}, CLOSE_S)
    with suppress(WaitTimeoutError):
        # One that hangs is found in the logs.
        cluster.wait(lambda: not cluster.admin.ending_transactions(), "the last transaction markers", MARKERS_S)
    phases.begin("clean")
    enough = filler.fills + FILLS_AFTER
    cluster.wait(lambda: filler.fills >= enough, "the filler")
    filler.routine.stop()
    phases.begin("freeze")
    cluster.freeze()
    cluster.wait_in_isr(admins.plan.brokers)
    cluster.wait_level(cluster.replicas)
