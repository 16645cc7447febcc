"""Settings in TOML files: tables with known keys, lists of names, and ``[[expect]]`` entries."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from harness.errors import UsageError, raised_as
from harness.suggest import known_name


def read_toml(path: Path | Traversable, source: str) -> dict[str, Any]:
    """Return the content of a TOML file. Raises `UsageError` for a file that cannot be read or parsed."""
    with (
        raised_as(UsageError, f"{source} cannot be read", OSError),
        raised_as(UsageError, f"{source} is not TOML", ValueError),
    ):
        return tomllib.loads(path.read_text(encoding="utf-8"))


def expect_entries(path: Path | Traversable, source: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each ``[[expect]]`` entry of a file, with its name for messages. Raises `UsageError` for other content."""
    content = read_toml(path, source)
    entries = content.get("expect")
    if set(content) != {"expect"} or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise UsageError(f"{source} must consist of [[expect]] entries")
    for number, entry in enumerate(entries, 1):
        yield entry, f"{source}: entry {number}"


def with_known_keys(table: Mapping[str, Any], keys: Sequence[str], source: str) -> Mapping[str, Any]:
    """Return a table. Raises `UsageError` for a key that is not among these."""
    for key in table:
        known_name("key", key, keys, f"{source}: ")
    return table


def names_in(table: Mapping[str, Any], key: str, source: str) -> list[str]:
    """Return the list of names at a key. Raises `UsageError` for any other value."""
    names = table[key]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{source}: {key} is {names!r}; give a list of names")
    return names
