"""A space of small clusters as rows of numbers, for `harness.models.walk.exhaustive.explore`.

A row has the number of a state's control part (clients, leader, which broker is down, …) and the number of the replica
at each broker. The steps of a control part are computed once, with an `Effect` in place of each replica; each effect on
a replica is looked up, or computed by the model the first time. States that differ only by the names of brokers that
may change places are one row.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from harness.models.log.cleaner import Bounds
from harness.models.walk.exhaustive import Explored, Numbered, explore
from harness.models.walk.parts import ClusterSpace, Effect, Slot, WalkState
from harness.models.world.coordination import NOTHING
from harness.schedules.operations import Operation

Row: TypeAlias = tuple[int, ...]
"""The number of the control part, and of each broker's replica: 0 without a replica, or for an empty replica."""
After: TypeAlias = Callable[[Row], Row]
_EMPTY: Final = 0


class _Control(NamedTuple):
    """A control part, its clients, and the places in its rows: in sync, that may be exchanged, and of the leader."""

    state: WalkState
    clients: int
    in_sync: tuple[int, ...]
    alike: tuple[int, ...]
    leader: int


def walk(space: ClusterSpace, *, most_states: int, first_only: bool = False) -> Explored:
    """Explore a space by its rows; see `harness.models.walk.exhaustive.explore`."""
    rows = Rows(space)
    return explore(
        rows.start,
        rows.following,
        rows.wrong,
        most_states=most_states,
        first_only=first_only,
        concrete=(rows.space.start, rows.space.following, rows.row),
    )


class Rows:
    """The rows of a `ClusterSpace`, and the steps between them."""

    def __init__(self, space: Any) -> None:
        self.space = space
        self._progress, self._violations = space.parts.progress, space.parts.violations
        self._places = {broker: place for place, broker in enumerate(space.brokers, 1)}
        self._states = Numbered[WalkState](lambda state: state)
        self._controls: list[_Control] = []
        self._steps, self._number_of = cache(self._recorded), cache(self._compiled)
        self._normalized = cache(
            lambda control, progress: self._control(space.normalized(self._controls[control].state, progress))
        )

    @property
    def start(self) -> Row:
        """The row of the first state."""
        return self.row(self.space.start)

    def row(self, state: WalkState) -> Row:
        """Return the row of a state."""
        renamed, alike = self.space.renamed(state)
        row = [self._control(renamed, alike), *[_EMPTY] * len(self._places)]
        for broker, number in renamed.replicas:
            row[self._places[broker]] = number
        return _in_order(row, [self._places[broker] for broker in alike])

    def following(self, row: Row) -> list[tuple[Operation, Row]]:
        """Return each possible step, and the row after it."""
        if not self.space.is_coordinated:
            return [(step, after(row)) for step, after in self._steps(row[0], ())]
        clients = self._controls[row[0]].clients
        progresses = tuple([self._progress(number, clients) for number in row[1:]])
        return [(step, self._normal(after(row))) for step, after in self._steps(row[0], progresses)]

    def wrong(self, row: Row) -> Iterator[str]:
        """Yield the names of the violations of replicas in sync."""
        control = self._controls[row[0]]
        for place in control.in_sync:
            yield from self._violations(row[place], control.clients)

    def _normal(self, row: Row) -> Row:
        control = self._controls[row[0]]
        normal = self._normalized(row[0], self._progress(row[control.leader], control.clients))
        return row if normal == row[0] else (normal, *row[1:])

    def _control(self, state: WalkState, alike: Sequence[int] = ()) -> int:
        """Return the number of a state's control part; ``alike``: the brokers in it that may change places."""
        state = state._replace(replicas=tuple((broker, _EMPTY) for broker, _ in state.replicas))
        number = self._states.number(state)
        if number == len(self._controls):
            in_sync = tuple([self._places[broker] for broker in self.space.in_sync(state)])
            exchanged = tuple([self._places[broker] for broker in alike]) if len(alike) > 1 else ()
            self._controls.append(_Control(state, state.clients, in_sync, exchanged, self._places[state.leader]))
        return number

    def _recorded(self, number: int, progresses: tuple[Bounds, ...]) -> list[tuple[Operation, After]]:
        """Return the steps of a control part, given each replica's own offsets, and a function to the row after each.

        The offsets are all that steps depend on: replicas with the same offsets have the same steps.
        """
        state = self._controls[number].state
        slots = tuple((broker, Slot(self._places[broker] - 1)) for broker, _ in state.replicas)
        space = copy(self.space)
        space.parts = space.parts.recorded(progresses or [NOTHING] * len(self._places))
        return [(step, self._after(number, after)) for step, after in space.steps(state._replace(replicas=slots))]

    def _after(self, source: int, recorded: WalkState) -> After:
        renamed, alike = self.space.renamed(recorded)
        number = self._control(renamed, alike)
        exchanged = self._controls[number].alike
        replicas: dict[int, Any] = {self._places[broker]: _EMPTY for broker, _ in self._controls[source].state.replicas}
        replicas |= {self._places[broker]: replica for broker, replica in renamed.replicas}
        changes = [(place, self._number_of(new)) for place, new in replicas.items() if new != Slot(place - 1)]
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

    def _compiled(self, replica: int | Slot | Effect) -> Callable[[Row], int]:
        """Return a function from the row before a step to the number of a replica after it."""
        if isinstance(replica, int):
            return lambda _: replica
        if isinstance(replica, Slot):
            return itemgetter(replica.place + 1)
        compute, arguments = getattr(self.space.parts, replica.method), replica.arguments
        of_replicas = cache(lambda *numbers: compute(*numbers, *arguments))
        first, *others = map(self._number_of, replica.replicas)
        if not others:
            return lambda row: of_replicas(first(row))
        (second,) = others
        return lambda row: of_replicas(first(row), second(row))


def _in_order(row: list[int], alike: Sequence[int]) -> Row:
    for place, number in zip(alike, sorted([row[place] for place in alike]), strict=True):
        row[place] = number
    return tuple(row)
