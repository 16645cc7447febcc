"""Programs: what each step makes of the replicas of a state, recorded once, in arrays for `walk.kernels`.

The rules are those of `harness.models.walk.state_space`, and only there: its steps are taken once in each view (a state
without the contents of its replicas, and with coordination their own offsets), with an `Effect` in place of each
replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from harness.models.log.effects import Effect, Slot
from harness.models.walk.exhaustive import Numbered
from harness.models.walk.kernels import (
    CODE_OF_ONE,
    CODE_OF_TWO,
    FIRST_OF_TWO,
    MOST_REGISTERS,
    OF_TWO,
    OF_VIEW,
    Controls,
    Steps,
)
from harness.models.world.coordination import NOTHING, Pair

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from harness.models.walk.kernels import Ints
    from harness.models.walk.walkable import Space, WalkState

_NUMBER: Final = (1 << FIRST_OF_TWO) - 1
_WORD: Final = (1 << CODE_OF_ONE) - 1
_CODES: Final = (1 << (61 - CODE_OF_ONE), 1 << (62 - CODE_OF_TWO))
"""How many operations on one number there can be, and on two."""
_MOST_NAMES: Final = 31
_JUDGE, _OWN, _NORMALIZE = "judge", "own", "normalize"
"""Operations on a replica, with the clients; and on own offsets, with the control part."""


class Programs:
    """The programs of a space's views, in the order of their first use."""

    def __init__(self, space: Space[Any]) -> None:
        """Begin without any program."""
        self._space = space
        self._slots = {broker: slot for slot, broker in enumerate(space.brokers)}
        self._own_bits = CODE_OF_ONE // len(self._slots) if space.is_coordinated else 0
        self._controls = Numbered["WalkState"](lambda one: one)
        self._views = Numbered[tuple[int, int]](lambda one: one)
        self._owns = Numbered[Pair](lambda one: one)
        self._codes = tuple(Numbered[tuple[str, tuple[Any, ...]]](lambda one: one) for _ in _CODES)
        self._of_controls: list[tuple[int, int, int, int, int]] = []
        self._alike: list[list[bool]] = []
        self._program, self._target, self._first = [0], list[int](), [0]
        self._out: list[list[int]] = []
        self._operations: list[tuple[int, int, int]] = []
        self._steps: Steps | None = None
        self._controls_so_far: Controls | None = None
        self.names: dict[str, int] = {}
        """The bit of each violation."""

    def row(self, state: WalkState) -> tuple[int, ...]:
        """Return the numbers of a state: of its control part, and of each slot's replica."""
        renamed, alike = self._space.renamed(state)
        numbers = [0] * len(self._slots)
        for broker, number in renamed.replicas:
            numbers[self._slots[broker]] = number
        slots = [self._slots[broker] for broker in alike]
        for slot, number in zip(slots, sorted(numbers[slot] for slot in slots), strict=True):
            numbers[slot] = number
        return self._control(renamed, alike), *numbers

    def controls(self) -> Controls:
        """Return the properties of all control parts so far."""
        if self._controls_so_far is None or len(self._controls_so_far.judge) < len(self._of_controls):
            judge, in_sync, own, *_ = _columns(self._of_controls, 5)
            self._controls_so_far = Controls(judge, in_sync, own, self._own_bits)
        return self._controls_so_far

    def steps(self) -> Steps:
        """Return the programs of all views so far."""
        for view in range(len(self._program) - 1, len(self._views)):
            self._record(*self._views[view])
            self._steps = None
        if self._steps is None or len(self._steps.alike) < len(self._of_controls):
            of_steps = (self._program, self._target, self._out, self._alike, self._first)
            _, _, own, normalize, leader = _columns(self._of_controls, 5)
            program, target, out, alike, first = (np.array(one, np.int32) for one in of_steps)
            codes, left, right = _columns(self._operations, 3)
            self._steps = Steps(
                program, target, out, alike, first, codes, left, right, leader, own, normalize, self._own_bits
            )
        return self._steps

    def result(self, key: int) -> int:
        """Compute the result of an operation by its key (`harness.models.walk.kernels`)."""
        if key & OF_TWO:
            name, more = self._codes[1][(key >> CODE_OF_TWO) & (_CODES[1] - 1)]
            return self._space.effects.of(name, ((key >> FIRST_OF_TWO) & _NUMBER, key & _NUMBER), more)
        number = key & _WORD
        if key & OF_VIEW:
            return self._views.number(((key & ~OF_VIEW) >> CODE_OF_ONE, number))
        name, more = self._codes[0][key >> CODE_OF_ONE]
        if name == _JUDGE:
            return self._bits(self._space.wrong_of(number, *more))
        if name == _OWN:
            own = self._owns.number(self._space.own(number, *more))
            if own >> self._own_bits:
                raise ValueError(f"there are more own offsets than fit {self._own_bits} bits")
            return own
        if name == _NORMALIZE:
            return self._control(self._space.normalized(self._controls[more[0]], self._owns[number]))
        return self._space.effects.of(name, (number,), more)

    def _bits(self, names: Sequence[str]) -> int:
        found = 0
        for name in names:
            found |= 1 << self.names.setdefault(name, len(self.names))
        if len(self.names) > _MOST_NAMES:
            raise ValueError("there are more names of violations than bits")
        return found

    def _code(self, operands: int, name: str, more: tuple[Hashable, ...]) -> int:
        code = self._codes[operands - 1].number((name, more))
        if code >= _CODES[operands - 1]:
            raise ValueError("there are more operations than codes")
        return code

    def _control(self, state: WalkState, alike: Sequence[int] = ()) -> int:
        """Return the number of a state's control part; ``alike``: the brokers in it that may change places."""
        control = state.with_replicas(tuple((broker, 0) for broker, _ in state.replicas))
        number = self._controls.number(control)
        if number == len(self._of_controls):
            in_sync = sum(1 << self._slots[broker] for broker in self._space.in_sync(control))
            judge, own = (self._code(1, name, (control.clients,)) for name in (_JUDGE, _OWN))
            normalize = self._code(1, _NORMALIZE, (number,))
            self._of_controls.append((judge, in_sync, own, normalize, self._slots[control.leader]))
            self._alike.append([broker in alike for broker in self._slots])
        return number

    def _record(self, number: int, owns: int) -> None:
        """Record the steps of a view: of a control part, and each replica's own offsets."""
        control, mask = self._controls[number], (1 << self._own_bits) - 1
        slots: Any = tuple((broker, Slot(self._slots[broker])) for broker, _ in control.replicas)
        places = range(len(self._slots) - 1, -1, -1)
        numbers = [(owns >> place * self._own_bits) & mask for place in places]
        pairs = [self._owns[one] if self._own_bits else NOTHING for one in numbers]
        for after in self._space.recorded_steps(control.with_replicas(slots), pairs):
            renamed, alike = self._space.renamed(after)
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
            sources = [self._register(one, registers) for one in replica.numbers]
            register = len(self._slots) + len(registers)
            if min(sources) < 0 or register >= MOST_REGISTERS:
                raise ValueError(f"{replica.name} cannot be recorded: there is no register for it, or for a constant")
            registers[replica] = register
            code = self._code(len(sources), replica.name, replica.more)
            self._operations.append((code, sources[0], sources[1] if len(sources) > 1 else -1))
        return registers[replica]


def _columns(rows: Sequence[Sequence[int]], width: int) -> Sequence[Ints]:
    """Return the columns of a table, also of one without rows."""
    table = np.array(rows, np.int32).reshape(-1, width)
    return [np.ascontiguousarray(column) for column in table.T]
