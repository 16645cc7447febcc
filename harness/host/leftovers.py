"""Find and remove the processes, networks, containers and work directories of runs.

Every run has a work directory (broker data, Spark's scratch space) with an ``owner.json``, and each of its processes
has ``-Dharness.run=<run id>`` on its command line, or `VARIABLE` in its environment. So a run can be removed without
process ids or a clean exit: the directory's name is the id of the run, which identifies its processes, its network and
its containers.
"""

import importlib
import json
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from harness.errors import HarnessError, UsageError, raised_as
from harness.host import disk
from harness.host.cache import write_atomically
from harness.host.network import remove_network, remove_stray_rules, runs_with_networks

PRIVATE = 0o700
UNOWNED_GRACE_S = 60.0
"""A younger directory without a readable owner may belong to a run that is starting."""

SPARK_MARKER = "-Dharness.part=spark"
"""An argument of Spark's JVM, which distinguishes it from the brokers of the same run."""

VARIABLE = "HARNESS_RUN"
"""The environment variable with the run's id, of processes whose command lines are a user's."""

END_TIMEOUT_S = 10.0
LOOK_AGAIN_S = 0.05

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_FIELD = 19
"""The clock ticks from the boot to the start of a process, among the fields of proc(5) after its command's name."""

SOCKET = Path("/var/run/docker.sock")
COMPOSE_FILE = "compose.yaml"
"""In the work directory of a run before its first container is created."""
NODES_FILE = "nodes.json"
"""In the work directory of a run before anything is written to other hosts."""
MODULES = {COMPOSE_FILE: "harness.host.engine", NODES_FILE: "harness.host.node_runs"}
"""Modules with ``end`` and ``remove``, imported only if they are needed, as the import takes time."""


@dataclass(frozen=True)
class Owner:
    """The process that a run belongs to; its start distinguishes it from a later process with the same id.

    ``started``: the boot and the clock ticks from it to the start, which no step of the wall clock changes; None where
    the system has no such record, and for files of earlier releases, whose ``started_s`` is wall-clock time.
    ``kept``: the user is responsible for the cluster. ``resumable``: the run can continue after an interruption.
    """

    pid: int
    started_s: float
    run_id: str
    run_dir: str
    kept: bool = False
    resumable: bool = False
    started: str | None = None

    def lives(self) -> bool:
        """Return whether the process still exists."""
        try:
            if self.started is not None:
                return started_of(self.pid) == self.started
            return bool(abs(psutil.Process(self.pid).create_time() - self.started_s) < 1.0)
        except psutil.NoSuchProcess:
            return False


def started_of(pid: int) -> str | None:
    """Return when a process started, as `Owner.started`; None without such a process, and on systems without /proc."""
    with suppress(OSError):
        # The name of the command, in parentheses, may have spaces and parentheses.
        *_, fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")
        return f"{BOOT_ID.read_text().strip()} {fields.split()[START_FIELD]}"
    return None


def process_fields(process: psutil.Process) -> dict[str, Any]:
    """Return the fields of `Owner` that identify a process."""
    return {"pid": process.pid, "started_s": process.create_time(), "started": started_of(process.pid)}


def work_root() -> Path:
    """Return the private directory of this user's runs. Raises `UsageError` for a TMPDIR that Python would ignore."""
    if (given := os.environ.get("TMPDIR")) and not os.access(f"{given}/", os.W_OK | os.X_OK):
        raise UsageError(f"TMPDIR is {given}, where no file can be created: create that folder, or choose another")
    return Path(tempfile.gettempdir()) / f"compaction-harness-{os.getuid()}"


def check_private(folder: Path) -> None:
    """Raise `UsageError` for a link, for another user's folder, and for one that other users may read or write."""
    state = folder.lstat()
    if stat.S_ISLNK(state.st_mode):
        why = "is a link"
    elif state.st_uid != os.getuid():
        why = f"belongs to user {state.st_uid}, not to user {os.getuid()}"
    elif stat.S_IMODE(state.st_mode) & ~PRIVATE:
        why = f"is open to other users (mode {stat.S_IMODE(state.st_mode):04o})"
    else:
        return
    raise UsageError(f"{folder} {why}: remove it, or set TMPDIR to a folder of your own")


def claim_work_dir(run_id: str, run_dir: Path, *, again: bool = False) -> Path:
    """Create the run's work directory, or take it over ``again``, for this process.

    Raises OSError, and `UsageError` if the directory of all runs is not private.
    """
    directory = work_root() / run_id
    work_root().mkdir(mode=PRIVATE, exist_ok=True)
    check_private(work_root())
    if not again:
        directory.mkdir(mode=PRIVATE)
    elif not directory.is_dir():
        raise FileNotFoundError(f"there is no {directory}")
    write_owner(directory, Owner(**owner_of_this_process(run_id, run_dir), resumable=again))
    return directory


def owner_of_this_process(run_id: str, run_dir: Path) -> dict[str, Any]:
    """Return the fields of `Owner` that identify this process and run."""
    return {**process_fields(psutil.Process()), "run_id": run_id, "run_dir": str(run_dir.absolute())}


