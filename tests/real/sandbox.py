"""Real runs through the command line, each in a separate sandbox: private TMPDIR, private results."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pyspark
from verdict_schema import violations

from harness.errors import EXIT_CLEAN
from harness.host.clock import RealClock
from harness.run_folder.history import read_lines

RUN_S = 600
"""The bound on any command; a run takes some 15 s on an idle machine."""
STAGE_S = 300
GONE_S = 60
DATA = "tombstone-divergence,aborted-to-committed,committed-to-aborted,stuck-lso"
"""All that runs look for in topics of data; ``all`` has consumer groups, too, and takes longer."""
PAYLOADS = {
    "tombstone-divergence": ("tombstone-divergence", "visible"),
    "aborted-to-committed": ("aborted-to-committed", "visible"),
    "aborted-to-committed-delete": ("aborted-to-committed", "visible"),
    "committed-to-aborted-value": ("committed-to-aborted", "latent"),
    "committed-to-aborted-delete": ("committed-to-aborted", "visible"),
    "stuck-lso": ("stuck-lso", "visible"),
}
"""By topic of data: the finding and its effect."""

LONG_TIMERS: dict[str, dict[str, float]] = {
    "topic": {
        "delete.retention.ms": 4000, "segment.ms": 500, "min.cleanable.dirty.ratio": 0.0001,
        "max.compaction.lag.ms": 1000,
    },
    "broker": {
        "log.cleaner.backoff.ms": 100, "producer.id.expiration.ms": 4000,
        "producer.id.expiration.check.interval.ms": 500, "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 300, "replica.lag.time.max.ms": 3000,
    },
}  # fmt: skip
"""Short enough for a test, long enough to be cut off in mid-window."""


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """The exit code and everything printed, for the message of an assertion."""
        return f"exit code {self.code}\n{self.stdout}\n{self.stderr}"

    @property
    def verdict(self) -> dict[str, Any]:
        """Stdout as the one JSON document that it has to be, a verdict by the schema of verdicts."""
        verdict: dict[str, Any] = json.loads(self.stdout)
        if "findings" in verdict:
            assert violations(verdict) == []
        return verdict


class Going:
    def __init__(self, sandbox: "Sandbox", arguments: tuple[str, ...]) -> None:
        """Start it, the first of a new process group, as a shell does."""
        actual = sandbox.root / f"{arguments[0]}-{os.urandom(4).hex()}"
        self._out, self._err = actual.with_suffix(".out"), actual.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                harness_command(*arguments), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                cwd=sandbox.root, env=sandbox.environment, start_new_session=True,
            )  # fmt: skip

    def wait_for_stage(self, stage: str) -> None:
        """Wait until its progress names a stage. Fails when it ends before."""

        def begun() -> bool:
            if re.search(rf"^ *[\d.]+ s  {re.escape(stage)}$", self._err.read_text(), re.MULTILINE):
                return True
            assert self.process.poll() is None, f"it ended before {stage}:\n{self._err.read_text()}"
            return False

        wait_until(begun, STAGE_S, f"the stage {stage}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, code: int | None = None) -> Ran:
        """Wait for its end. Fails with its output if it ends with another exit code."""
        ran = Ran(self.process.wait(timeout=RUN_S), self._out.read_text(), self._err.read_text())
        assert code in {None, ran.code}, ran.output
        return ran


@dataclass(frozen=True)
class Sandbox:
    """An environment of commands whose leftovers can be distinguished from other processes' files."""

    root: Path

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def work_root(self) -> Path:
        """The work root of a process with this TMPDIR, as `harness.host.leftovers.work_root` returns it."""
        return self.tmp / f"compaction-harness-{os.getuid()}"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.tmp)}

    def start(self, *arguments: str) -> Going:
        return Going(self, arguments)

    def run(self, target: str, *arguments: str) -> Going:
        """Start ``harness run`` here, on local processes unless the arguments differ, its results where they go."""
        runtime = () if {"--runtime", "--resume"} & set(arguments) else ("--runtime", "local")
        return self.start("run", "--target", target, *runtime, *arguments)

    def call(self, *arguments: str, code: int | None = None) -> Ran:
        return self.start(*arguments).end(code)

    def latest(self, target: str, anomaly: str) -> Path:
        """Return the newest run folder, also of a run in progress."""
        return max(path for path in (self.results / target / anomaly).iterdir() if not path.is_symlink())

    def processes(self) -> list[psutil.Process]:
        """Every live process that was started here, however far it has moved away from its parents."""
        return [p for p in psutil.process_iter() if _temporary_folder(p) == str(self.tmp)]

    def left_behind(self) -> list[str]:
        """Describe what processes and files there are that a command must not leave."""
        processes = [f"process {p.pid}: {' '.join(command_line(p))[:300]}" for p in self.processes()]
        # Unlike rglob, a walk bears folders that vanish under it.
        paths = (Path(top, name) for top, folders, files in os.walk(self.tmp) for name in (*folders, *files))
        return processes + [str(path) for path in paths if path != self.work_root]

    def wait_until_nothing_is_left(self) -> None:
        """Wait until `left_behind` is empty; fails with the remaining names."""
        try:
            wait_until(lambda: not self.left_behind(), GONE_S, "nothing to be left")
        except Exception as error:
            raise AssertionError("\n".join(self.left_behind())) from error


