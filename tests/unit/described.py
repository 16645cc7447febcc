"""Operations by the lines that describe them, so that tests read as their output: ``described("2 leaves")``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from harness.models.world.world import Rules, World, begin, take
from harness.schedules.operations import (
    BEGINNINGS,
    ENDINGS,
    AddReplica,
    AssignAgain,
    CleanerPass,
    CopyBatch,
    DeleteGroup,
    ElectLeader,
    End,
    EndElsewhere,
    Heal,
    Inject,
    JoinGroup,
    JoinIsr,
    LeaveGroup,
    LeaveIsr,
    LosePower,
    MessageArrives,
    Operation,
    ProducersExpire,
    Rest,
    Restart,
    SendReport,
    TimePasses,
    Unassign,
    Write,
    WriteBatch,
)

BROKERS: Final = range(1, 6)


def _operations() -> Iterator[Operation]:
    yield from (TimePasses(), Rest(), ProducersExpire())
    for client in ("t", "u", "p", "tx"):
        yield Restart(client)
        for outcome in ("commit", "abort"):
            yield from (End(client, outcome), EndElsewhere(client, outcome))
    for broker in BROKERS:
        yield from (cls(broker) for cls in (AddReplica, AssignAgain, ElectLeader, Unassign, SendReport))
        yield from (cls(broker) for cls in (CopyBatch, JoinIsr, LeaveIsr, MessageArrives))
        yield from (Inject(fault, broker) for fault in (*BEGINNINGS, "kill", "stop", "pause"))
        yield from (Heal(fault, broker) for fault in ENDINGS)
        yield from (LosePower(broker, offset) for offset in range(4))
    for brokers in ((1,), (2,), (3,), (4,), (5,), (1, 3), (1, 2, 3)):
        yield from (CleanerPass(brokers), CleanerPass(brokers, keeps=True))
    yield from (JoinGroup("m", "g", "consumer"), JoinGroup("m", "g", "classic"))
    yield from (LeaveGroup("m", "g"), DeleteGroup("a", "g"))


OPERATIONS: Final[Mapping[str, Operation]] = {str(operation): operation for operation in _operations()}


def described(*lines: str | Operation) -> tuple[Operation, ...]:
    """Return the operations of lines, each of one or of several with semicolons between; an operation as it is."""
    return tuple(
        one for text in lines for one in (map(_operation_of, text.split("; ")) if isinstance(text, str) else [text])
    )


def play(rules: Rules, operations: Iterable[Operation]) -> World:
    """Return the cluster of the models after a schedule; impossible operations are skipped."""
    world = begin(rules)
    for operation in operations:
        take(world, operation)
    return world


def _operation_of(line: str) -> Operation:
    match line.split():
        case [process, "puts" | "deletes" as verb, key]:
            return Write(process, key, verb == "deletes")
        case [process, "writes", *records]:
            tombstones = tuple(at for at, record in enumerate(records) if record.startswith("-"))
            return WriteBatch(process, tuple(record.removeprefix("-") for record in records), tombstones)
    return OPERATIONS[line]
