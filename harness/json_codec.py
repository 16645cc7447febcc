"""Frozen dataclasses as JSON, and back.

A field is a member of the object under its own name, without a trailing underscore (``is_`` is ``is``). A field whose
default is None is left out where it has no value. Bytes are ``{"text": …}``, or ``{"base64": …}`` where they are not
UTF-8. Members that a class does not have are ignored: a later version may have written them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Return a value as JSON has it: a frozen dataclass, or lists, tuples and mappings of dataclasses."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name.rstrip("_"): to_json(content)
            for field in fields(value)
            if (content := getattr(value, field.name)) is not None or field.default is not None
        }
    if isinstance(value, Mapping):
        return {str(name): to_json(member) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(entry) for entry in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return _bytes_to_json(value) if isinstance(value, bytes) else value


def from_json(cls: type[T], content: Any) -> T:
    """Return the dataclass of a JSON object. Raises ValueError for other content, with the place."""
    value: T = _read(cls, content, cls.__name__)
    return value


def _read(kind: Any, content: Any, place: str) -> Any:
    origin = get_origin(kind) or kind
    if origin in {Union, UnionType}:
        (member,) = (member for member in get_args(kind) if member is not NoneType)
        return None if content is None else _read(member, content, place)
    if is_dataclass(kind):
        return _read_object(kind, content, place)
    if origin is tuple:
        (first, *others), entries = get_args(kind), _checked(content, list, place)
        kinds = [first] * len(entries) if others == [...] else [first, *others]
        if len(entries) != len(kinds):
            raise ValueError(f"{place} has {len(entries)} entries instead of {len(kinds)}")
        return tuple(_read(*pair, f"{place}[{index}]") for index, pair in enumerate(zip(kinds, entries, strict=True)))
    if origin is Mapping:
        members = _checked(content, dict, place).items()
        return {name: _read(get_args(kind)[1], member, f"{place}.{name}") for name, member in members}
    if kind is bytes:
        return _read_bytes(content, place)
    return content if kind is Any else _checked(content, (int, float) if kind is float else kind, place)


def _read_bytes(content: Any, place: str) -> bytes:
    match content:
        case {"text": str(text)}:
            return text.encode(errors="surrogatepass")
        case {"base64": str(text)}:
            return base64.b64decode(text)
    raise ValueError(f"{place} has neither text nor base64")


def _read_object(cls: Any, content: Any, place: str) -> Any:
    members, values = _checked(content, dict, place), {}
    for name, kind, is_required in _members(cls):
        member = name.rstrip("_")
        if member in members:
            values[name] = _read(kind, members[member], f"{place}.{member}")
        elif is_required:
            raise ValueError(f"{place} has no {member}")
    return cls(**values)


@cache
def _members(cls: type[DataclassInstance]) -> list[tuple[str, Any, bool]]:
    kinds = get_type_hints(cls)
    return [
        (field.name, kinds[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(cls)
    ]


def _checked(content: Any, kind: Any, place: str) -> Any:
    if not isinstance(content, kind) or (isinstance(content, bool) and kind is not bool):
        raise ValueError(f"{place} is {type(content).__name__}")
    return content


def _bytes_to_json(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
