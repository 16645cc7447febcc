"""The one shrinker of schedules: fewer steps that still show a finding.

Source of the procedure: Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing Input* (2002), ``ddmin``;
in groups: Misherghi and Su, *HDD: Hierarchical Delta Debugging* (2006).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from harness.schedules.operations import CommitOffset, DeleteRecords, Die, End, Heal, Inject, SendOffset, Write
from harness.schedules.schedule import Step

T = TypeVar("T")


def reduced(
    steps: Sequence[Step], shows: Callable[[Sequence[Step]], bool], on_smaller: Callable[[Sequence[Step]], None]
) -> list[Step]:
    """Leave out whole clients and faults first, then partitions, then transactions, and at last single steps."""
    rest = list(steps)
    for grain in (_by_process, _by_partition, _by_transaction, lambda steps: range(len(steps))):
        groups: dict[Any, list[int]] = {}
        for at, label in enumerate(grain(rest)):
            groups.setdefault(label, []).append(at)

        def chosen(groups: Sequence[Sequence[int]], steps: Sequence[Step] = rest) -> list[Step]:
            return [steps[at] for at in sorted(itertools.chain.from_iterable(groups))]

        smallest = ddmin(
            list(groups.values()), lambda groups: shows(chosen(groups)), lambda groups: on_smaller(chosen(groups))
        )
        rest = chosen(smallest)
    return rest


def ddmin(
    items: Sequence[T], shows: Callable[[Sequence[T]], bool], on_smaller: Callable[[Sequence[T]], None] = lambda _: None
) -> list[T]:
    """Return items of which no single item can be left out, in their order."""
    items, size = list(items), -(-len(items) // 2)
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
    operations = [step.operation for step in steps]
    return [(it.fault, it.broker) if isinstance(it, Inject | Heal) else it.process for it in operations]


def _by_partition(steps: Sequence[Step]) -> list[Hashable]:
    """Label records by their partition. Operations without a partition stay together."""
    return [
        (it.topic, it.partition) if isinstance(it, Write | SendOffset | CommitOffset | DeleteRecords) else None
        for it in (step.operation for step in steps)
    ]


def _by_transaction(steps: Sequence[Step]) -> list[Hashable]:
    """Label steps of clients by the number of transactions that the client ended before, and faults by their number.

    Steps of plain clients, which end no transaction, are alone.
    """
    ended: Counter[Hashable] = Counter()
    writers = {step.operation.process for step in steps if isinstance(step.operation, End | Die)}
    labels: list[Hashable] = []
    for at, operation in enumerate(step.operation for step in steps):
        match operation:
            case Inject(fault, broker) | Heal(fault, broker):
                ended[fault, broker] += isinstance(operation, Inject)
                labels.append((fault, broker, ended[fault, broker]))
            case _ if operation.process in writers:
                labels.append((operation.process, ended[operation.process]))
                ended[operation.process] += isinstance(operation, End | Die)
            case _:
                labels.append(at)
    return labels
