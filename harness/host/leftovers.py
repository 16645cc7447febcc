"""What a run leaves on the machine while it lives, and how all of it is found again.

Every run owns one work directory (broker data, Spark's scratch space) with an ``owner.json`` in it, and
every process that it starts carries ``-Dharness.run=<run id>`` on its command line. So neither process ids
nor a clean exit are needed to take a run apart: the directory names the run, the run names its processes
and its network.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from harness.errors import HarnessError, UsageError
from harness.host import disk
from harness.host.elsewhere import COMPOSE_FILE, MODULES, may_have_engine
from harness.host.network import remove_network, remove_stray_rules, runs_with_networks

UNOWNED_GRACE_S = 60.0
"""A directory without a readable owner this young may belong to a run that is just starting."""

SPARK_MARKER = "-Dharness.part=spark"
"""On the command line of Spark's JVM, to tell it from the brokers of the same run."""

END_TIMEOUT_S = 10.0
LOOK_AGAIN_S = 0.05


@dataclass(frozen=True)
class Owner:
    """The process that a run belongs to; the start time tells it from a later process of the same id.

    ``kept``: a user looks after the cluster. ``resumable``: the run can go on with its data when it was cut off.
    """

    pid: int
    started_s: float
    run_id: str
    run_dir: str
    kept: bool = False
    resumable: bool = False

    def lives(self) -> bool:
        """Whether that very process is still there."""
        try:
            return bool(abs(psutil.Process(self.pid).create_time() - self.started_s) < 1.0)
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True)
class Leftover:
    """A run's work directory and what is known of its owner."""

    directory: Path
    owner: Owner | None

    @property
    def run_id(self) -> str:
        """The run id is the directory's name, also where no owner could be read."""
        return self.directory.name


def work_root() -> Path:
    """Directory of this user's runs, private to the user."""
    return Path(tempfile.gettempdir()) / f"compaction-harness-{os.getuid()}"


def claim_work_dir(run_id: str, run_dir: Path) -> Path:
    """Create the run's work directory, owned by this process. Raises OSError where that is impossible."""
    root = work_root()
    root.mkdir(mode=0o700, exist_ok=True)
    directory = root / run_id
    directory.mkdir(mode=0o700)
    write_owner(directory, Owner(**owner_of_this_process(run_id, run_dir)))
    return directory


def reclaim_work_dir(run_id: str, run_dir: Path) -> Path:
    """Take over the work directory of a run that was cut off. Raises OSError where it is gone."""
    directory = work_root() / run_id
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no {directory}")
    write_owner(directory, Owner(**owner_of_this_process(run_id, run_dir), resumable=True))
    return directory


def owner_of_this_process(run_id: str, run_dir: Path) -> dict[str, Any]:
    """Return the fields of `Owner` that identify this process and run."""
    me = psutil.Process()
    return {"pid": me.pid, "started_s": me.create_time(), "run_id": run_id, "run_dir": str(run_dir.absolute())}


def write_owner(directory: Path, owner: Owner) -> None:
    """Replace the directory's owner in one step."""
    draft = directory / "owner.json.new"
    draft.write_text(json.dumps(asdict(owner)))
    draft.replace(directory / "owner.json")


def find_leftovers() -> list[Leftover]:
    """Every run's work directory of this user, whether its owner lives or not."""
    root = work_root()
    if not root.is_dir():
        return []
    return [Leftover(path, read_owner(path)) for path in sorted(root.iterdir()) if path.is_dir()]


def is_abandoned(leftover: Leftover) -> bool:
    """Whether nobody looks after this run any more: it is not kept, and cannot go on either."""
    if leftover.owner is None:
        try:
            return time.time() - leftover.directory.stat().st_mtime > UNOWNED_GRACE_S
        except FileNotFoundError:
            return False
    owner = leftover.owner
    return not owner.kept and not owner.resumable and not owner.lives()


