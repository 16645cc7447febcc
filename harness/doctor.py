"""Checks of this machine: what is missing for a run, and how to get it. The command line prints the result."""

import contextlib
import importlib
import importlib.machinery
import importlib.metadata
import platform
import re
import shutil
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from harness import DISTRIBUTION
from harness.errors import HarnessError
from harness.host import java
from harness.host.leftovers import work_root
from harness.runtimes import local
from harness.schedules.catalog import PLUGINS as ANOMALY_PLUGINS
from harness.targets import PLUGINS as TARGET_PLUGINS
from harness.targets import TARGETS, WITH_JARS
from harness.targets.jars import is_cached

MISSING, OK, OPTIONAL = "missing", "ok", "optional"
MIN_PYTHON = (3, 11)
MIN_DISK_BYTES = 2 * 1024**3
MIN_MEMORY_BYTES = 4 * 1024**3
TOP_LEVEL = ("harness", "checkers", "workloads", "nemesis", "compose")
_PORTS = 4
"""A client listener for each of three brokers, and one for the controller."""


@dataclass(frozen=True)
class Check:
    """A part of the machine. It may be ``ok`` and have a ``remedy``, such as for jars that the first run fetches."""

    name: str
    ok: bool
    found: str
    remedy: str = ""

    @property
    def status(self) -> str:
        """`MISSING`, `OPTIONAL` for a part that few runs need and this machine does not have, or `OK`."""
        return MISSING if not self.ok else OPTIONAL if self.remedy else OK


def diagnose() -> list[Check]:
    """Check everything that a run needs before its first broker starts; raises nothing."""
    top_level = _top_level()
    needed = [_python(), _java(), *_packages(), top_level, _disk(), _memory(), _ports()]
    # A missing part of these is information only: few runs need it. They import top-level packages.
    optional = (
        [*map(_fault, local.WHY_UNAVAILABLE), *_containers(), _archive(), *_jars(), *_plugins()] if top_level.ok else []
    )
    return [*(replace(check, remedy="") if check.ok else check for check in needed), *optional]


def _python() -> Check:
    least = ".".join(map(str, MIN_PYTHON))
    remedy = f"apt-get install python3 python3-venv on a system that has Python {least} or newer"
    version = f"{platform.python_version()} ({sys.executable})"
    return Check(f"Python {least}+", sys.version_info >= MIN_PYTHON, version, remedy)


def _java() -> Check:
    runtime, name = java.inspect_java(), f"Java {java.MIN_VERSION}+"
    if isinstance(runtime, java.Java):
        return Check(name, ok=True, found=f"{runtime.version_text} ({runtime.path})")
    return Check(name, ok=False, found=runtime, remedy=java.REMEDY)


def _packages() -> list[Check]:
    """Import every required package, as one for another platform does not load; sound ones are one check."""
    required = importlib.metadata.requires(DISTRIBUTION) or []
    names = sorted(re.split(r"[^\w.-]", line)[0] for line in required if "extra ==" not in line)
    modules, broken = defaultdict[str, list[str]](list), []
    for module, distributions in importlib.metadata.packages_distributions().items():
        for distribution in distributions:
            modules[_normalized(distribution)].append(module)
    for name in names:
        try:
            importlib.metadata.version(name)
            # Some distributions have several modules; the harness imports the module of this name.
            mine = modules[_normalized(name)]
            importlib.import_module(min(mine, key=lambda module: (_normalized(module) not in name, module)))
        except Exception as error:  # noqa: BLE001  a broken package may raise anything when it is imported
            remedy = f"{sys.executable} -m pip install {name}"
            found = f"{type(error).__name__}: {error}"
            broken.append(Check(f"package {name}", ok=False, found=found, remedy=remedy))
    return [Check("packages", ok=True, found=f"{len(names) - len(broken)} can be imported"), *broken]


def _top_level() -> Check:
    """Check that the top-level packages are of this distribution alone, and that no folder of the path shadows them."""
    home, owners, wrong = Path(__file__).parents[1], importlib.metadata.packages_distributions(), []
    for name in TOP_LEVEL:
        spec = importlib.machinery.PathFinder.find_spec(name)
        folder = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else Path()
        others = [other for other in owners.get(name, ()) if _normalized(other) != DISTRIBUTION]
        if folder.parent != home or others:
            wrong.append(f"{name} ({folder}{''.join(f', also of {other}' for other in others)})")
    found = f"shadowed: {'; '.join(wrong)}" if wrong else ", ".join(TOP_LEVEL)
    return Check("top-level names", not wrong, found, f"uv tool install {DISTRIBUTION}, or another environment")


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _disk() -> Check:
    remedy = f"make room for {_gib(MIN_DISK_BYTES)}, or set TMPDIR to a folder with enough space"
    try:
        folder = work_root().parent
    except HarnessError as error:
        return Check("free disk", ok=False, found=str(error), remedy=remedy)
    free_bytes = shutil.disk_usage(folder).free
    return Check("free disk", free_bytes >= MIN_DISK_BYTES, f"{_gib(free_bytes)} in {folder}", remedy)


