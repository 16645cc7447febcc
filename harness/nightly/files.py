"""Reads the TOML files of a night."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
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
