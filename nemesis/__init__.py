"""Faults, and the scripts by which a run uses them: one file each.

A module declares ``FAULT``, a `nemesis.fault.Fault` that soak draws, or ``SCRIPT``, a `nemesis.script.Script` that
``harness run --nemesis`` takes, or both.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.suggest import nearest

if TYPE_CHECKING:
    from nemesis.fault import Fault
    from nemesis.script import Script


def declared_in(modules: Iterable[object]) -> tuple[dict[str, Fault], dict[str, Script]]:
    """Return the faults and the scripts that modules declare, by name.

    Raises ValueError for a name that two modules declare, and for a script that soak cannot draw for no stated reason.
    """
    faults: dict[str, Fault] = {}
    scripts: dict[str, Script] = {}
    for module in modules:
        fault, script = getattr(module, "FAULT", None), getattr(module, "SCRIPT", None)
        if fault is not None and faults.setdefault(fault.name, fault) is not fault:
            raise ValueError(f"two modules declare the fault {fault.name}")
        if script is not None and scripts.setdefault(script.name, script) is not script:
            raise ValueError(f"two modules declare the script {script.name}")
    for name, script in scripts.items():
        if name not in faults and not script.soak_excluded:
            raise ValueError(f"{name}: declare a FAULT, or the reason why soak cannot draw it as soak_excluded")
    return faults, scripts


FAULTS, SCRIPTS = declared_in(import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))


def find_script(name: str) -> Script:
    """Return the script of that name. Raises `UsageError` with the nearest names."""
    if name not in SCRIPTS:
        raise UsageError(nearest("nemesis", name, list(SCRIPTS)))
    return SCRIPTS[name]
