"""Operations as JSON objects, ``{"do": "write", "process": "t", "key": "K"}``, and the other way round.

The name and the fields come from the class. A field that has its default value is left out.
"""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from harness.errors import UsageError
from harness.schedules.operations import administrators, clients, coordination, environment, faults, waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.schedules.operations.operation import Operation

DO: Final = "do"
CLASSES: Final[Mapping[str, type]] = {
    "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__).lstrip("-"): cls
    for family in (clients, administrators, faults, environment, coordination, waits)
    for cls in vars(family).values()
    if isinstance(cls, type) and is_dataclass(cls)
}
"""Every class of operations, by its name in files."""
NAMES: Final[Mapping[type, str]] = {cls: name for name, cls in CLASSES.items()}


def encode(operation: Operation) -> dict[str, Any]:
    """Return an operation as a JSON object."""
    cls: Any = type(operation)
    defaults = _defaults(cls)
    values = asdict(operation)  # type: ignore[call-overload]
    return {DO: NAMES[cls], **{name: v for name, v in values.items() if name not in defaults or v != defaults[name]}}


def decode(content: Any, source: str) -> Operation:
    """Return the operation of a JSON object. Raises `UsageError` for anything else, with its ``source``."""
    cls = CLASSES.get(str(content.get(DO))) if isinstance(content, dict) else None
    if cls is None:
        raise UsageError(f"{source}: {content!r} is not an operation; give one of {', '.join(sorted(CLASSES))}")
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items() if name != DO}
    missing = _types(cls).keys() - _defaults(cls).keys() - values.keys()
    wrong = {name for name, value in values.items() if not _has_type(value, _types(cls).get(name))}
    if missing | wrong:
        names = ", ".join(sorted(missing | wrong))
        raise UsageError(f"{source}: {content[DO]}: missing, unknown or of a wrong type: {names}")
    operation: Operation = cls(**values)
    return operation


def _has_type(value: Any, expected: Any) -> bool:
    """Return whether a value has exactly the type of its field."""
    of_items = getattr(expected, "__args__", ())
    if of_items:
        return isinstance(value, tuple) and all(type(item) is of_items[0] for item in value)
    return type(value) is expected


@cache
def _types(cls: type) -> Mapping[str, Any]:
    return {name: hint for name, hint in get_type_hints(cls).items() if name in {one.name for one in fields(cls)}}


@cache
def _defaults(cls: type) -> Mapping[str, Any]:
    return {one.name: one.default for one in fields(cls) if one.default is not MISSING}
