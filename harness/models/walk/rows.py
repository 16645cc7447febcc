"""A space of small clusters as rows of numbers, for `harness.models.walk.exhaustive.explore`.

A row has the number of a state's control part (clients, leader, which broker is down, …) and the number of the replica
at each broker. The rules are asked once for the steps of each control part, with an `Effect` in place of each replica;
what an effect makes of a replica is looked up, or computed by the model where it is new. So the steps of millions of
states cost a few look-ups each. States that differ only by the names of brokers that may change places are one row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from harness.models.log.effects import Effect, Slot
from harness.models.walk.exhaustive import Explored, Numbered, explore
from harness.models.world.coordination import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from harness.models.log.effects import Effects
    from harness.models.world.coordination import Pair
    from harness.schedules.operations.operation import Operation

Row: TypeAlias = tuple[int, ...]
"""The number of the control part, and of each broker's replica: 0 where it has none, or an empty one."""
NumberOf: TypeAlias = Callable[[Row], int]
After: TypeAlias = Callable[[Row], Row]

_EMPTY: Final = 0


class WalkState(Hashable, Protocol):
    """A state: numbers of the clients' state and of each broker's replica, and a control part."""

    @property
    def clients(self) -> int:
        """The number of the state of the clients."""

    @property
    def replicas(self) -> tuple[tuple[int, int], ...]:
        """Each broker, and the number of its replica."""

    @property
    def leader(self) -> int:
        """The broker that leads."""

    def with_replicas(self, replicas: tuple[tuple[int, int], ...], /) -> Self:
        """Return the state with other replicas."""


S = TypeVar("S", bound=WalkState)


class Space(Protocol[S]):
    """The transitions between states; `harness.models.walk.state_space.StateSpace` says what each method is for."""

    effects: Effects

    @property
    def start(self) -> S:
        """The first state."""

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers that ever have a replica."""

    @property
    def is_coordinated(self) -> bool:
        """Whether steps depend on the offsets of replicas, too."""

    def following(self, state: S) -> Iterator[tuple[Operation, S]]:
        """Yield each possible step, and the state after it."""

    def recorded_steps(self, state: S, owns: Sequence[Pair]) -> Iterator[tuple[Operation, S]]:
        """Yield each possible step, and the state after it with what stands for a replica in place of each."""

    def in_sync(self, state: S) -> list[int]:
        """Return the brokers whose replicas are judged."""

    def wrong_of(self, number: int, clients: int) -> tuple[str, ...]:
        """Return the names of the violations of a replica."""

    def own(self, number: int, clients: int) -> Pair:
        """Return a replica's own offsets."""

    def normalized(self, state: S, own: Pair) -> S:
        """Return an equivalent state, by the own offsets of the leader's replica."""

    def renamed(self, state: S) -> tuple[S, list[int]]:
        """Return an equivalent state under other names of brokers, and those that may change places."""


class _Control(NamedTuple):
    """A control part. The last three: the places in a row of certain replicas.

    They are those that are in sync, those of brokers that may change places, and the leader's.
    """

    clients: int
    in_sync: tuple[int, ...]
    alike: tuple[int, ...]
    leader: int


def walk(space: Space[Any], *, most_states: int, first_only: bool = False) -> Explored:
    """Explore a space by its rows; see `harness.models.walk.exhaustive.explore`."""
    rows = Rows(space)
    return explore(
        rows.start, rows.following, rows.wrong, most_states=most_states, first_only=first_only, steps_of=rows.steps_of
    )


