"""What a space of states needs so that `harness.models.walk.fast_walk` can walk it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from harness.models.log.effects import Effects
    from harness.models.world.coordination import Pair
    from harness.schedules.operations.operation import Operation


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

    def recorded_steps(self, state: S, owns: Sequence[Pair]) -> Iterator[S]:
        """Yield the states after each step, with what stands for a replica in place of each."""

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
