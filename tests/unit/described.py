"""Operations by the lines that describe them, so that tests read as their output: ``described("2 leaves")``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from harness.models.world.world import Rules, World, begin, take
from harness.schedules import operations as ops
from harness.schedules.operations import BEGINNINGS, ENDINGS, Operation, Write, WriteBatch

BROKERS: Final = range(1, 6)


def _operations() -> Iterator[Operation]:
    yield from (ops.TimePasses(), ops.Rest(), ops.ProducersExpire(), ops.UntilRemoved())
    for client in ("t", "u", "p", "tx"):
        yield ops.Restart(client)
        for outcome in ("commit", "abort"):
            yield from (ops.End(client, outcome), ops.EndElsewhere(client, outcome))
    for broker in BROKERS:
        yield from (
            cls(broker) for cls in (ops.AddReplica, ops.AssignAgain, ops.ElectLeader, ops.Unassign, ops.SendReport)
        )
        yield from (cls(broker) for cls in (ops.CopyBatch, ops.JoinIsr, ops.LeaveIsr, ops.MessageArrives))
        yield from (ops.Inject(fault, broker) for fault in (*BEGINNINGS, "kill", "stop", "pause"))
        yield from (ops.Heal(fault, broker) for fault in ENDINGS)
        yield from (ops.LosePower(broker, offset) for offset in range(4))
    for brokers in ((1,), (2,), (3,), (4,), (5,), (1, 3), (1, 2, 3)):
        yield from (ops.CleanerPass(brokers), ops.CleanerPass(brokers, keeps=True))
    yield from (ops.JoinGroup("m", "g", "consumer"), ops.JoinGroup("m", "g", "classic"))
    yield from (ops.LeaveGroup("m", "g"), ops.DeleteGroup("a", "g"))


OPERATIONS: Final[Mapping[str, Operation]] = {str(operation): operation for operation in _operations()}


def described(*lines: str | Operation) -> tuple[Operation, ...]:
    """Return the operations of lines, each of one or of several with semicolons between; an operation as it is."""
    parts = [part for line in lines for part in (line.split("; ") if isinstance(line, str) else [line])]
    return tuple(_operation_of(part) if isinstance(part, str) else part for part in parts)


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
