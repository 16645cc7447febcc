"""Faults, and the scripts by which a run uses them: one file each.

A module declares ``FAULT``, a `nemesis.fault.Fault` that soak draws, or ``SCRIPT``, a `nemesis.script.Script` that
``harness run --nemesis`` takes, or both. Other packages offer faults and scripts through entry points of the group
``compaction_harness.nemeses`` (`harness.plugins`); a script brings the fault that has its name.
"""

import pkgutil
from collections.abc import Iterable, Mapping
from importlib import import_module

from harness.plugins import PluginGroup, Registry
from harness.suggest import known_name
from nemesis.fault import Fault
from nemesis.script import Script

UNDRAWN = "declare a FAULT, or the reason why soak cannot draw it as soak_excluded"


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
            raise ValueError(f"{name}: {UNDRAWN}")
    return faults, scripts


def _fault(plugin: Fault | Script) -> Fault | None:
    """Return the fault that a plugin brings: itself, or the fault of a script that has the script's name."""
    faults = plugin.faults if isinstance(plugin, Script) else (plugin,)
    return next((fault for fault in faults if fault.name == plugin.name), None)


_FAULTS, _SCRIPTS = declared_in(import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
PLUGINS = PluginGroup(
    "nemeses",
    (Fault, Script),
    frozenset({*_FAULTS, *_SCRIPTS}),
    lambda plugin: None if _fault(plugin) or plugin.soak_excluded else UNDRAWN,
)
FAULTS: Mapping[str, Fault] = Registry(PLUGINS, _FAULTS, _fault)
SCRIPTS: Mapping[str, Script] = Registry(PLUGINS, _SCRIPTS, lambda it: it if isinstance(it, Script) else None)


def find_script(name: str) -> Script:
    """Return the script of that name. Raises `UsageError` with the nearest names."""
    return SCRIPTS[known_name("nemesis", name, SCRIPTS)]
