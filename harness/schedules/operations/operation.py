"""An operation: a frozen dataclass with a one-line description; as JSON, ``{"do": "write", "process": "t", …}``.

The name in ``do`` and the fields come from the class. A field that has its default value is left out.
"""

import re
from collections.abc import Callable, Hashable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any, Final, Protocol, TypeVar, dataclass_transform, get_type_hints

from harness.errors import UsageError

T = TypeVar("T")
DO: Final = "do"
CLASSES: Final[dict[str, type]] = {}
"""Every class of operations, by its name in files."""


class Operation(Protocol):
    """Anything that happens to a cluster. ``process``: whose operation it is."""

    @property
    def process(self) -> str:
        """The name of a client, of administrators, of faults, of the environment or of the player."""


@dataclass_transform(frozen_default=True)
def operation(description: str | Callable[[Any], str]) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a class an operation. ``description``: a template of its fields, or a function."""

    def make(cls: type[T]) -> type[T]:
        made: Any = dataclass(frozen=True)(cls)
        made.__str__ = description if callable(description) else lambda self: description.format_map(vars(self))
        CLASSES[_name(cls)] = made
        return made  # type: ignore[no-any-return]

    return make


def of_process(operation: Operation, process: str) -> Operation:
    """Return the same operation of another process."""
    return replace(operation, process=process)  # type: ignore[type-var]


@cache
def interned(cls: type[T], *arguments: Hashable) -> T:
    """Return an operation that is made only once: walks of models yield the same ones millions of times."""
    return cls(*arguments)


def encode(operation: Operation) -> dict[str, Any]:
    """Return an operation as a JSON object."""
    values = {field.name: (getattr(operation, field.name), field.default) for field in fields(operation)}  # type: ignore[arg-type]
    return {
        DO: _name(type(operation)),
        **{name: value for name, (value, default) in values.items() if value != default},
    }


def decode(content: Any, source: str) -> Operation:
    """Return the operation of a JSON object. Raises `UsageError` for anything else, with its ``source``."""
    cls = CLASSES.get(str(content.get(DO))) if isinstance(content, dict) else None
    if cls is None:
        raise UsageError(f"{source}: {content!r} is not an operation; give one of {', '.join(sorted(CLASSES))}")
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items() if name != DO}
    types = get_type_hints(cls)
    missing = {field.name for field in fields(cls) if field.default is MISSING} - values.keys()
    wrong = {name for name, value in values.items() if not _has_type(value, types.get(name))}
    if missing | wrong:
        names = ", ".join(sorted(missing | wrong))
        raise UsageError(f"{source}: {content[DO]}: missing, unknown or of a wrong type: {names}")
    operation: Operation = cls(**values)
    return operation


def _name(cls: type) -> str:
    return re.sub(r"\B([A-Z])", r"-\1", cls.__name__).lower()


def _has_type(value: Any, expected: Any) -> bool:
    """Return whether a value has exactly the type of its field: a plain type, or a tuple of plain items."""
    of_items = getattr(expected, "__args__", ())
    if of_items:
        return isinstance(value, tuple) and all(type(item) is of_items[0] for item in value)
    return type(value) is expected
