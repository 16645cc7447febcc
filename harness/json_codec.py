"""Frozen dataclasses as JSON, and back.

A field is a member of the object under its own name, without a trailing underscore (``is_`` is ``is``). A field whose
default is None is left out where it has no value. Bytes are ``{"text": …}``, or ``{"base64": …}`` where they are not
UTF-8. Members that a class does not have are ignored: a later version may have written them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

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
    if get_origin(kind) in {Union, UnionType}:
        if content is None:
            return None
        (kind,) = (member for member in get_args(kind) if member is not NoneType)
    read = _read_object if is_dataclass(kind) else _READERS.get(get_origin(kind) or kind, _read_plain)
    return read(kind, content, place)


def _read_tuple(kind: Any, content: Any, place: str) -> tuple[Any, ...]:
    entries, (entry_kind, _) = _checked(content, list, place), get_args(kind)
    return tuple(_read(entry_kind, entry, f"{place}[{index}]") for index, entry in enumerate(entries))


def _read_mapping(kind: Any, content: Any, place: str) -> dict[str, Any]:
    members, (_, member_kind) = _checked(content, dict, place), get_args(kind)
    return {name: _read(member_kind, member, f"{place}.{name}") for name, member in members.items()}


def _read_plain(kind: Any, content: Any, place: str) -> Any:
    return _checked(content, (int, float) if kind is float else kind, place)


def _read_bytes(_kind: Any, content: Any, place: str) -> bytes:
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


_READERS: Final[Mapping[Any, Callable[[Any, Any, str], Any]]] = {
    tuple: _read_tuple,
    Mapping: _read_mapping,
    bytes: _read_bytes,
    Any: lambda _kind, content, _place: content,
}
