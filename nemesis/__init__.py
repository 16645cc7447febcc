"""Faults: one a file, each of which ends with its `Nemesis`.

A fault says what happens to which brokers or links; `harness.play` decides when, and `harness.runtimes` carries it out.
A module of this package that has a ``NEMESIS`` is in the table.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.suggest import nearest

if TYPE_CHECKING:
    from nemesis.fault import Nemesis

_MODULES = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
NEMESES: dict[str, Nemesis] = {module.NEMESIS.name: module.NEMESIS for module in _MODULES if hasattr(module, "NEMESIS")}
"""Every fault by its name."""


def find_nemesis(name: str) -> Nemesis:
    """Return the nemesis of that name. Raises `UsageError` with the nearest names."""
    if name not in NEMESES:
        raise UsageError(nearest("nemesis", name, list(NEMESES)))
    return NEMESES[name]