class Rows(Generic[S]):
    """The rows of a space, and the steps between them."""

    def __init__(self, space: Space[S]) -> None:
        """Begin without any step."""
        self._space = space
        self._places = {broker: place for place, broker in enumerate(space.brokers, 1)}
        self._states = Numbered[S](lambda state: state)
        self._controls: list[_Control] = []
        self._steps: dict[Hashable, list[tuple[Operation, After]]] = {}
        self._normalized: dict[tuple[int, Pair], int] = {}
        self._number_of = cache(self._compiled)

    @property
    def start(self) -> Row:
        """The row of the first state."""
        return self.row(self._space.start)

    def row(self, state: S) -> Row:
        """Return the row of a state."""
        renamed, alike = self._space.renamed(state)
        row = [self._control(renamed, alike), *[_EMPTY] * len(self._places)]
        for broker, number in renamed.replicas:
            row[self._places[broker]] = number
        return _in_order(row, [self._places[broker] for broker in alike])

    def following(self, row: Row) -> list[tuple[Operation, Row]]:
        """Return each possible step, and the row after it."""
        control = row[0]
        if not self._space.is_coordinated:
            steps = self._steps.get(control)
            if steps is None:
                steps = self._steps[control] = self._recorded(control, [NOTHING] * len(self._places))
            return [(step, after(row)) for step, after in steps]
        own, clients = self._space.own, self._controls[control].clients
        owns = [own(number, clients) for number in row[1:]]
        view = (control, *owns)
        steps = self._steps.get(view)
        if steps is None:
            steps = self._steps[view] = self._recorded(control, owns)
        return [(step, self._normal(after(row))) for step, after in steps]

    def wrong(self, row: Row) -> Iterator[str]:
        """Yield the names of the violations of replicas in sync."""
        control = self._controls[row[0]]
        for place in control.in_sync:
            yield from self._space.wrong_of(row[place], control.clients)

    def steps_of(self, path: Sequence[Row]) -> tuple[Operation, ...]:
        """Return the steps of a path from the start, each broker under its own name all the way."""
        state = self._space.start
        steps: list[Operation] = []
        for row in path[1:]:
            step, state = next((step, after) for step, after in self._space.following(state) if self.row(after) == row)
            steps.append(step)
        return tuple(steps)

    def _normal(self, row: Row) -> Row:
        """Return the row with the control part that `Space.normalized` makes of it."""
        number = row[0]
        control = self._controls[number]
        own = self._space.own(row[control.leader], control.clients)
        normal = self._normalized.get((number, own))
        if normal is None:
            normal = self._control(self._space.normalized(self._states[number], own))
            self._normalized[number, own] = normal
        return row if normal == number else (normal, *row[1:])

    def _control(self, state: S, alike: Sequence[int] = ()) -> int:
        """Return the number of a state's control part; ``alike``: the brokers in it that may change places."""
        state = state.with_replicas(tuple((broker, _EMPTY) for broker, _ in state.replicas))
        number = self._states.number(state)
        if number == len(self._controls):
            in_sync, exchanged = (
                tuple(self._places[broker] for broker in brokers) for brokers in (self._space.in_sync(state), alike)
            )
            self._controls.append(_Control(state.clients, in_sync, exchanged, self._places[state.leader]))
        return number

    def _recorded(self, number: int, owns: Sequence[Pair]) -> list[tuple[Operation, After]]:
        """Return the steps of a control part, given each replica's own offsets, and what makes the row after each."""
        control = self._states[number]
        slots: Any = tuple((broker, Slot(self._places[broker] - 1)) for broker, _ in control.replicas)
        return [
            (step, self._after(number, after))
            for step, after in self._space.recorded_steps(control.with_replicas(slots), owns)
        ]

    def _after(self, source: int, recorded: S) -> After:
        """Return what makes the row after a step from the control part ``source`` to a state with effects."""
        renamed, alike = self._space.renamed(recorded)
        number = self._control(renamed, alike)
        exchanged = self._controls[number].alike
        numbers: dict[int, Any] = {self._places[broker]: _EMPTY for broker, _ in self._states[source].replicas}
        numbers |= {self._places[broker]: replica for broker, replica in renamed.replicas}
        changes = [
            (place, self._number_of(replica)) for place, replica in numbers.items() if replica != Slot(place - 1)
        ]

        if number == source and len(changes) == 1 and not exchanged:
            ((only, number_there),) = changes

            def with_replica(row: Row) -> Row:
                replica = number_there(row)
                return row if replica == row[only] else (*row[:only], replica, *row[only + 1 :])

            return with_replica

        def after(row: Row) -> Row:
            changed = list(row)
            changed[0] = number
            for place, number_of in changes:
                changed[place] = number_of(row)
            return _in_order(changed, exchanged) if exchanged else tuple(changed)

        return after

    def _compiled(self, replica: int | Slot | Effect) -> NumberOf:
        """Return what computes a replica's number from the row before the step."""
        if isinstance(replica, int):
            return lambda _: replica
        if isinstance(replica, Slot):
            place = replica.number + 1
            return lambda row: row[place]
        compute, more = getattr(self._space.effects, replica.name), replica.more
        results: dict[Any, int] = {}
        first, *others = map(self._number_of, replica.numbers)
        if not others:

            def of_one(row: Row) -> int:
                number = first(row)
                result = results.get(number)
                if result is None:
                    result = results[number] = compute(number, *more)
                return result

            return of_one
        (second,) = others

        def of_two(row: Row) -> int:
            pair = first(row), second(row)
            result = results.get(pair)
            if result is None:
                result = results[pair] = compute(*pair, *more)
            return result

        return of_two


def _in_order(row: list[int], alike: Sequence[int]) -> Row:
    """Return the row with the numbers of those places in order."""
    for place, number in zip(alike, sorted([row[place] for place in alike]), strict=True):
        row[place] = number
    return tuple(row)