def _memory() -> Check:
    available_bytes = psutil.virtual_memory().available
    remedy = f"three brokers and Spark need {_gib(MIN_MEMORY_BYTES)}: end other programs"
    return Check("available memory", available_bytes >= MIN_MEMORY_BYTES, _gib(available_bytes), remedy)


def _ports() -> Check:
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(_PORTS):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", 0))
    except OSError as error:
        remedy = "bring the loopback interface up (ip link set lo up) and let this user bind its ports"
        return Check("loopback ports", ok=False, found=f"127.0.0.1: {error}", remedy=remedy)
    return Check("loopback ports", ok=True, found=f"{_PORTS} ports of 127.0.0.1 are free")


def _fault(need: str) -> Check:
    from nemesis import SCRIPTS  # noqa: PLC0415  (it may be shadowed)

    reason = local.WHY_UNAVAILABLE[need]()
    nemeses = ", ".join(script.name for script in SCRIPTS.values() if need in script.needs)
    remedy = f"needed only for --runtime local --nemesis {nemeses}" if reason else ""
    return Check(need, ok=True, found=reason or "available", remedy=remedy)


def _containers() -> Iterator[Check]:
    """Check the parts of ``--runtime docker``."""
    unneeded = "needed only for --runtime docker"
    try:
        from harness.host import engine  # noqa: PLC0415  (a package that is missing is reported above)
        from harness.targets import images  # noqa: PLC0415
    except ImportError as error:
        yield Check("container engine", ok=True, found=f"not known: {error}", remedy=unneeded)
        return

    def local_images() -> tuple[str, str]:
        client = engine.connect()
        names = [target.name for target in TARGETS.values() if images.find(client, target)]
        missing = [name for name in WITH_JARS if name not in names]
        return ", ".join(names) or "none", f"harness images build {missing[0]}, or let a run pull it" if missing else ""

    parts: dict[str, Callable[[], tuple[str, str]]] = {
        "container engine": lambda: (f"{engine.connect().version()['Version']} answers", ""),
        "compose": lambda: (" ".join(engine.find_compose()), ""),
        "images at hand": local_images,
    }
    for name, state in parts.items():
        try:
            with engine.errors_as("it does not say"):
                text, remedy = state()
        except HarnessError as error:
            text, remedy = str(error), unneeded
        yield Check(name, ok=True, found=text, remedy=remedy)


def _archive() -> Check:
    """Check the class archive, which shortens Spark's start."""
    remedy = ""
    try:
        background = importlib.import_module("harness.spark.background")
        path = background.archive_path(java.find_java())
        if path.exists():
            state = f"{path} ({path.stat().st_size >> 20} MiB)"
        else:
            state = f"none: {background.why_not_started(path) or 'the first run makes it in the background'}"
            remedy = f"harness doctor --fetch {next(iter(WITH_JARS))}"
    except (HarnessError, ImportError, OSError) as error:
        state = f"not known: {error}"
    return Check("class archive of Spark", ok=True, found=state, remedy=remedy)


def _jars() -> Iterator[Check]:
    cached = {name: is_cached(target) for name, target in WITH_JARS.items()}
    if names := [name for name, is_here in cached.items() if is_here]:
        yield Check("cached jars", ok=True, found=", ".join(names))
    if names := [name for name, is_here in cached.items() if not is_here]:
        found = f"{', '.join(names)}: by the first run of each"
        yield Check("jars to fetch", ok=True, found=found, remedy=f"harness doctor --fetch {names[0]}")


def _plugins() -> Iterator[Check]:
    from nemesis import PLUGINS as NEMESIS_PLUGINS  # noqa: PLC0415  (as above)
    from workloads.applications import PLUGINS as APPLICATION_PLUGINS  # noqa: PLC0415

    for group in (NEMESIS_PLUGINS, ANOMALY_PLUGINS, TARGET_PLUGINS, APPLICATION_PLUGINS):
        for plugin in group.plugins:
            remedy = f"update or uninstall {plugin.origin}" if plugin.problem else ""
            found = plugin.problem or f"one of the {group.name}, of {plugin.origin}"
            yield Check(f"plugin {plugin.name}", ok=True, found=found, remedy=remedy)


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / 1024**3:.1f} GiB"
