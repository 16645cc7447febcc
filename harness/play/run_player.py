"""The player of a run: it boots the cluster, and plays the fixed schedule of `harness.play.run_schedule` on it.

Every step ends on a condition that was seen to hold. The player writes only to the run folder; checkers decide about
anomalies.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from harness.clients.reader import read_committed
from harness.cluster import snapshot
from harness.cluster.observe import ReplicaObserver
from harness.errors import HarnessError, WaitTimeoutError
from harness.play.group_workload import GroupWorkload
from harness.play.run_schedule import run_schedule
from harness.run_folder.history import History
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.schedules.operations.clients import Begin, End, Write
from harness.schedules.operations.faults import Expose, Heal, Inject
from harness.schedules.operations.operation import of_process
from harness.schedules.operations.waits import TakeSnapshot, UntilInSync, UntilRemoved
from harness.schedules.placement import led_by
from harness.schedules.scenario import CONSUMER_OFFSETS, Phase, scenario_and_process
from nemesis.fault import FaultContext
from nemesis.script import ScriptContext
from workloads.filler import Filler, write_ballast
from workloads.payload import Payload

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from harness.clients import Library
    from harness.cluster.cluster import Cluster
    from harness.kafka_api.messages import TopicPartition
    from harness.play.protection import Protection
    from harness.play.run_plan import RunPlan
    from harness.run_folder.store import RunFolder
    from harness.schedules.operations.operation import Operation
    from harness.schedules.scenario import Scenario
    from nemesis.script import Act
    from workloads.offsets_filler import OffsetsFiller

FILLER_RECORDS: Final = 4
"""Filler records that reach every replica after the rejoin."""
CLIENTS_MEANWHILE: Final = (Begin, Write, End, UntilRemoved)
"""Operations during which fillers write."""


@dataclass(frozen=True)
class Parts:
    """The parts of a run that is being played. ``payloads``: by scenario."""

    cluster: Cluster
    history: History
    fillers: Sequence[Filler | OffsetsFiller]
    payloads: Mapping[str, Payload]
    context: ScriptContext
    groups: GroupWorkload | None

    @contextmanager
    def filling(self, phase: Phase) -> Iterator[None]:
        """Have fillers write throughout the block."""
        with ExitStack() as running:
            for filler in self.fillers:
                running.enter_context(filler.running(phase))
            yield


@dataclass
class RunPlayer:
    """One run on one cluster: all scenarios, a topic each, in one outage.

    ``cluster``: its brokers are not started yet. ``on_window`` is called when only the removal is waited for.
    ``is_observing``: whether there is anything to judge yet. ``protection``: the gate or guard, if any.
    """

    plan: RunPlan
    cluster: Cluster
    library: Library
    folder: RunFolder
    progress: Callable[[str], None]
    on_window: Callable[[], None] = lambda: None
    is_observing: bool = False
    protection: Protection | None = None
    _phase: Phase = field(default=Phase.BEFORE, init=False)
    _is_guarded: bool = field(default=False, init=False)

    def run(self) -> None:
        """Play the whole schedule. Raises `HarnessError` where a step cannot be completed."""
        with ExitStack() as owned:
            parts = self._assemble(owned, resumed=False)
            self._boot(parts.cluster)
            self._create_topics(parts)
            self._start_observing(parts, owned)
            self.progress("write")
            self._play(parts, run_schedule(self.plan).operations)

    def resume(self) -> None:
        """Continue a run that was interrupted while it waited for the removal. Raises as `run` does."""
        with ExitStack() as owned:
            parts = self._assemble(owned, resumed=True)
            self._boot_again(parts)
            self._init_producers(parts)
            self._start_observing(parts, owned)
            self._phase = Phase.OUTAGE
            operations = run_schedule(self.plan).operations
            self._play(parts, operations[operations.index(UntilRemoved()) :])

    def _play(self, parts: Parts, operations: Sequence[Operation]) -> None:
        """Play the operations in order. Operations of the nemesis in a row are one act on several brokers.

        Fillers write while clients do, and until all replicas that are up are in sync.
        """
        acts: Mapping[type, Callable[[Parts], None]] = {
            Inject: self._leave,
            UntilRemoved: self._clean,
            UntilInSync: self._wait_in_sync,
            Expose: self._expose,
            Heal: self._rejoin,
        }
        with ExitStack() as filling:
            is_filling = False
            for kind, in_a_row in groupby(operations, key=type):
                if kind is UntilInSync:
                    filling.close()
                    is_filling = False
                elif kind in CLIENTS_MEANWHILE and not is_filling and self._may_fill:
                    filling.enter_context(parts.filling(self._phase))
                    is_filling = True
                if kind in acts:
                    acts[kind](parts)
                for operation in in_a_row:
                    match operation:
                        case TakeSnapshot(name):
                            self._take_snapshot(parts, name)
                        case Begin() | Write() | End():
                            scenario, process = scenario_and_process(operation.process)
                            parts.payloads[scenario].play(self._phase, of_process(operation, process))

    @property
    def _may_fill(self) -> bool:
        """Return whether cleaners may pass now: a replica that joins must first copy only the payload."""
        return not (self.plan.nemesis.joins and self._phase is Phase.BEFORE)

    def _assemble(self, owned: ExitStack, *, resumed: bool) -> Parts:
        plan, timers = self.plan, self.plan.timers
        clock = self.cluster.clock
        history = owned.enter_context(closing(History(self.folder.history_path, clock, resumed=resumed)))
        observer = owned.enter_context(
            closing(
                ReplicaObserver(
                    self.cluster.runtime,
                    plan.replicas,
                    self.folder.observations_path,
                    clock,
                    period_s=timers.observe_period_s,
                    reader=self.cluster.control.reader,
                    resumed=resumed,
                )
            )
        )
        absent = plan.placement.absent
        cluster = self.cluster = replace(
            self.cluster,
            observer=observer,
            replicas=plan.replicas,
            absent=absent,
            away=frozenset(absent if plan.nemesis.joins else ()),
        )
        make, groups = self.library.producer, None
        of_records = [tp for s in plan.scenarios if not s.kind.is_of_groups for tp in plan.partitions[s.name]]
        fillers: list[Filler | OffsetsFiller] = [
            Filler(of_records, plan.seed, timers.filler_period_s, make, history, clock)
        ]
        if plan.has_groups:
            groups = GroupWorkload(plan, cluster, self.library, history)
            fillers.append(groups.filler())

        def payload(scenario: Scenario) -> Payload:
            if groups is not None and scenario.kind.is_of_groups:
                return groups.payload(scenario)
            return Payload(scenario, plan.partitions[scenario.name], make, history)

        def ballast() -> None:
            exposed = cluster.exposed
            write_ballast([tp for tp in exposed if tp in of_records], timers, plan.seed, make, history)
            if groups is not None:
                groups.write_ballast(exposed)

        def note(f: str, **fields: Any) -> None:
            fields = {"process": "nemesis", "part": "nemesis", "phase": Phase.OUTAGE}
            history.complete("ok", history.invoke(f=f, **fields), **fields)

        payloads = {scenario.name: payload(scenario) for scenario in plan.scenarios}
        return Parts(
            cluster=cluster,
            history=history,
            fillers=fillers,
            payloads=payloads,
            context=ScriptContext(
                FaultContext(cluster, plan.placement.absent, timers.copy_bytes_per_s, timers.window_s, note),
                ballast,
                payload_ends=lambda: {
                    tp: payload.end(tp) for payload in payloads.values() for tp in payload.partitions
                },
            ),
            groups=groups,
        )

    def _boot(self, cluster: Cluster) -> None:
        self.progress("boot")
        cluster.runtime.start_cluster()
        cluster.wait_registered()

    def _boot_again(self, parts: Parts) -> None:
        """Start the brokers on the data that they left; the absent ones as they were."""
        nemesis, cluster = self.plan.nemesis, parts.cluster
        if nemesis.resume is None:
            raise HarnessError(
                f"a run with the nemesis {nemesis.name} cannot be continued: its fault ended with the harness"
            )
        self.progress("boot again")
        cluster.runtime.start_again(cluster.staying)
        cluster.wait_registered(cluster.staying)
        nemesis.resume(parts.context)
        if nemesis.is_outage:
            cluster.away = frozenset(cluster.absent)

    def _create_topics(self, parts: Parts) -> None:
        self.progress("create topics")
        cluster = parts.cluster
        cluster.admin.create_topics({tp: cluster.present(tp) for tp in cluster.replicas}, self.plan.topic_settings)
        cluster.wait(lambda: bool(cluster.states()), "the topics to exist")
        cluster.lead_as_placed()
        cluster.coordinate_on(cluster.staying)
        self._init_producers(parts)
        if parts.groups is not None:
            parts.groups.create_inputs()

    def _init_producers(self, parts: Parts) -> None:
        for filler in parts.fillers:
            filler.init()
        for payload in parts.payloads.values():
            payload.init()

    def _start_observing(self, parts: Parts, owned: ExitStack) -> None:
        parts.cluster.observed.start()
        self.is_observing = True
        parts.cluster.checks += [
            parts.cluster.observed.raise_if_failed,
            *(filler.raise_if_failed for filler in parts.fillers),
        ]
        if self.protection is not None:
            self.protection.begin(owned)
            parts.cluster.checks += [self.protection.raise_if_failed]

    def _wait_in_sync(self, parts: Parts) -> None:
        awaited = {Phase.BEFORE: "everything written", Phase.LATE: "the late transactions"}.get(
            self._phase, "everything"
        )
        parts.cluster.wait_replicated(f"{awaited} to be on every replica that is up")

    def _leave(self, parts: Parts) -> None:
        nemesis, cluster = self.plan.nemesis, parts.cluster
        if nemesis.keeps_processes:
            cluster.rest_cleaners_of_absent()
        with self._acting(nemesis.leave, parts, "leave", Phase.OUTAGE):
            if nemesis.is_outage:
                cluster.wait_absent_left()
                cluster.away = frozenset(self.plan.placement.absent)
        self._phase = Phase.OUTAGE
        self.progress("end transactions")

    @contextmanager
    def _acting(self, act: Act, parts: Parts, f: str, phase: Phase) -> Iterator[None]:
        """Perform an act, and write it to the history; its event ends with the block, as ``info`` if that raises."""
        brokers = list(self.plan.placement.absent)
        self.progress(act.words.format(broker=_listed(brokers)))
        event = parts.history.invoke(f=f, process="nemesis", part="nemesis", phase=phase, brokers=brokers)
        try:
            act.perform(parts.context)
            yield
        except BaseException:
            parts.history.complete("info", event)
            raise
        parts.history.complete("ok", event)

    def _clean(self, parts: Parts) -> None:
        cluster, payloads, protection = parts.cluster, parts.payloads.values(), self.protection
        self.on_window()
        self.progress("clean")
        is_open = self._wait_removed(parts, is_held=protection.holds if protection else None)
        cluster.freeze()
        # A gate or guard that holds partitions ends the wait, too.
        self._is_guarded = (protection is not None or not is_open) and is_kept(cluster, payloads)
        if protection is not None and not self._is_guarded:
            # Held partitions stay held: evidence must not change when the absent brokers return.
            protection.stop()
        self._phase = Phase.LATE
        self.progress("late transactions")

    def _expose(self, parts: Parts) -> None:
        """Perform the act that exposes the replicas to the removal."""
        assert self.plan.nemesis.expose is not None  # noqa: S101  (otherwise no schedule has the operation)
        with self._acting(self.plan.nemesis.expose, parts, "expose", Phase.LATE):
            pass

    def _rejoin(self, parts: Parts) -> None:
        nemesis, cluster = self.plan.nemesis, parts.cluster
        with self._acting(nemesis.rejoin, parts, "come back", Phase.AFTER):
            cluster.wait_absent_back()
            cluster.away = frozenset()
        if nemesis.keeps_processes:
            # If everything was kept, the guard may have restored the settings already.
            cluster.wake_cleaners_of_absent(is_frozen=self.protection is None or not self._is_guarded)
        self._phase = Phase.AFTER
        with parts.filling(Phase.AFTER):
            cluster.wait_grown(FILLER_RECORDS)

    def _take_snapshot(self, parts: Parts, name: str) -> None:
        if name == BEFORE_RETURN:
            snapshot.take(parts.cluster, self.folder, BEFORE_RETURN)
        else:
            self._remove_together(parts)
            self._observe(parts)

    def _remove_together(self, parts: Parts) -> None:
        """Remove records that were kept for the absent brokers, now that these are back in sync.

        Then no replica missed anything that compaction could hide. Where some records were removed, the evidence does
        not change any more.
        """
        if not self._is_guarded:
            return
        self.progress("clean again")
        if self.protection is not None:
            holds, exposed = self.protection.holds, parts.cluster.exposed
            parts.cluster.wait(
                lambda: not any(holds(broker, tp) for tp in exposed for broker in parts.cluster.present(tp)),
                "the partitions to be released",
            )
        parts.cluster.thaw(self.plan.topic_settings)
        with parts.filling(Phase.AFTER):
            self._wait_removed(parts)
        parts.cluster.freeze()
        parts.cluster.wait_replicated("every replica to have everything")

    def _observe(self, parts: Parts) -> None:
        self.progress("observe")
        cluster, plan = parts.cluster, self.plan
        snapshot.take(cluster, self.folder, AFTER_REJOIN)
        for absent in plan.placement.absent:
            cluster.lead({tp: led_by(absent, cluster.replicas[tp]) for tp in cluster.exposed})
            read_committed(
                partial(plan.system.consumer, cluster.runtime, absent),
                [tp for tp in cluster.exposed if tp[0] != CONSUMER_OFFSETS],
                broker=absent,
                phase=Phase.AFTER,
                history=parts.history,
                clock=cluster.clock,
                timeout_s=plan.timers.settle_s,
            )
        cluster.wait_replicated("the last look at every replica")
        if parts.groups is not None:
            # Members that join make the coordinator write: the last observations would not match the stored logs.
            cluster.observed.stop()
            parts.groups.observe()
        if self.protection is not None:
            self.protection.write()

    def _wait_removed(self, parts: Parts, is_held: Callable[[int, TopicPartition], bool] | None = None) -> bool:
        """Wait for the window to open. If it does not open, the wait ends, and the observations are judged."""
        window_s = max(self.plan.timers.window_s, self.plan.system.least_window_s)
        try:
            wait_removed(parts.cluster, parts.payloads.values(), window_s, **({"is_held": is_held} if is_held else {}))
        except WaitTimeoutError as error:
            self.progress(f"the window does not open: {error}")
            return False
        return True


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def wait_removed(
    cluster: Cluster,
    payloads: Collection[Payload],
    window_s: float,
    is_held: Callable[[int, TopicPartition], bool] = lambda _broker, _partition: False,
) -> None:
    """Wait until all critical records are removed from every replica that is up and cleaned in time.

    ``is_held``: whether a broker says that it keeps its cleaner from a partition; then nothing has to be gone from
    there, unless every replica of the partition stayed. Raises `WaitTimeoutError`.
    """
    exposed = set(cluster.exposed)

    def is_done() -> bool:
        return all(
            offset is not None
            and all(
                cluster.observed.is_removed(broker, partition, offset)
                or (partition in exposed and is_held(broker, partition))
                for broker in cluster.cleaning(partition)
            )
            for partition, offset in _critical(cluster, payloads)
        )

    cluster.wait(is_done, "the critical tombstones and markers to be removed", window_s)


def is_kept(cluster: Cluster, payloads: Collection[Payload]) -> bool:
    """Return whether everything that an absent broker could miss is on every replica that is up."""
    return all(
        offset is not None
        and not any(cluster.observed.is_removed(broker, partition, offset) for broker in cluster.present(partition))
        for partition, offset in _critical(cluster, payloads)
        if partition in cluster.exposed
    )


def _critical(cluster: Cluster, payloads: Collection[Payload]) -> Iterator[tuple[TopicPartition, int | None]]:
    """Yield where each critical record is; None for one that was never seen on any replica."""
    for payload in payloads:
        for partition in payload.partitions:
            for kind in payload.scenario.critical:
                yield partition, payload.critical_offset(kind, partition, cluster.observed)
