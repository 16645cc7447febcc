"""What files of a night have in common: TOML tables with known keys and lists of names."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path


def read_toml(source: Path | Traversable, where: str) -> dict[str, Any]:
    """Return a file's content. Raises `UsageError` for a file that cannot be read, or is no TOML."""
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} is no TOML: {error}") from error


def with_known_keys(content: Mapping[str, Any], keys: Sequence[str], where: str) -> dict[str, Any]:
    """Return the content. Raises `UsageError` for a key that is not among these."""
    for key in content:
        if key not in keys:
            raise UsageError(f"{where}: {nearest('key', key, keys)}")
    return dict(content)


def raise_if_no_list(axis: str, names: Any, where: str) -> None:
    """Raise `UsageError` where the value of a key is no list of names."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where}: {axis} is {names!r}; give a list of names")