def change_owner(directory: Path, **changes: Any) -> None:
    """Replace what these fields say of the directory's owner; one that cannot be read stays as it is."""
    owner = read_owner(directory)
    if owner is not None:
        write_owner(directory, replace(owner, **changes))


def release(run_id: str, directory: Path) -> int:
    """Take a run apart that has ended: end its processes, and keep its data only where it can be resumed."""
    return _end("end", run_id, directory) if is_resumable(directory) else remove(run_id, directory)


def remove(run_id: str, directory: Path) -> int:
    """End every process of the run, wherever it is, remove its network and directory; return how many were ended.

    The directory goes last: by it a run is found again of which something could not be removed.
    """
    ended = _end("remove", run_id, directory)
    disk.unmount_below(directory)
    shutil.rmtree(directory, ignore_errors=True)
    return ended


def end_processes(run_id: str, *, carrying: str = "") -> int:
    """SIGKILL every process that carries the run's marker, until none is left; return how many.

    ``carrying``: only those that carry this argument too.

    Looks again after each round, as a process that is between fork and exec carries no marker yet.
    Raises TimeoutError when some survive ``END_TIMEOUT_S`` seconds.
    """
    ended: set[int] = set()
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while found := processes_of(run_id, carrying=carrying):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"processes of run {run_id} survive SIGKILL: {[p.pid for p in found]}")
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            ended.add(process.pid)
        # Not waited for by id: that would take a child's exit code from whoever started it.
        time.sleep(LOOK_AGAIN_S)
    return len(ended)


def processes_of(run_id: str, *, carrying: str = "") -> list[psutil.Process]:
    """Every live process that was started for the run, found by the marker on its command line."""
    wanted = {process_marker(run_id), *([carrying] if carrying else [])}
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and wanted <= set(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def remove_orphaned_networks() -> list[str]:
    """Remove the networks of runs that have neither a work directory nor a process any more; return their ids.

    A command that was under way when harness and keeper ended may have made one after they had looked.
    """
    removed = sorted(run_id for run_id in _orphans(runs_with_networks()) if remove_network(run_id))
    remove_stray_rules()
    return removed


def remove_orphaned_containers() -> list[str]:
    """Remove the containers of runs that have neither a work directory nor a process any more; return their ids."""
    if not may_have_engine():
        return []
    engine = importlib.import_module(MODULES[COMPOSE_FILE])
    orphans = sorted(_orphans(engine.runs_with_containers()))
    for run_id in orphans:
        engine.remove(work_root(), run_id)
    return orphans


def _orphans(run_ids: set[str]) -> set[str]:
    """Those that nobody looks after, here or with another TMPDIR: a run's keeper names it on its command line."""
    orphans = run_ids - {leftover.run_id for leftover in find_leftovers()}
    if orphans:
        words = {word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()}
        orphans = {run_id for run_id in orphans if not any(run_id in word for word in words)}
    return orphans


def _end(verb: str, run_id: str, directory: Path) -> int:
    """End the run's processes, then its network, then what it has elsewhere; return how many things were ended.

    ``verb``: what is done elsewhere. Raises `HarnessError` where something stays, or cannot be reached.
    """
    ended = end_processes(run_id)
    remove_network(run_id)
    modules = [importlib.import_module(module) for file, module in MODULES.items() if (directory / file).exists()]
    try:
        return ended + sum(int(getattr(module, verb)(directory, run_id)) for module in modules)
    except UsageError as error:
        raise HarnessError(f"something is left of {run_id}: {error}") from error


def process_marker(run_id: str) -> str:
    """The JVM argument by which a run's processes are known."""
    return f"-Dharness.run={run_id}"


def is_resumable(directory: Path) -> bool:
    """Whether the run can go on with what is there, so that its data have to stay."""
    owner = read_owner(directory)
    return owner is not None and owner.resumable


def read_owner(directory: Path) -> Owner | None:
    """Return who owns the directory; None where the file cannot be read."""
    try:
        return Owner(**json.loads((directory / "owner.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
