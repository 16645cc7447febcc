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

Found = tuple[str, str]
"""The state of the machine, and the remedy."""


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it is as needed, what was found, and what to do about it.

    The remedy is empty when there is nothing to do. A check may be ``ok`` and have one: jars that are
    not cached yet are fetched by the first run.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""


def diagnose() -> list[Check]:
    """Look at everything that a run needs before its first broker starts; raises nothing."""
    return [
        _python(),
        _java(),
        *_packages(),
        _disk(),
        _memory(),
        _ports(),
        *(_fault(need) for need in local.WHY_UNAVAILABLE),
        *_containers(),
        _archive(),
        *(_jars(target) for target in WITH_JARS.values()),
    ]


def _check(name: str, *, ok: bool, found: str, remedy: str) -> Check:
    return Check(name, ok, found, "" if ok else remedy)


def _python() -> Check:
    required = ".".join(map(str, MIN_PYTHON))
    return _check(
        f"Python {required}+",
        ok=sys.version_info >= MIN_PYTHON,
        found=f"{platform.python_version()} ({sys.executable})",
        remedy=f"apt-get install python3 python3-venv on a system that has Python {required} or newer",
    )


def _java() -> Check:
    runtime = java.inspect_java()
    ok = isinstance(runtime, java.Java)
    text = f"{runtime.version_text} ({runtime.path})" if isinstance(runtime, java.Java) else runtime
    return _check(f"Java {java.MIN_VERSION}+", ok=ok, found=text, remedy=java.REMEDY)


def _packages() -> list[Check]:
    """Look at every package that this one requires, by its own metadata."""
    required = importlib.metadata.requires(DISTRIBUTION) or []
    names = sorted(re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line)
    modules: dict[str, list[str]] = {}
    for module, distributions in importlib.metadata.packages_distributions().items():
        for distribution in distributions:
            modules.setdefault(_normalized(distribution), []).append(module)
    return [_package(name, modules.get(_normalized(name), [])) for name in names]


def _package(distribution: str, modules: Sequence[str]) -> Check:
    """Import the package: one for another platform is found, and does not load. ``modules``: its top-level ones."""
    name, remedy = f"package {distribution}", f"{sys.executable} -m pip install {distribution}"
    try:
        version = importlib.metadata.version(distribution)
        # Some distributions have several modules; the harness imports the module of this name.
        importlib.import_module(min(modules, key=lambda module: (_normalized(module) not in distribution, module)))
        return Check(name, ok=True, found=version)
    except Exception as error:  # noqa: BLE001  a broken package may raise anything when it is imported
        return Check(name, ok=False, found=f"{type(error).__name__}: {error}", remedy=remedy)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _disk() -> Check:
    folder = tempfile.gettempdir()
    free_bytes = shutil.disk_usage(folder).free
    return _check(
        "free disk",
        ok=free_bytes >= MIN_DISK_BYTES,
        found=f"{_gib(free_bytes)} in {folder}",
        remedy=f"make room for {_gib(MIN_DISK_BYTES)}, or set TMPDIR to a folder with enough space",
    )


def _memory() -> Check:
    available_bytes = psutil.virtual_memory().available
    return _check(
        "available memory",
        ok=available_bytes >= MIN_MEMORY_BYTES,
        found=_gib(available_bytes),
        remedy=f"three brokers and Spark want {_gib(MIN_MEMORY_BYTES)}: end other programs",
    )


def _ports() -> Check:
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(_PORTS):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", 0))
    except OSError as error:
        ok, state = False, f"127.0.0.1: {error}"
    else:
        ok, state = True, f"{_PORTS} ports of 127.0.0.1 are free"
    remedy = "bring the loopback interface up (ip link set lo up) and let this user bind its ports"
    return _check("loopback ports", ok=ok, found=state, remedy=remedy)


def _fault(need: str) -> Check:
    """Check whether brokers can have the ability. A missing ability is information only: few faults need it."""
    reason = local.WHY_UNAVAILABLE[need]()
    nemeses = ", ".join(script.name for script in SCRIPTS.values() if need in script.needs)
    remedy = "" if reason is None else f"only --nemesis {nemeses} needs it with --runtime local"
    return Check(need, ok=True, found=reason or "available", remedy=remedy)


def _containers() -> list[Check]:
    """Check the parts of ``--runtime docker``. A missing part is information only: no other runtime needs it."""
    unneeded = "only --runtime docker needs it"
    try:
        from harness.host import engine  # noqa: PLC0415  (a package that is missing is reported above)
        from harness.targets import images  # noqa: PLC0415
    except ImportError as error:
        return [Check("container engine", ok=True, found=f"not known: {error}", remedy=unneeded)]

    def version() -> Found:
        return f"{engine.connect().version()['Version']} answers", ""

    def compose() -> Found:
        return " ".join(engine.find_compose()), ""

    def local_images() -> Found:
        client = engine.connect()
        names = [target.name for target in TARGETS.values() if images.find(client, target)]
        lacking = [name for name in WITH_JARS if name not in names]
        remedy = f"harness images build {lacking[0]}, or let a run pull it" if lacking else ""
        return ", ".join(names) or "none", remedy

    def look(name: str, at: Callable[[], Found]) -> Check:
        try:
            with engine.errors_as("it does not say"):
                state, remedy = at()
        except HarnessError as error:
            state, remedy = str(error), unneeded
        return Check(name, ok=True, found=state, remedy=remedy)

    return [look("container engine", version), look("compose", compose), look("images at hand", local_images)]


def _archive() -> Check:
    """Check the class archive, which shortens Spark's start. A missing archive is information only."""
    name = "class archive of Spark"
    try:
        background = importlib.import_module("harness.spark.background")
        path = background.archive_path(java.find_java())
        if path.exists():
            return Check(name, ok=True, found=f"{path} ({path.stat().st_size >> 20} MiB)")
        why = background.why_not_started(path)
    except (HarnessError, ImportError, OSError) as error:
        return Check(name, ok=True, found=f"not known: {error}")
    state = f"none: {why}" if why else "none: the first run makes it in the background"
    return Check(name, ok=True, found=state, remedy=f"harness doctor --fetch {next(iter(WITH_JARS))}")


def _jars(target: Target) -> Check:
    """Check whether the jars are cached. Missing jars are information only: a run fetches them."""
    cached = is_cached(target)
    remedy = "" if cached else f"harness doctor --fetch {target.name}"
    state = "cached" if cached else "not cached: the first run fetches them"
    return Check(f"jars of {target.name} ({target.version})", ok=True, found=state, remedy=remedy)


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / 1024**3:.1f} GiB"