def write_owner(directory: Path, owner: Owner) -> None:
    """Replace the directory's owner atomically."""
    write_atomically(directory / "owner.json", json.dumps(asdict(owner)))


def find_leftovers() -> dict[Path, Owner | None]:
    """Return the owner of each work directory of this user's runs, None where it is not known.

    Raises `UsageError` if the directory of all runs is not private: what another user put there must not be removed.
    """
    if os.path.lexists(work_root()):
        check_private(work_root())
    return {path: read_owner(path) for path in sorted(work_root().glob("*")) if path.is_dir()}


def is_abandoned(directory: Path, owner: Owner | None) -> bool:
    """Return whether a run has no owner any more: it is not kept, and cannot be resumed."""
    if owner is not None:
        return not owner.kept and not owner.resumable and not owner.lives()
    with suppress(FileNotFoundError):
        return time.time() - directory.stat().st_mtime > UNOWNED_GRACE_S
    return False


def remove_abandoned(run_dir: Path) -> None:
    """Remove what runs with this folder have left where their keeper was killed, too."""
    for directory, owner in find_leftovers().items():
        if owner and owner.run_dir == str(run_dir.absolute()) and is_abandoned(directory, owner):
            remove(directory)


def change_owner(directory: Path, **changes: Any) -> None:
    """Replace these fields of the directory's owner, if it can be read."""
    if owner := read_owner(directory):
        write_owner(directory, replace(owner, **changes))


def release(directory: Path) -> int:
    """End the processes of a run that has ended, and keep its data only if it can be resumed."""
    return _end("end", directory) if is_resumable(directory) else remove(directory)


def remove(directory: Path) -> int:
    """End every process of the run on all hosts, remove its network and directory; return the number of processes.

    The directory is removed last, as it identifies a run that could not be removed completely.
    """
    ended = _end("remove", directory)
    disk.unmount_below(directory)
    shutil.rmtree(directory, ignore_errors=True)
    return ended


def end_processes(run_id: str, *, carrying: str = "") -> int:
    """SIGKILL every process with the run's marker, and the argument ``carrying``; return their number.

    Repeats the search until no process is left, as a process between fork and exec has no marker yet. Raises
    TimeoutError if processes survive for `END_TIMEOUT_S` seconds.
    """
    ended: set[int] = set()
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while processes := processes_of(run_id, carrying=carrying):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"processes of run {run_id} survive SIGKILL: {[p.pid for p in processes]}")
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                ended.add(process.pid)
        # Waiting by process id would take a child's exit code from its parent's code.
        time.sleep(LOOK_AGAIN_S)
    return len(ended)


def processes_of(run_id: str, *, carrying: str = "") -> list[psutil.Process]:
    """Return every live process of the run, by the marker on its command line, or by the variable."""
    arguments = {process_marker(run_id), *([carrying] if carrying else [])}
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.status() != psutil.STATUS_ZOMBIE and (
                arguments <= set(process.cmdline()) or (not carrying and process.environ().get(VARIABLE) == run_id)
            ):
                processes.append(process)
    return processes


def may_have_engine() -> bool:
    """Return whether there may be a container engine."""
    return SOCKET.exists() or "DOCKER_HOST" in os.environ


def remove_orphans() -> list[str]:
    """Remove networks and containers of runs that have neither a work directory nor a process; return their names.

    A command that was running when harness and keeper ended may have created a network afterwards.
    """
    removed = [f"the network of {run_id}" for run_id in _orphans(runs_with_networks()) if remove_network(run_id)]
    remove_stray_rules()
    if may_have_engine():
        engine = importlib.import_module(MODULES[COMPOSE_FILE])
        for run_id in _orphans(engine.runs_with_containers()):
            engine.remove(work_root(), run_id)
            removed.append(f"the containers of {run_id}")
    return removed


def _orphans(run_ids: set[str]) -> list[str]:
    """Return the runs without an owner, also with another TMPDIR: a run's keeper has the id on its command line."""
    if orphans := run_ids - {directory.name for directory in find_leftovers()}:
        words = {word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()}
        orphans = {run_id for run_id in orphans if not any(run_id in word for word in words)}
    return sorted(orphans)


def _end(verb: str, directory: Path) -> int:
    """End the run's processes, its network, and its containers or remote processes; return the number of processes.

    ``verb``: the function of the `MODULES`. Raises `HarnessError` if something cannot be ended or reached.
    """
    ended = end_processes(directory.name)
    remove_network(directory.name)
    modules = [importlib.import_module(module) for file, module in MODULES.items() if (directory / file).exists()]
    with raised_as(HarnessError, f"something is left of {directory.name}", UsageError):
        return ended + sum(int(getattr(module, verb)(directory, directory.name)) for module in modules)


def process_marker(run_id: str) -> str:
    """Return the JVM argument that identifies a run's processes."""
    return f"-Dharness.run={run_id}"


def is_resumable(directory: Path) -> bool:
    """Return whether the run can be resumed, so that its data must be kept."""
    return bool((owner := read_owner(directory)) and owner.resumable)


def read_owner(directory: Path) -> Owner | None:
    """Return the owner of the directory; None if the file cannot be read."""
    try:
        return Owner(**json.loads((directory / "owner.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
