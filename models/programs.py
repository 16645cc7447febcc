"""Programs: what each step of a control part makes of the replicas, recorded once, in arrays for `models.kernels`.

The rules are those of `models.state_space`, and only there: its steps are taken once in each control part (a state
without the contents of its replicas), with an `Effect` in place of each replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from models.exhaustive import Numbered
from models.kernels import CODE_OF_ONE, CODE_OF_TWO, FIRST_OF_TWO, MOST_REGISTERS, OF_TWO
from models.state_space import Effect, Slot

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from models.kernels import Ints
    from models.state_space import State, StateSpace

_NUMBER: Final = (1 << FIRST_OF_TWO) - 1
_WORD: Final = (1 << CODE_OF_ONE) - 1
_CODES_OF_TWO: Final = 1 << (62 - CODE_OF_TWO)


@dataclass(frozen=True)
class Arrays:
    """All programs so far, as the kernels take them."""

    program: Ints
    target: Ints
    out: Ints
    alike: Ints
    first: Ints
    codes: Ints
    left: Ints
    right: Ints
    clients: Ints
    in_sync: Ints


@dataclass
class Programs:
    """The programs of a space's control parts, in the order of their first use."""

    space: StateSpace
    controls: Numbered[State] = field(default_factory=lambda: Numbered["State"](lambda one: one))

    def __post_init__(self) -> None:
        """Begin without any program."""
        self._recorded = self.space.recorded()
        self._slots = {broker: slot for slot, broker in enumerate(self.space.brokers)}
        self._codes = tuple(Numbered["tuple[str, tuple[Hashable, ...]]"](lambda one: one) for _ in range(2))
        self._program, self._target, self._first = [0], list[int](), [0]
        self._out, self._alike = list[list[int]](), list[list[bool]]()
        self._operations = list[tuple[int, int, int]]()
        self._clients, self._in_sync = list[int](), list[int]()
        self._arrays: Arrays | None = None

    def row(self, state: State) -> tuple[int, ...]:
        """Return the numbers of a state: of its control part, and of each slot's replica."""
        renamed, alike = self.space.renamed(state)
        numbers = [0] * len(self._slots)
        for broker, number in renamed.replicas:
            numbers[self._slots[broker]] = number
        slots = [self._slots[broker] for broker in alike]
        for slot, number in zip(slots, sorted(numbers[slot] for slot in slots), strict=True):
            numbers[slot] = number
        return self._control(renamed, alike), *numbers

    def arrays(self, last: int) -> Arrays:
        """Return the programs of the control parts up to the last that is needed."""
        for known in range(len(self._program) - 1, last + 1):
            self._record(self.controls[known])
            self._arrays = None
        if self._arrays is None:
            operations = np.array(self._operations or [(0, 0, 0)], np.int32).T
            every = (self._program, self._target, self._out, self._alike, self._first)
            codes, left, right = (np.ascontiguousarray(one) for one in operations)
            of_steps = [np.array(one, np.int32) for one in every]
            self._arrays = Arrays(
                *of_steps, codes, left, right, np.array(self._clients, np.int32), np.array(self._in_sync, np.int32)
            )
        return self._arrays

    def result(self, key: int) -> int:
        """Compute what an operation makes of replicas, by its key (`models.kernels`)."""
        if key & OF_TWO:
            name, more = self._codes[1][(key >> CODE_OF_TWO) & (_CODES_OF_TWO - 1)]
            numbers = [(key >> FIRST_OF_TWO) & _NUMBER, key & _NUMBER]
        else:
            name, more = self._codes[0][key >> CODE_OF_ONE]
            numbers = [key & _WORD]
        return self.space.effect(name, numbers, more)

    def _control(self, state: State, alike: list[int]) -> int:
        """Return the number of a state's control part; ``alike``: the brokers in it that may change places."""
        control = state._replace(replicas=tuple((broker, 0) for broker, _ in state.replicas))
        number = self.controls.number(control)
        if number == len(self._clients):
            self._clients.append(control.clients)
            self._in_sync.append(sum(1 << self._slots[one] for one in self.space.in_sync(control)))
            self._alike.append([broker in alike for broker in self._slots])
        return number

    def _record(self, control: State) -> None:
        slots = tuple((broker, Slot(self._slots[broker])) for broker, _ in control.replicas)
        for _, after in self._recorded.following(control._replace(replicas=slots)):
            renamed, alike = self.space.renamed(after)
            registers: dict[Effect, int] = {}
            out = [-1] * len(self._slots)
            for broker, replica in renamed.replicas:
                out[self._slots[broker]] = self._register(replica, registers)
            self._target.append(self._control(renamed, alike))
            self._out.append(out)
            self._first.append(len(self._operations))
        self._program.append(len(self._target))

    def _register(self, replica: int | Slot | Effect, registers: dict[Effect, int]) -> int:
        """Return the register of a replica, having appended the operations that lead to it."""
        if isinstance(replica, int):
            return -1 - replica
        if isinstance(replica, Slot):
            return replica.number
        if replica not in registers:
            sources = [self._register(one, registers) for one in replica.replicas]
            if any(source < 0 for source in sources):
                raise ValueError(f"{replica.name} of a constant replica is to be computed as it is recorded")
            codes = self._codes[len(sources) - 1]
            code = codes.number((replica.name, replica.more))
            registers[replica] = len(self._slots) + len(registers)
            if registers[replica] >= MOST_REGISTERS or (len(sources) > 1 and code >= _CODES_OF_TWO):
                raise ValueError("a step has more operations than there is room for")
            self._operations.append((code, sources[0], sources[1] if len(sources) > 1 else -1))
        return registers[replica]

    def wrong(self, key: int) -> Iterator[str]:
        """Yield what is wrong with a replica in sync, by its key: clients, and the replica's number."""
        yield from self.space.wrong_of(key & _WORD, key >> CODE_OF_ONE)
