"""The generator of a round: the operations that its clients, administrators and faults may begin, and how often."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from harness.schedules import operations as ops
from harness.schedules.generators import Context, Generator, each, mix, phases, stagger, together, until
from harness.schedules.scenario import STREAMS
from harness.schedules.schedule import RoundClient, RoundPlan
from harness.soak.draw.plan import BROKERS, JAVA, OF_GROUPS, POLICY, RETENTION, SETTINGS, Shape
from nemesis.fault import Fault

MOST_RECORDS: Final = 5
"""The maximum number of records in a transaction."""
COMMIT_SHARE, DELETE_SHARE = 0.55, 0.4
GROUPS: Final = ("g0", "g1")
VISITED: Final = ("v0", "v1", "v2")
"""Groups that members join by all protocols. Offsets are committed seldom: some are older than the protocol."""
VISITED_SHARE: Final = 0.4
CHANGED: Final = ("segment.ms", "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
"""Settings that also change during a round."""
HOLD_S: Final = 4.0
"""The minimum duration of a fault: longer than sessions and retentions of the fast timers."""
MOST_AT_ONCE: Final = 4


def generator_of(plan: RoundPlan, shape: Shape, faults: Mapping[str, Fault]) -> Generator:
    """Return the generator of a round: clients alone at first, then also administrators and faults."""
    workload = Workload(plan, shape)
    warm_s = shape.play_s / 6
    clients = stagger(1 / shape.rate_hz, _mix(workload.client_operations()))
    admin = stagger(shape.play_s / 8, _mix(workload.admin_operations()), next_s=warm_s)
    parts = [clients, admin]
    if faults:
        parts.append(stagger(shape.play_s / 12, each(choose_fault(faults, BROKERS)), next_s=warm_s))
    return phases(until(warm_s, clients), until(shape.play_s, together(*parts)))


def _mix(choices: Mapping[Callable[[Context], ops.Operation | None], float]) -> Generator:
    return mix(*((weight, each(choose)) for choose, weight in choices.items()))


@dataclass(frozen=True)
class Workload:
    """The operations of a round: each method chooses an operation in a context, or returns None if there is none."""

    plan: RoundPlan
    shape: Shape

    def client_operations(self) -> dict[Callable[[Context], ops.Operation | None], float]:
        """Return the functions for clients, by weight."""
        of_groups = {self._sends_offset: 2, self._commits_offset: 1, self._visits: 0.4, self._deletes_group: 0.03}
        others = [*self._transactional, *self._of_groups]
        return {
            partial(self._writes, [client for client in self.plan.clients if client not in others]): 50,
            partial(self._writes, self._transactional): 30,
            self._ends: 18,
            self._dies: 0.5,
            **(of_groups if self.shape.is_real else {}),
        }

    def admin_operations(self) -> dict[Callable[[Context], ops.Operation | None], float]:
        """Return the methods for administrators, by weight."""
        return {self._deletes_records: 1, self._alters: 1, self._recreates: 1}

    @property
    def _transactional(self) -> list[RoundClient]:
        return [client for client in self.plan.clients if client.transactional_id is not None]

    @property
    def _of_groups(self) -> list[RoundClient]:
        return [client for client in self.plan.clients if client.name.startswith(OF_GROUPS)]

    def _writes(self, clients: Sequence[RoundClient], context: Context) -> ops.Operation | None:
        random = context.random("write")
        idle = [
            client
            for client in clients
            if client.name not in context.busy and context.situation.records_of(client.name) < MOST_RECORDS
        ]
        if not idle:
            return None
        client = random.choice(idle)
        topic, partition = random.choice(client.home or self.plan.partitions)
        deletes = random.random() < DELETE_SHARE
        # About two writes of a key in a round: a record that is written in an outage is often the last of its key.
        keys = max(4, round(self.shape.rate_hz * self.shape.play_s / (2 * self.shape.partitions)))
        return ops.Write(client.name, f"k{random.randrange(keys)}", deletes, topic, partition)

    def _begun(self, context: Context) -> list[RoundClient]:
        """Return the idle clients with an open transaction."""
        is_open, busy = context.situation.open, context.busy
        return [client for client in self._transactional if client.name in is_open and client.name not in busy]

    def _ends(self, context: Context) -> ops.Operation | None:
        """End a transaction of a client that has waited as long as its patience."""
        random, is_open = context.random("end"), context.situation.open
        due = [
            client.name
            for client in self._begun(context)
            if context.now_s - is_open[client.name].since_s >= client.patience_s
        ]
        return ops.End(random.choice(due), ops.COMMIT if random.random() < COMMIT_SHARE else ops.ABORT) if due else None

    def _dies(self, context: Context) -> ops.Operation | None:
        begun = self._begun(context)
        return ops.Die(context.random("die").choice(begun).name) if begun else None

    def _sends_offset(self, context: Context) -> ops.Operation | None:
        begun, random = self._begun(context), context.random("send offset")
        return ops.SendOffset(random.choice(begun).name, *self._offset(context, "send offset to")) if begun else None

    def _commits_offset(self, context: Context) -> ops.Operation:
        random = context.random("committer")
        # Java clients commit slowly, and are needed as members.
        client = random.choice([client for client in self._of_groups if client.library != JAVA])
        commit = ops.CommitOffset(client.name, *self._offset(context, "commit offset"))
        visited = f"{self.plan.topics[0].name}-{random.choice(VISITED)}"
        return replace(commit, group=visited) if random.random() < VISITED_SHARE else commit

    def _offset(self, context: Context, purpose: str) -> tuple[str, str, int, int]:
        """Return group, topic, partition and an offset that identifies the operation: no other one commits it."""
        random = context.random(purpose)
        topic, partition = random.choice(self.plan.partitions[: len(GROUPS)])
        return self._group(random), topic, partition, context.drawn

    def _group(self, random: Random) -> str:
        return f"{self.plan.topics[0].name}-{random.choice(GROUPS)}"

    def _visits(self, context: Context) -> ops.Operation | None:
        random, topics = context.random("visit"), self.plan.topics
        protocol = random.choice(list(self.shape.group_protocols))
        clients = [it for it in self._of_groups if it.library == JAVA or protocol != STREAMS]
        idle = [client.name for client in clients if client.name not in context.busy]
        # Brokers may convert a group, or refuse members of another protocol. Members may commit offsets, but not of the
        # topic that other clients commit.
        group = f"{topics[0].name}-{random.choice([protocol, *VISITED] if len(topics) > 1 else [protocol])}"
        return ops.VisitGroup(random.choice(idle), group, topics[len(topics) // 2].name, protocol) if idle else None

    def _deletes_group(self, context: Context) -> ops.Operation:
        client = context.random("deleter").choice(self._of_groups)
        return ops.DeleteGroup(client.name, self._group(context.random("delete group")))

    def _deletes_records(self, context: Context) -> ops.Operation | None:
        """Delete records where that is allowed: not of topics that are only compacted.

        Source: ``Partition.deleteRecordsOnLeader``. Simulated brokers have no policy, and allow it.
        """
        random = context.random("delete records")
        allowed = {
            topic.name
            for topic in self.plan.topics
            if POLICY not in self.shape.settings or topic.settings.get(POLICY) in RETENTION
        }
        partitions = [tp for tp in self.plan.partitions if tp[0] in allowed]
        if not partitions:
            return None
        topic, partition = random.choice(partitions)
        return ops.DeleteRecords(random.randrange(40), topic, partition)

    def _alters(self, context: Context) -> ops.Operation:
        random = context.random("alter")
        topic = random.choice(self.plan.topics).name
        setting = random.choice([name for name in CHANGED if name in self.shape.settings])
        return ops.AlterTopic(
            topic, setting, random.choice([value for value in SETTINGS[setting] if value is not None])
        )

    def _recreates(self, _: Context) -> ops.Operation:
        """Delete the last topic, and create it again: clients that use it fail, and the other topics stay in use."""
        return ops.RecreateTopic(self.plan.topics[-1].name)


def why_not(
    fault: Fault, broker: int, active: Collection[tuple[str, int]], brokers: Sequence[int], faults: Mapping[str, Fault]
) -> str | None:
    """Return why a fault cannot begin while others are active; None if it can."""
    if (fault.name, broker) in active:
        return "it is active"
    if len(active) >= MOST_AT_ONCE:
        return f"{MOST_AT_ONCE} faults are active"
    out = {other for name, other in active if faults[name].leaves_isr}
    if (fault.leaves_isr or fault.needs_broker_up) and broker in out:
        return f"broker {broker} is out of the ISR"
    if fault.leaves_isr and len(out) >= (len(brokers) - 1) // 2:
        return "a quorum of controllers has to stay"
    if fault.alone_in and any(faults[name].alone_in == fault.alone_in for name, _ in active):
        return f"only one of {fault.alone_in} at a time"
    return None


def choose_fault(faults: Mapping[str, Fault], brokers: Sequence[int]) -> Callable[[Context], ops.Operation | None]:
    """Return a function that begins a fault that can be combined with the active faults, or ends an active fault."""

    def choose(context: Context) -> ops.Operation | None:
        active, random = context.situation.faults, context.random("fault")
        out = {broker for name, broker in active if faults[name].leaves_isr}
        ends: list[ops.Operation] = [
            ops.Heal(name, broker)
            for (name, broker), since_s in sorted(active.items())
            if context.now_s - since_s >= HOLD_S and not (faults[name].needs_broker_up and broker in out)
        ]
        begins: list[ops.Operation] = [
            ops.Inject(name, broker)
            for name, fault in sorted(faults.items())
            for broker in brokers
            if why_not(fault, broker, active.keys(), brokers, faults) is None
        ]
        options = [operations for operations in (ends, begins) if operations]
        return random.choice(random.choice(options)) if options else None

    return choose
