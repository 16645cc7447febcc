"""Operations of administrators and the nemesis in a round. Refused requests are noted; the round continues."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harness.cluster.cluster import Cluster
from harness.cluster.snapshot import states_of
from harness.errors import HarnessError, UsageError, WaitTimeoutError
from harness.run_folder.history import DELETE_RECORDS, HEAL, INJECT, RECREATE, History
from harness.schedules import operations as ops
from harness.schedules.scenario import Phase
from harness.schedules.schedule import RoundPlan
from harness.soak.draw.workload import HOLD_S
from nemesis import FAULTS
from nemesis.fault import FaultContext
from nemesis.unassign import assign_again, is_placed

EXISTS = "already exists"
GONE_S, CREATED_S = 10.0, 30.0
"""The bounds within which a deleted topic leaves every broker's metadata, and a topic is created."""


@dataclass
class Administrators:
    """``settings``: the current settings of each topic. ``active``: faults that have not ended, in order."""

    plan: RoundPlan
    cluster: Cluster
    history: History
    copy_bytes_per_s: int
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    active: dict[tuple[str, int], None] = field(default_factory=dict)

    def create_topics(self) -> None:
        """Create every topic of the plan. Raises `HarnessError`."""
        for topic in self.plan.topics:
            self.settings[topic.name] = dict(topic.settings)
            self._create_soon(topic.name)

    def play(self, operation: ops.Operation) -> None:
        """Execute an operation, and note it in the history."""
        match operation:
            case ops.DeleteRecords():
                self._delete_records(operation)
            case ops.RecreateTopic(topic):
                self._noted(lambda: self._recreate(topic), RECREATE, topic=topic)
            case ops.AlterTopic(topic, setting, value):
                changed = {setting: value}
                self.settings[topic] |= changed
                alter = partial(self.cluster.admin.alter_topics, [topic], changed)
                self._noted(alter, "alter topic", topic=topic, settings=changed)
            case ops.Inject(fault, broker):
                self.active[fault, broker] = None
                self._fault(operation, FAULTS[fault].inject, INJECT)
            case ops.Heal(fault, broker):
                if self._fault(operation, FAULTS[fault].heal, HEAL):
                    self.active.pop((fault, broker), None)

    def heal(self) -> None:
        """End every active fault, the last one first. Raises `HarnessError` with the faults that do not end.

        A fault may keep another fault from ending (a broker that is cut off does not answer): every fault is tried
        before any is tried again, and faults that cut brokers off come first. Topics that are still missing are created
        before, as some faults end with a change of every topic.
        """

        def are_healed() -> bool:
            last_first = list(self.active)[::-1]
            for name, broker in sorted(last_first, key=lambda fault: not FAULTS[fault[0]].cuts_off):
                if not FAULTS[name].cuts_off:
                    with suppress(HarnessError):  # that somebody is cut off still: the next time
                        self._create_missing()
                self.play(ops.Heal(name, broker))
            return not self.active

        try:
            self.cluster.wait(are_healed, "every fault to end")
        except WaitTimeoutError as error:
            active = ", ".join(f"{name} on broker {broker}" for name, broker in self.active)
            raise WaitTimeoutError(f"{error}: {active}") from error

    def is_placed(self) -> bool:
        """Return whether all replicas are in their ISRs; ask for missing ones again: requests may come late."""
        self._create_missing()
        states = self.cluster.states()
        if all(tp in states and is_placed(states[tp], replicas) for tp, replicas in self.cluster.replicas.items()):
            return True
        assign_again(self.cluster)
        return False

    def delete_topics(self) -> None:
        """Delete every topic of the plan, best effort."""
        for topic in self.plan.topics:
            with suppress(HarnessError, OSError, KeyError):
                self.cluster.admin.delete_topic(topic.name)

    def _fault(self, operation: ops.Inject | ops.Heal, act: Callable[[FaultContext], None], verb: str) -> bool:
        note = partial(self.history.note, process=ops.NEMESIS, phase=Phase.BEFORE)
        context = FaultContext(self.cluster, (operation.broker,), self.copy_bytes_per_s, HOLD_S, note)
        return self._noted(lambda: act(context), f"{verb} {operation.fault}", ops.NEMESIS, brokers=[operation.broker])

    def _delete_records(self, operation: ops.DeleteRecords) -> None:
        tp = topic, partition = operation.topic, operation.partition
        try:
            leader = self.cluster.states()[tp].leader
            high_watermark = states_of(self.cluster.read(leader, [tp]), leader)[tp].high_watermark
        except (HarnessError, OSError, KeyError):
            return  # nobody leads, or the topic is being deleted: nothing was asked
        if (before := high_watermark - operation.keeps) > 0:
            delete = partial(self.cluster.admin.delete_records, self.cluster.runtime.address(leader), tp, before)
            self._noted(delete, DELETE_RECORDS, topic=topic, partition=partition, before=before)

    def _recreate(self, topic: str) -> None:
        cluster = self.cluster
        # By its id: a broker that was cut off may do it later, or again, and must not delete the topic that comes next.
        cluster.admin.delete_topic(topic, cluster.admin.topic_id(topic))
        cluster.wait(lambda: not cluster.control.states([topic]), f"{topic} to be gone", GONE_S)
        self._create_soon(topic)

    def _create_missing(self) -> None:
        missing = self.cluster.replicas.keys() - self.cluster.control.states(self.cluster.topics).keys()
        for topic in sorted({topic for topic, _ in missing}):
            self._create_soon(topic)

    def _create_soon(self, topic: str) -> None:
        """Create a topic that is not there, as soon as somebody does it. Raises `HarnessError`."""
        replicas = {tp: brokers for tp, brokers in self.cluster.replicas.items() if tp[0] == topic}
        failures: list[Exception] = []

        def is_created() -> bool:
            try:
                self.cluster.admin.create_topics(replicas, self.settings[topic])
            except UsageError:
                raise
            except (HarnessError, OSError) as error:
                failures.append(error)
                # A former request has created it, although its answer was lost.
                return EXISTS in str(error)
            return True

        try:
            self.cluster.wait(is_created, f"{topic} to be created", CREATED_S)
        except WaitTimeoutError as error:
            raise HarnessError(str(failures[-1] if failures else error)) from error

    def _noted(self, act: Callable[[], object], f: str, process: str = ops.ADMIN, **more: Any) -> bool:
        event = self.history.invoke(f=f, process=process, part=process, phase=Phase.BEFORE, **more)
        try:
            act()
        except (HarnessError, OSError) as error:
            self.history.complete("info", event, error=str(error))
            return False
        self.history.complete("ok", event)
        return True
