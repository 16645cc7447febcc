"""Checks of this machine: what is missing for a run, and how to get it. The command line prints the result."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import platform
import re
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from harness import DISTRIBUTION
from harness.errors import HarnessError
from harness.host import java
from harness.runtimes import local
from harness.targets import TARGETS, WITH_JARS, Target
from harness.targets.jars import is_cached
from nemesis import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MIN_PYTHON = (3, 11)
MIN_DISK_BYTES = 2 * 1024**3
MIN_MEMORY_BYTES = 4 * 1024**3
_PORTS = 4
"""A client listener for each of three brokers, and one for the controller."""


@dataclass(frozen=True)
class Check:
    """The state of one part of the machine (``found``), whether it is as needed, and the remedy.

    The remedy is empty when there is nothing to do. A check may be ``ok`` and have one: jars that are
    not cached yet are fetched by the first run.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""


def diagnose() -> list[Check]:
    """Check everything that a run needs before its first broker starts; raises nothing."""
    needed = {
        f"Python {'.'.join(map(str, MIN_PYTHON))}+": _python(),
        f"Java {java.MIN_VERSION}+": _java(),
        **_packages(),
        "free disk": _disk(),
        "available memory": _memory(),
        "loopback ports": _ports(),
    }
    # A missing part of these is information only: few runs need it.
    optional = {
        **{need: _fault(need) for need in local.WHY_UNAVAILABLE},
        **_containers(),
        "class archive of Spark": _archive(),
        **{f"jars of {target.name} ({target.version})": _jars(target) for target in WITH_JARS.values()},
    }
    return [
        *(Check(name, ok, state, "" if ok else remedy) for name, (ok, state, remedy) in needed.items()),
        *(Check(name, ok=True, found=state, remedy=remedy) for name, (state, remedy) in optional.items()),
    ]


def _python() -> tuple[bool, str, str]:
    remedy = (
        f"apt-get install python3 python3-venv on a system that has Python {'.'.join(map(str, MIN_PYTHON))} or newer"
    )
    return sys.version_info >= MIN_PYTHON, f"{platform.python_version()} ({sys.executable})", remedy


def _java() -> tuple[bool, str, str]:
    runtime = java.inspect_java()
    if isinstance(runtime, java.Java):
        return True, f"{runtime.version_text} ({runtime.path})", ""
    return False, runtime, java.REMEDY


def _packages() -> dict[str, tuple[bool, str, str]]:
    """Check every package that this one requires, by its own metadata."""
    required = importlib.metadata.requires(DISTRIBUTION) or []
    names = sorted(re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line)
    modules: dict[str, list[str]] = {}
    for module, distributions in importlib.metadata.packages_distributions().items():
        for distribution in distributions:
            modules.setdefault(_normalized(distribution), []).append(module)
    return {f"package {name}": _package(name, modules.get(_normalized(name), [])) for name in names}


def _package(distribution: str, modules: Sequence[str]) -> tuple[bool, str, str]:
    """Import the package, as a package for another platform does not load. ``modules``: its top-level modules."""
    try:
        version = importlib.metadata.version(distribution)
        # Some distributions have several modules; the harness imports the module of this name.
        importlib.import_module(min(modules, key=lambda module: (_normalized(module) not in distribution, module)))
    except Exception as error:  # noqa: BLE001  a broken package may raise anything when it is imported
        return False, f"{type(error).__name__}: {error}", f"{sys.executable} -m pip install {distribution}"
    return True, version, ""


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _disk() -> tuple[bool, str, str]:
    folder = tempfile.gettempdir()
    free_bytes = shutil.disk_usage(folder).free
    remedy = f"make room for {_gib(MIN_DISK_BYTES)}, or set TMPDIR to a folder with enough space"
    return free_bytes >= MIN_DISK_BYTES, f"{_gib(free_bytes)} in {folder}", remedy


def _memory() -> tuple[bool, str, str]:
    available_bytes = psutil.virtual_memory().available
    remedy = f"three brokers and Spark need {_gib(MIN_MEMORY_BYTES)}: end other programs"
    return available_bytes >= MIN_MEMORY_BYTES, _gib(available_bytes), remedy


def _ports() -> tuple[bool, str, str]:
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(_PORTS):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", 0))
    except OSError as error:
        remedy = "bring the loopback interface up (ip link set lo up) and let this user bind its ports"
        return False, f"127.0.0.1: {error}", remedy
    return True, f"{_PORTS} ports of 127.0.0.1 are free", ""


def _fault(need: str) -> tuple[str, str]:
    """Check whether brokers can have the ability."""
    reason = local.WHY_UNAVAILABLE[need]()
    if reason is None:
        return "available", ""
    nemeses = ", ".join(script.name for script in SCRIPTS.values() if need in script.needs)
    return reason, f"only --nemesis {nemeses} needs it with --runtime local"


def _containers() -> dict[str, tuple[str, str]]:
    """Check the parts of ``--runtime docker``."""
    unneeded = "only --runtime docker needs it"
    try:
        from harness.host import engine  # noqa: PLC0415  (a package that is missing is reported above)
        from harness.targets import images  # noqa: PLC0415
    except ImportError as error:
        return {"container engine": (f"not known: {error}", unneeded)}

    def local_images() -> tuple[str, str]:
        client = engine.connect()
        names = [target.name for target in TARGETS.values() if images.find(client, target)]
        missing = [name for name in WITH_JARS if name not in names]
        return ", ".join(names) or "none", f"harness images build {missing[0]}, or let a run pull it" if missing else ""

    def checked(state: Callable[[], tuple[str, str]]) -> tuple[str, str]:
        try:
            with engine.errors_as("it does not say"):
                return state()
        except HarnessError as error:
            return str(error), unneeded

    return {
        "container engine": checked(lambda: (f"{engine.connect().version()['Version']} answers", "")),
        "compose": checked(lambda: (" ".join(engine.find_compose()), "")),
        "images at hand": checked(local_images),
    }


def _archive() -> tuple[str, str]:
    """Check the class archive, which shortens Spark's start."""
    try:
        background = importlib.import_module("harness.spark.background")
        path = background.archive_path(java.find_java())
        if path.exists():
            return f"{path} ({path.stat().st_size >> 20} MiB)", ""
        why = background.why_not_started(path)
    except (HarnessError, ImportError, OSError) as error:
        return f"not known: {error}", ""
    state = f"none: {why or 'the first run makes it in the background'}"
    return state, f"harness doctor --fetch {next(iter(WITH_JARS))}"


def _jars(target: Target) -> tuple[str, str]:
    if is_cached(target):
        return "cached", ""
    return "not cached: the first run fetches them", f"harness doctor --fetch {target.name}"


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / 1024**3:.1f} GiB"