@dataclass(frozen=True)
class Run:
    """A run that several tests look at; they change copies of its folder only."""

    ran: Ran
    sandbox: Sandbox
    folder: Path

    def copy(self, destination: Path) -> Path:
        return Path(shutil.copytree(self.folder, destination / self.folder.name))


def copy_live_disk(source: Path, destination: Path, *left_out: str) -> None:
    """Copy a folder of a broker that runs: files that it is about to remove, or removes meanwhile, are left out."""

    def copy_file(file: str, copy: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(file, copy)

    ignored = shutil.ignore_patterns("*.deleted", *left_out)
    shutil.copytree(source, destination, ignore=ignored, copy_function=copy_file)


def protected_run(sandbox: Sandbox, by: str, target: str, nemesis: str, *more: str, code: int = EXIT_CLEAN) -> Ran:
    """Run with ``--gate`` or ``--guard``, all payloads of data topics unless the arguments differ."""
    anomalies = () if "--anomaly" in more else ("--anomaly", DATA)
    return sandbox.run(target, *anomalies, "--nemesis", nemesis, by, *more, "--format", "json").end(code)


def earned(ran: Ran) -> set[Any]:
    return {one["exposure"]["earned"] for one in ran.verdict["scenarios"]}


def events_of(folder: Path, f: str) -> list[dict[str, Any]]:
    """Return the completions of an operation of the nemesis."""
    events = read_lines(folder / "history.jsonl")
    return [event for event in events if (event["f"], event["type"]) == (f, "ok")]


def harness_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "harness.cli.main", *arguments]


def long_timers() -> list[str]:
    pairs = (("--set", f"{scope}.{name}={value}") for scope, of in LONG_TIMERS.items() for name, value in of.items())
    return ["--timers", "10m", *chain.from_iterable(pairs)]


def completed(*words: str | Path, timeout_s: float = RUN_S, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with any exit code."""
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False, **options)


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> None:
    RealClock().wait_until(condition, timeout_s, what)


def takes_connections(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def make_spark_home(sandbox: Sandbox) -> Path:
    """Return a ``SPARK_HOME`` under which the workers of a ``local-cluster`` can write."""
    home = sandbox.root / "spark"
    home.mkdir()
    for name in ("jars", "bin"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def _temporary_folder(process: psutil.Process) -> str | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else process.environ().get("TMPDIR")
    except (psutil.Error, OSError):
        return None


def command_line(process: psutil.Process) -> list[str]:
    """Return a process's words, also of one that ends meanwhile."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return ["(ended)"]
