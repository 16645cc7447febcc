"""An operation: a frozen dataclass with its process, and a template that describes it in one line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class Operation(Protocol):
    """Anything that happens to a cluster. ``process``: whose operation it is."""

    @property
    def process(self) -> str:
        """The name of a client, of administrators, of faults, of the environment or of the player."""


@dataclass_transform(frozen_default=True)
def operation(template: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a class an operation; ``template`` describes it by its attributes."""

    def make(cls: type[T]) -> type[T]:
        made: Any = dataclass(frozen=True)(cls)
        made.__str__ = lambda self: template.format_map(_Attributes(self))
        return made  # type: ignore[no-any-return]

    return make


@cache
def interned(cls: type[T], *arguments: Hashable) -> T:
    """Return an operation that is made only once: walks of models yield the same ones millions of times."""
    return cls(*arguments)


class _Attributes(dict[str, Any]):
    """An operation's attributes by name, properties included."""

    def __init__(self, of: object) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, name: str) -> Any:
        return getattr(self._of, name)
