"""The player of a run: it boots the cluster, and plays the fixed schedule of `harness.play.run_plan` on it.

Every step ends on a condition that was seen to hold. Checkers decide about anomalies, by the run folder alone.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, cast

from harness.clients import Library
from harness.cluster import snapshot
from harness.cluster.cluster import Cluster
from harness.cluster.observe import ReplicaObserver
from harness.cluster.routines import at_once
from harness.errors import HarnessError, WaitTimeoutError
from harness.kafka_api import TopicPartition
from harness.play.departures import COME_BACK, LEAVE, unplanned_departures
from harness.play.failures import failure_facts
from harness.play.group_workload import GroupWorkload, groups_of
from harness.play.protection import Protection
from harness.play.run_plan import NO_FAULT, RunPlan, run_schedule
from harness.play.served import read_served, wait_compacted
from harness.play.window import is_kept, wait_removed
from harness.run_folder import store
from harness.run_folder.history import History, read_lines
from harness.run_folder.store import RunFolder
from harness.runtimes.base import Clocks, ability
from harness.schedules import operations as ops
from harness.schedules.placement import led_by
from harness.schedules.scenario import CONSUMER_OFFSETS, Phase, scenario_and_process
from harness.schedules.timers import MOST_STEPS, STEP_S
from harness.targets import KAFKA, OWN
from nemesis.fault import FaultContext
from nemesis.script import Act
from workloads.filler import TRANSACTIONAL_PROCESSES, Filler, OffsetsFiller, write_ballast
from workloads.payload import Payload

log = logging.getLogger("harness")
FILLER_RECORDS: Final = 4
"""Filler records that reach every replica after the rejoin."""
OF_CLIENTS: Final = (ops.Begin, ops.Write, ops.End)
CLIENTS_S: Final = 600.0
"""The bound for consecutive operations of clients together; each operation also has a shorter bound."""


@dataclass
class RunPlayer:
    """One run on one cluster: all scenarios, a topic each, in one outage.

    ``cluster``: its brokers are not started yet. ``on_window`` is called when only the removal is waited for.
    ``protection``: the gate or guard, if any. ``is_resumed``: the run was interrupted while it waited for the removal.
    ``is_observing``: whether there is anything to judge yet. ``departures``: as in `unplanned_departures`, at the end.
    ``failure``: as in `failure_facts`, if the run failed before or without a fault.
    """

    plan: RunPlan
    cluster: Cluster
    library: Library
    folder: RunFolder
    progress: Callable[[str], None]
    on_window: Callable[[], None] = lambda: None
    protection: Protection | None = None
    is_resumed: bool = False
    is_observing: bool = field(default=False, init=False)
    departures: Sequence[str] = field(default=(), init=False)
    failure: Mapping[str, object] = field(default_factory=dict, init=False)
    _history: History = field(init=False)
    _groups: GroupWorkload | None = field(default=None, init=False)
    _payloads: dict[str, Payload] = field(default_factory=dict, init=False)
    _fillers: list[Filler | OffsetsFiller] = field(default_factory=list, init=False)
    _writing: ExitStack = field(default_factory=ExitStack, init=False)
    _is_writing: bool = field(default=False, init=False)
    _phase: Phase = field(default=Phase.BEFORE, init=False)
    _clock_steps: int = field(default=0, init=False)
    _is_guarded: bool = field(default=False, init=False)

    def run(self) -> None:
        """Play the schedule, or the rest of it for a resumed run. Raises `HarnessError` if that fails."""
        try:
            self._run()
        except HarnessError as error:
            if self.plan.nemesis.name == NO_FAULT or self._phase is Phase.BEFORE:
                self.failure = failure_facts(error, self.cluster)
            raise

    def _run(self) -> None:
        operations = run_schedule(self.plan).operations
        with ExitStack() as owned:
            self._assemble(owned)
            if self.is_resumed:
                operations = operations[operations.index(ops.UntilRemoved()) :]
                self._boot_again()
                self._init_producers()
                self._start_observing(owned)
                self._phase = Phase.OUTAGE
            else:
                self.progress("boot")
                self.cluster.runtime.start_cluster()
                self.cluster.wait_registered()
                self.progress("create topics")
                self._create_topics()
                self._init_producers()
                if self._groups is not None:
                    self._groups.create_inputs()
                self._start_observing(owned)
                self.progress("write")
            self._play(operations)
            if self.plan.is_served:
                self._observe_served()

    def _observe_served(self) -> None:
        """Poll until compaction is seen; the last poll is judged. There is no fault, and no replica is read."""
        plan, cluster = self.plan, self.cluster
        self.progress("clean")
        try:
            wait_compacted(plan, cluster, self._history, self._payloads, cast("Filler", self._fillers[0]))
        except WaitTimeoutError as error:
            self.progress(f"compaction was not seen: {error}")
        self.progress("observe")
        if plan.target.supports.administration:
            cluster.wait(lambda: not cluster.admin.ending_transactions(), "the last transaction markers")
        read_served(plan, cluster, self._history, plan.placement.brokers[0], [*plan.replicas])

    def _play(self, operations: Sequence[ops.Operation]) -> None:
        """Play the operations in order. Operations of the nemesis in a row are one act on several brokers.

        Fillers write while clients do, and until all replicas that are up are in sync.
        """
        acts: Mapping[type, Callable[[], None]] = {
            ops.Inject: self._leave,
            ops.UntilRemoved: self._clean,
            ops.UntilInSync: self._wait_in_sync,
            ops.Expose: self._expose,
            ops.Heal: self._rejoin,
        }
        with self._writing:
            # `Write` stands for all operations of clients.
            for kind, in_a_row in groupby(operations, lambda it: ops.Write if isinstance(it, OF_CLIENTS) else type(it)):
                # A replica that joins must first copy only the payload: no cleaner may pass until then.
                must_rest = self.plan.is_served or (self.plan.nemesis.joins and self._phase is Phase.BEFORE)
                if kind is ops.UntilInSync:
                    self._stop_fillers()
                elif kind in {ops.Write, ops.UntilRemoved} and not must_rest:
                    self._start_fillers()
                if kind is ops.Write:
                    self._play_clients(in_a_row)
                elif kind in acts:
                    acts[kind]()
                elif ops.TakeSnapshot(store.BEFORE_RETURN) in in_a_row:
                    snapshot.take(self.cluster, self.folder, store.BEFORE_RETURN)
                else:
                    self._remove_together()
                    self._observe()

    def _play_clients(self, operations: Iterable[ops.Operation]) -> None:
        """Play operations of clients: in order in each scenario, and all scenarios concurrently."""
        by_scenario = dict[str, list[ops.Operation]]()
        for operation in operations:
            scenario, process = scenario_and_process(operation.process)
            by_scenario.setdefault(scenario, []).append(ops.of_process(operation, process))

        def play(scenario: str) -> None:
            for operation in by_scenario[scenario]:
                self._payloads[scenario].play(self._phase, operation)

        at_once(self.cluster, {f"clients of {name}": partial(play, name) for name in by_scenario}, CLIENTS_S)

    def _start_fillers(self) -> None:
        if not self._is_writing:
            for filler in self._fillers:
                self._writing.enter_context(filler.running(self._phase))
            self._is_writing = True

    def _stop_fillers(self) -> None:
        self._writing.close()
        self._is_writing = False

    def _assemble(self, owned: ExitStack) -> None:
        plan, cluster, is_resumed, absent = self.plan, self.cluster, self.is_resumed, self.plan.placement.absent
        clock, timers, reader = cluster.clock, plan.timers, cluster.control.reader
        history = History(self.folder.history_path, clock, resumed=is_resumed)
        self._history = owned.enter_context(closing(history))
        path, period_s = self.folder.observations_path, timers.observe_period_s
        observer = ReplicaObserver(
            cluster.runtime, plan.replicas, path, clock, period_s=period_s, reader=reader, resumed=is_resumed
        )
        cluster.observer = owned.enter_context(closing(observer))
        cluster.replicas, cluster.absent = plan.replicas, absent
        cluster.away = frozenset(absent if plan.nemesis.joins else ())
        make = self.library.producer
        # Without ListTransactions it is not known when the markers of a transaction are written.
        supports = plan.target.supports
        processes = TRANSACTIONAL_PROCESSES if supports.end_transactions and supports.administration else 0
        of_records = [tp for tp in plan.replicas if tp[0] != CONSUMER_OFFSETS]
        filler = Filler(of_records, plan.seed, timers.filler_period_s, make, history, clock, processes)
        self._fillers.append(filler)
        groups = GroupWorkload(plan, cluster, self.library, history) if groups_of(plan) else None
        if groups is not None:
            self._groups = groups
            self._fillers.append(groups.filler())
        for scenario in plan.scenarios:
            self._payloads[scenario.name] = (
                groups.payload(scenario)
                if groups is not None and scenario.kind.is_of_groups
                else Payload(scenario, plan.partitions[scenario.name], make, history)
            )

    @property
    def _context(self) -> FaultContext:
        cluster, timers = self.cluster, self.plan.timers
        return FaultContext(
            cluster,
            cluster.absent,
            timers.copy_bytes_per_s,
            timers.window_s,
            partial(self._history.note, process=ops.NEMESIS, phase=Phase.OUTAGE),
            write_ballast=self._write_ballast,
            payload_ends=lambda: {tp: p.end(tp) for p in self._payloads.values() for tp in p.partitions},
        )

    def _write_ballast(self) -> None:
        exposed = self.cluster.exposed
        of_topics = [tp for tp in exposed if tp[0] != CONSUMER_OFFSETS]
        write_ballast(of_topics, self.plan.timers, self.plan.seed, self.library.producer, self._history)
        if self._groups is not None:
            self._groups.write_ballast(exposed)

    def _boot_again(self) -> None:
        """Start the brokers on the data that they left; the absent ones as they were."""
        nemesis, cluster = self.plan.nemesis, self.cluster
        assert nemesis.resume is not None  # noqa: S101  (otherwise no run is resumed)
        self.progress("boot again")
        cluster.runtime.start_again(cluster.staying)
        cluster.wait_registered(cluster.staying)
        nemesis.resume(self._context)
        if nemesis.is_outage:
            cluster.away = frozenset(cluster.absent)

    def _create_topics(self) -> None:
        plan, cluster = self.plan, self.cluster
        if plan.target.supports.administration:
            cluster.admin.create_topics({tp: cluster.present(tp) for tp in cluster.replicas}, plan.topic_settings)
        else:
            for topic in cluster.topics:
                cluster.admin.create_topic(topic, plan.placement.partitions, plan.topic_settings)
        cluster.wait(lambda: bool(cluster.states()), "the topics to exist")
        if not plan.is_served:
            cluster.lead_as_placed()
            cluster.coordinate_on(cluster.staying)

    def _init_producers(self) -> None:
        for filler in self._fillers:
            filler.init()
        for payload in self._payloads.values():
            payload.init()

    def _start_observing(self, owned: ExitStack) -> None:
        checks = [filler.raise_if_failed for filler in self._fillers]
        if not self.plan.is_served:
            self.cluster.observed.start()
            checks.append(self.cluster.observed.raise_if_failed)
        self.is_observing = True
        self.cluster.checks += checks
        if self.protection is not None:
            self.protection.begin(owned)
            self.cluster.checks += [self.protection.raise_if_failed]

    def _wait_in_sync(self) -> None:
        written = {Phase.BEFORE: "everything written", Phase.LATE: "the late transactions"}
        awaited = written.get(self._phase, "everything")
        self.cluster.wait_replicated(f"{awaited} to be on every replica that is up")

    def _leave(self) -> None:
        nemesis, cluster = self.plan.nemesis, self.cluster
        if nemesis.keeps_processes:
            cluster.rest_cleaners_of_absent()
        with self._acting(nemesis.leave, LEAVE, Phase.OUTAGE):
            if nemesis.is_outage:
                cluster.wait_absent_left()
                cluster.away = frozenset(self.plan.placement.absent)
        self._phase = Phase.OUTAGE
        self.progress("end transactions")

    @contextmanager
    def _acting(self, act: Act, f: str, phase: Phase) -> Iterator[None]:
        """Perform an act, and write it to the history; its event ends with the block, as ``info`` if that raises."""
        brokers = list(self.plan.placement.absent)
        self.progress(act.words.format(broker=", ".join(map(str, brokers))))
        event = self._history.invoke(f=f, process=ops.NEMESIS, part=ops.NEMESIS, phase=phase, brokers=brokers)
        try:
            act.perform(self._context)
            yield
        except BaseException:
            self._history.complete("info", event)
            raise
        self._history.complete("ok", event)

    def _clean(self) -> None:
        cluster, payloads, protection = self.cluster, self._payloads.values(), self.protection
        self.on_window()
        self.progress("clean")
        is_open = self._wait_removed(protection.holds if protection else None)
        cluster.freeze()
        # A gate or guard that holds partitions ends the wait, too.
        self._is_guarded = (protection is not None or not is_open) and is_kept(cluster, payloads)
        if protection is not None and not self._is_guarded:
            # Held partitions stay held: evidence must not change when the absent brokers return.
            protection.stop()
        self._phase = Phase.LATE
        self.progress("late transactions")

    def _expose(self) -> None:
        assert self.plan.nemesis.expose is not None  # noqa: S101  (otherwise no schedule has the operation)
        with self._acting(self.plan.nemesis.expose, "expose", Phase.LATE):
            pass

    def _rejoin(self) -> None:
        nemesis, cluster = self.plan.nemesis, self.cluster
        with self._acting(nemesis.rejoin, COME_BACK, Phase.AFTER):
            cluster.wait_absent_back()
            cluster.away = frozenset()
        if nemesis.keeps_processes:
            # If everything was kept, the guard may have restored the settings already.
            cluster.wake_cleaners_of_absent(is_frozen=self.protection is None or not self._is_guarded)
        self._phase = Phase.AFTER
        self._start_fillers()
        cluster.wait_grown(FILLER_RECORDS)
        self._stop_fillers()

    def _remove_together(self) -> None:
        """Remove records that were kept for the absent brokers, now that these are back in sync.

        Then no replica missed anything that compaction could hide. Where some records were removed, the evidence does
        not change any more.
        """
        if not self._is_guarded:
            return
        self.progress("clean again")
        if self.protection is not None:
            holds, exposed = self.protection.holds, self.cluster.exposed
            self.cluster.wait(
                lambda: not any(holds(broker, tp) for tp in exposed for broker in self.cluster.present(tp)),
                "the partitions to be released",
            )
        self.cluster.thaw(self.plan.topic_settings)
        self._start_fillers()
        self._wait_removed()
        self._stop_fillers()
        self.cluster.freeze()
        self.cluster.wait_replicated("every replica to have everything")

    def _observe(self) -> None:
        self.progress("observe")
        cluster, plan = self.cluster, self.plan
        snapshot.take(cluster, self.folder, store.AFTER_REJOIN)
        for absent in plan.placement.absent:
            cluster.lead({tp: led_by(absent, cluster.replicas[tp]) for tp in cluster.exposed})
            partitions = [tp for tp in cluster.exposed if tp[0] != CONSUMER_OFFSETS]
            read_served(plan, cluster, self._history, absent, partitions)
        cluster.wait_replicated("the last look at every replica")
        if self._groups is not None:
            # Members that join make the coordinator write: the last observations would not match the stored logs.
            cluster.observed.stop()
            self._groups.observe()
        if self.protection is not None:
            self.protection.write()
        if plan.target.system in {KAFKA, OWN}:
            try:
                self.departures = unplanned_departures(cluster, read_lines(self.folder.history_path))
            except (HarnessError, OSError) as error:
                log.warning("it is not known which brokers left the ISR: %s", error)

    def _step_clocks(self) -> None:
        """Put the wall clocks of all brokers forward, while no transaction is open that could time out."""
        self._stop_fillers()
        self.cluster.wait_replicated("everything written to be on every replica that is up")
        self._clock_steps += 1
        offset_s = self._clock_steps * self.plan.timers.clock_step_s
        self._history.note("step clocks", process=ops.NEMESIS, phase=self._phase, offset_s=offset_s)
        for broker in self.cluster.brokers:
            ability(self.cluster.runtime, Clocks).skew(broker, offset_s)
        self._start_fillers()

    def _wait_removed(self, is_held: Callable[[int, TopicPartition], bool] | None = None) -> bool:
        """Wait for the window to open. If it does not open, the wait ends, and the observations are judged."""
        window_s = max(self.plan.timers.window_s, self.plan.system.least_window_s)
        while self.plan.timers.clock_step_s and self._clock_steps < MOST_STEPS:
            self._step_clocks()
            with suppress(WaitTimeoutError):
                wait_removed(self.cluster, self._payloads.values(), STEP_S, is_held)
                return True
        try:
            wait_removed(self.cluster, self._payloads.values(), window_s, is_held)
        except WaitTimeoutError as error:
            self.progress(f"the window does not open: {error}")
            return False
        return True
