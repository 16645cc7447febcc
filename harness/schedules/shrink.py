"""Fewer steps that still show something: whole clients and faults are left out first, at last single steps.

Source of the procedure: Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing Input* (2002), ``ddmin``;
in groups: Misherghi and Su, *HDD: Hierarchical Delta Debugging* (2006).
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from harness.schedules.operations.administrators import DeleteRecords
from harness.schedules.operations.clients import CommitOffset, Die, End, SendOffset, Write
from harness.schedules.operations.faults import Heal, Inject

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from harness.schedules.schedule import Step

T = TypeVar("T")


def reduced(
    steps: Sequence[Step], shows: Callable[[Sequence[Step]], bool], on_smaller: Callable[[Sequence[Step]], None]
) -> list[Step]:
    """Leave out whole clients and faults first, then partitions, then transactions, and at last single steps."""
    rest = list(steps)
    for grain in (_by_process, _by_partition, _by_transaction, lambda some: range(len(some))):
        groups: dict[Any, list[int]] = {}
        for at, label in enumerate(grain(rest)):
            groups.setdefault(label, []).append(at)

        def chosen(some: Sequence[Sequence[int]], of: Sequence[Step] = rest) -> list[Step]:
            return [of[at] for at in sorted(itertools.chain.from_iterable(some))]

        kept = ddmin(list(groups.values()), lambda some: shows(chosen(some)), lambda some: on_smaller(chosen(some)))
        rest = chosen(kept)
    return rest


def ddmin(items: list[T], shows: Callable[[Sequence[T]], bool], on_smaller: Callable[[Sequence[T]], None]) -> list[T]:
    """Return items of which none can be left out alone, in their order."""
    size = -(-len(items) // 2)
    while size:
        count, at = len(items), 0
        while at < len(items):
            rest = [*items[:at], *items[at + size :]]
            if rest and shows(rest):
                items = rest
                on_smaller(items)
            else:
                at += size
        # Single items are tried until none of all of them can go.
        size = size // 2 or int(len(items) < count)
    return items


def _by_process(steps: Sequence[Step]) -> list[Hashable]:
    return [
        (one.operation.fault, one.operation.broker)
        if isinstance(one.operation, Inject | Heal)
        else one.operation.process
        for one in steps
    ]


def _by_partition(steps: Sequence[Step]) -> list[Hashable]:
    """Label records by their partition. What has none, or concerns a whole topic, stays together."""
    return [
        (one.operation.topic, one.operation.partition)
        if isinstance(one.operation, Write | SendOffset | CommitOffset | DeleteRecords)
        else None
        for one in steps
    ]


def _by_transaction(steps: Sequence[Step]) -> list[Hashable]:
    """Label steps of clients by how often theirs ended a transaction before, and those of faults by how often it began.

    Plain clients end none: theirs are single steps.
    """
    ended: Counter[Hashable] = Counter()
    writers = {one.operation.process for one in steps if isinstance(one.operation, End | Die)}
    labels: list[Hashable] = []
    for at, one in enumerate(steps):
        match one.operation:
            case Inject(fault=fault, broker=broker):
                ended[fault, broker] += 1
                labels.append((fault, broker, ended[fault, broker]))
            case Heal(fault=fault, broker=broker):
                labels.append((fault, broker, ended[fault, broker]))
            case operation if operation.process in writers:
                labels.append((operation.process, ended[operation.process]))
                ended[operation.process] += isinstance(operation, End | Die)
            case _:
                labels.append(at)
    return labels
