"""The generator of a round: which operations its clients, administrators and faults may begin, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.schedules.generators import Each, Generator, Mix, Phases, Stagger, Together, Until
from harness.schedules.operations.administrators import AlterTopic, DeleteRecords, RecreateTopic
from harness.schedules.operations.clients import (
    ABORT,
    COMMIT,
    CommitOffset,
    DeleteGroup,
    Die,
    End,
    SendOffset,
    VisitGroup,
    Write,
)
from harness.soak.draw.composition import choose_fault
from harness.soak.draw.plan import ALTERATION, DELETE_RECORDS, GROUP_OFFSETS, OF_GROUPS, RECREATION, RETENTION, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from random import Random

    from harness.kafka_api.messages import TopicPartition
    from harness.schedules.generators import Context
    from harness.schedules.operations.operation import Operation
    from harness.schedules.plan import RoundClient, RoundPlan
    from harness.soak.draw.plan import Shape
    from nemesis.fault import Fault

MOST_RECORDS: Final = 5
"""Of a transaction."""
COMMIT_SHARE, DELETE_SHARE = 0.55, 0.4
GROUPS: Final = ("g0", "g1")
CHANGED: Final = ("segment.ms", "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
"""Settings that are changed in mid-round, too."""


def generator_of(plan: RoundPlan, shape: Shape, faults: Mapping[str, Fault]) -> Generator:
    """Return the generator of a round: clients alone at first, then beside them administrators and faults."""
    warm_s = shape.play_s / 6
    clients = Stagger(1 / shape.rate_hz, Mix(_client_operations(plan, shape)))
    admin = _admin_operations(plan, shape)
    parts: list[Generator] = [clients]
    if admin:
        parts.append(Stagger(shape.play_s / 8, Mix(admin), next_s=warm_s))
    if faults:
        parts.append(Stagger(shape.play_s / 12, Each(choose_fault(faults, shape.brokers)), next_s=warm_s))
    return Phases((Until(warm_s, clients), Until(shape.play_s, Together(tuple(parts)))))


def _client_operations(plan: RoundPlan, shape: Shape) -> tuple[tuple[float, Generator], ...]:
    # About two writes of a key in a round: what is written in an outage is often the last of its key.
    keys = max(4, round(shape.rate_hz * shape.play_s / (2 * shape.partitions)))
    of_groups = [one for one in plan.clients if one.name.startswith(OF_GROUPS)]
    writers = [one for one in plan.clients if one.transactional_id is None and one not in of_groups]
    transactional = [one for one in plan.clients if one.transactional_id is not None]
    weighted: list[tuple[float, Callable[[Context], Operation | None]]] = [
        (50, _writes(writers, plan.partitions, keys)),
        (30, _writes(transactional, plan.partitions, keys)),
        (18, _ends(transactional)),
        (0.5, _deaths(transactional)),
    ]
    if GROUP_OFFSETS in shape.features:
        weighted += [
            (2, _sends_offset(transactional, plan)),
            (1, _commits_offset(of_groups, plan)),
            (0.05, _visits(of_groups, plan, shape.group_protocols)),
            (0.03, _deletes_group(of_groups, plan)),
        ]
    return tuple((weight, Each(choose)) for weight, choose in weighted)


def _admin_operations(plan: RoundPlan, shape: Shape) -> tuple[tuple[float, Generator], ...]:
    by_feature: Mapping[str, Callable[[Context], Operation | None]] = {
        DELETE_RECORDS: _deletes_records(plan, shape.settings),
        ALTERATION: _alters(plan, shape.settings),
        RECREATION: _recreates(plan),
    }
    return tuple((1, Each(choose)) for feature, choose in by_feature.items() if feature in shape.features)


def _writes(
    clients: Sequence[RoundClient], partitions: Sequence[TopicPartition], keys: int
) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("write")
        idle = [
            one
            for one in clients
            if one.name not in context.busy and context.situation.records_of(one.name) < MOST_RECORDS
        ]
        if not idle:
            return None
        client = random.choice(idle)
        topic, partition = random.choice(client.home or partitions)
        deletes = random.random() < DELETE_SHARE
        return Write(client.name, f"k{random.randrange(keys)}", deletes, topic, partition)

    return choose


def _ends(clients: Sequence[RoundClient]) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random, situation = context.random("end"), context.situation
        due = [
            one.name
            for one in clients
            if one.name in situation.open
            and one.name not in context.busy
            and context.now_s - situation.open[one.name].since_s >= one.patience_s
        ]
        if not due:
            return None
        return End(random.choice(due), COMMIT if random.random() < COMMIT_SHARE else ABORT)

    return choose


def _deaths(clients: Sequence[RoundClient]) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        alive = [one.name for one in clients if one.name in context.situation.open and one.name not in context.busy]
        return Die(context.random("die").choice(alive)) if alive else None

    return choose


def _sends_offset(clients: Sequence[RoundClient], plan: RoundPlan) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("send offset")
        begun = [one.name for one in clients if one.name in context.situation.open and one.name not in context.busy]
        return SendOffset(random.choice(begun), *_offset(context, "send offset to", plan)) if begun else None

    return choose


def _commits_offset(clients: Sequence[RoundClient], plan: RoundPlan) -> Callable[[Context], Operation | None]:
    return lambda context: CommitOffset(
        context.random("committer").choice(clients).name, *_offset(context, "commit offset", plan)
    )


def _offset(context: Context, purpose: str, plan: RoundPlan) -> tuple[str, str, int, int]:
    """Return group, topic, partition and an offset that no other operation commits: it tells which one it was."""
    random = context.random(purpose)
    topic, partition = random.choice(plan.partitions[: len(GROUPS)])
    return _group(random, plan), topic, partition, context.drawn


def _group(random: Random, plan: RoundPlan) -> str:
    return f"{plan.topics[0].name}-{random.choice(GROUPS)}"


def _visits(
    clients: Sequence[RoundClient], plan: RoundPlan, protocols: Sequence[str]
) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("visit")
        if not protocols:
            return None
        group, topic = f"{plan.topics[0].name}-visited", plan.topics[0].name
        return VisitGroup(random.choice(clients).name, group, topic, random.choice(list(protocols)))

    return choose


def _deletes_group(clients: Sequence[RoundClient], plan: RoundPlan) -> Callable[[Context], Operation | None]:
    return lambda context: DeleteGroup(
        context.random("deleter").choice(clients).name, _group(context.random("delete group"), plan)
    )


def _deletes_records(plan: RoundPlan, known: Collection[str]) -> Callable[[Context], Operation | None]:
    """Return a function that deletes records where that is allowed.

    Of topics that are only compacted no record can be deleted (``Partition.deleteRecordsOnLeader``); simulated brokers
    know no policy, and allow it.
    """
    allowed = {
        topic.name
        for topic in plan.topics
        if "cleanup.policy" not in known or topic.settings.get("cleanup.policy") in RETENTION
    }
    partitions = [tp for tp in plan.partitions if tp[0] in allowed]

    def choose(context: Context) -> Operation | None:
        random = context.random("delete records")
        if not partitions:
            return None
        topic, partition = random.choice(partitions)
        return DeleteRecords(random.randrange(40), topic, partition)

    return choose


def _alters(plan: RoundPlan, known: Collection[str]) -> Callable[[Context], Operation | None]:
    def choose(context: Context) -> Operation | None:
        random = context.random("alter")
        topic, setting = random.choice(plan.topics).name, random.choice([one for one in CHANGED if one in known])
        return AlterTopic(topic, setting, random.choice([one for one in SETTINGS[setting] if one is not None]))

    return choose


def _recreates(plan: RoundPlan) -> Callable[[Context], Operation | None]:
    # The last topic alone: clients that have it open fail, and the other topics are to be written meanwhile.
    return lambda _: RecreateTopic(plan.topics[-1].name)
