"""The fixtures of a collected test: which of them other tests share, and in which files they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def shared_fixtures(item: pytest.Item) -> frozenset[str]:
    """Return the keys of all fixtures of a test that other tests may use, too."""
    definitions = _definitions(item)
    return frozenset(key_of(item, fixture) for fixture in definitions.values() if is_shared(fixture))


def source_files(item: pytest.Item, root: Path) -> frozenset[str]:
    """Return the files below the root that hold a test and its fixtures."""
    functions = [fixture.func for fixture in _definitions(item).values()]
    paths = {
        item.path,
        *(Path(function.__code__.co_filename) for function in functions if hasattr(function, "__code__")),
    }
    return frozenset(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root))


def _definitions(item: pytest.Item) -> dict[str, pytest.FixtureDef[Any]]:
    info = getattr(item, "_fixtureinfo", None)
    return {name: found[-1] for name, found in info.name2fixturedefs.items()} if info else {}


def is_shared(fixture: pytest.FixtureDef[Any]) -> bool:
    return fixture.scope != "function" and bool(fixture.baseid)


def key_of(item: Any, fixture: pytest.FixtureDef[Any]) -> str:
    """Name a fixture and the parameters that it and its own fixtures have for this test.

    By their values: pytest counts the tests of a function, so that one value has several indices.
    """
    definitions, values = _definitions(item), item.callspec.params if hasattr(item, "callspec") else {}
    needed = [fixture.argname]
    for name in needed:
        if name in definitions:
            needed += [other for other in definitions[name].argnames if other not in needed]
    given = {name: getattr(values[name], "__name__", values[name]) for name in sorted(needed) if name in values}
    parameters = "-".join(f"{name}={value}" for name, value in given.items())
    return f"{fixture.baseid}::{fixture.argname}" + (f"[{parameters}]" if parameters else "")
