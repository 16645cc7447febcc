"""What a machine lacks, and how to get it. Nothing is printed here: the command line renders it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import platform
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass

from harness import java
from harness.runtimes.network import why_impossible
from harness.targets import TARGETS, Target
from harness.targets.jars import is_cached

MIN_PYTHON = (3, 11)
MIN_DISK_BYTES = 2 * 1024**3
MIN_MEMORY_BYTES = 4 * 1024**3
_PORTS = 4
"""A client listener for each of three brokers, and one for the controller."""

# fmt: off
PACKAGES = (  # what is imported, and what pip calls it
    ("click", "click"),
    ("confluent_kafka", "confluent-kafka"),
    ("cramjam", "cramjam"),
    ("crc32c", "crc32c"),
    ("kafka", "kafka-python"),
    ("psutil", "psutil"),
    ("pyarrow", "pyarrow"),
    ("pyspark", "pyspark"),
    ("rich", "rich"),
)
# fmt: on


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it is as needed, what was found, and what to do about it.

    The remedy is empty when there is nothing to do. A check may be ``ok`` and have one: jars that are
    not cached yet are fetched by the first run.
    """

    name: str
    ok: bool
    found: str
    remedy: str


def diagnose() -> list[Check]:
    """Look at everything that a run needs before its first broker starts; raises nothing."""
    return [
        _python(),
        _java(),
        *(_package(module, distribution) for module, distribution in PACKAGES),
        _disk(),
        _memory(),
        _ports(),
        _network(),
        *(_jars(target) for target in TARGETS.values()),
    ]


def _check(name: str, *, ok: bool, found: str, remedy: str) -> Check:
    return Check(name, ok, found, "" if ok else remedy)


def _python() -> Check:
    wanted = ".".join(map(str, MIN_PYTHON))
    return _check(
        f"Python {wanted}+",
        ok=sys.version_info >= MIN_PYTHON,
        found=f"{platform.python_version()} ({sys.executable})",
        remedy=f"apt-get install python3 python3-venv on a system that has Python {wanted} or newer",
    )


def _java() -> Check:
    found = java.inspect_java()
    ok = isinstance(found, java.Java)
    text = f"{found.version_text} ({found.path})" if isinstance(found, java.Java) else found
    return _check(f"Java {java.MIN_VERSION}+", ok=ok, found=text, remedy=java.REMEDY)


def _package(module: str, distribution: str) -> Check:
    """Import it for real: a wheel for another platform is found, and does not load."""
    name, remedy = f"package {distribution}", f"{sys.executable} -m pip install {distribution}"
    try:
        importlib.import_module(module)
        return Check(name, ok=True, found=importlib.metadata.version(distribution), remedy="")
    except Exception as error:  # noqa: BLE001  a broken package may raise anything when it is imported
        return Check(name, ok=False, found=f"{type(error).__name__}: {error}", remedy=remedy)


def _disk() -> Check:
    folder = tempfile.gettempdir()
    free_bytes = shutil.disk_usage(folder).free
    return _check(
        "free disk",
        ok=free_bytes >= MIN_DISK_BYTES,
        found=f"{_gib(free_bytes)} in {folder}",
        remedy=f"make room for {_gib(MIN_DISK_BYTES)}, or set TMPDIR to a folder that has it",
    )


def _memory() -> Check:
    remedy = f"three brokers and Spark want {_gib(MIN_MEMORY_BYTES)}: end other programs"
    try:
        available_bytes: int = importlib.import_module("psutil").virtual_memory().available
    except ImportError as error:
        return Check("available memory", ok=False, found=f"not known: {error}", remedy=remedy)
    ok = available_bytes >= MIN_MEMORY_BYTES
    return _check("available memory", ok=ok, found=_gib(available_bytes), remedy=remedy)


def _ports() -> Check:
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(_PORTS):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", 0))
    except OSError as error:
        ok, found = False, f"127.0.0.1: {error}"
    else:
        ok, found = True, f"{_PORTS} ports of 127.0.0.1 bound and let go"
    remedy = "bring the loopback interface up (ip link set lo up) and let this user bind its ports"
    return _check("loopback ports", ok=ok, found=found, remedy=remedy)


def _network() -> Check:
    """Tell whether brokers can have links of their own. That they cannot is information: one nemesis needs it."""
    reason = why_impossible()
    remedy = "" if reason is None else "only --nemesis partition needs them; run it as root, with iproute2"
    return Check("network namespaces", ok=True, found=reason or "one was made and removed", remedy=remedy)


def _jars(target: Target) -> Check:
    """Tell whether the jars are there. That they are not is information: a run fetches them."""
    cached = is_cached(target)
    remedy = "" if cached else f"harness doctor --fetch {target.name}"
    found = "cached" if cached else "not cached: the first run fetches them"
    return Check(f"jars of {target.name} ({target.version})", ok=True, found=found, remedy=remedy)


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / 1024**3:.1f} GiB"
