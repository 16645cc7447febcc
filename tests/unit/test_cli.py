"""Bad input at the command line: one clear sentence, the right exit code, and no traceback."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.host import write_java
from findings import audited_verdict, finding
from in_process import exit_code
from literal import History, appeared, put, replica, write_run
from pages import MANIFEST
from pyspark.sql import SparkSession

from harness import console
from harness.cli import main as cli
from harness.errors import EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE, UsageError
from harness.host import leftovers
from harness.judge import check
from harness.judge.run_verdict import Results
from harness.judge.verdict import RunResult
from harness.run_folder.manifest import Manifest, open_run_folder
from harness.run_folder.store import AFTER_REJOIN, RunFolder
from harness.targets import TARGETS, WITH_JARS, find_target
from harness.targets.jars import _lock_digest
from harness.targets.lock import read_lock
from nemesis import SCRIPTS

RUN = ("run", "--target", "kafka-3.9", "--anomaly", "stuck-lso", "--runtime", "local")
COMMAND_S = 120


class Machine:
    """A place to run commands in: separate folders, a fake Java 17 that only prints its version, and fake jars."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.monkeypatch, self.capsys = root, monkeypatch, capsys
        for name in ("bin", "cache", "tmp"):
            (root / name).mkdir()
        places = {"PATH": "bin", "TMPDIR": "tmp", "COMPACTION_HARNESS_CACHE": "cache"}
        self.environment = {**os.environ, **{name: str(root / folder) for name, folder in places.items()}}
        self.environment.pop("JAVA_HOME", None)
        write_java(root / "bin", "17.0.9")
        for name in WITH_JARS:
            self.has_jars(name)

    def has_real_java(self) -> None:
        self.environment |= {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}

    def has_jars(self, target: str) -> None:
        row = find_target(target)
        folder = self.root / "cache" / "jars" / row.version
        folder.mkdir(parents=True)
        digests = read_lock(row)
        assert digests is not None
        (folder / "complete.json").write_text(json.dumps({"lock": _lock_digest(digests), "sizes_bytes": {}}))

    def execute(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        place: dict[str, Any] = {"cwd": self.root, "env": self.environment, "stdin": subprocess.DEVNULL}
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False, **place)

    def call(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command; it may print a traceback only with --debug, and leaves nothing in its TMPDIR."""
        done = self.execute(sys.executable, "-m", "harness.cli.main", *arguments)
        assert ("Traceback" in done.stderr + done.stdout) == ("--debug" in arguments), done.stderr
        assert list((self.root / "tmp").glob("*/*")) == []
        return done

    def refusal(self, *arguments: str | Path) -> str:
        """Run a command that is refused before anything starts, and return the error."""
        done = self.call(*arguments)
        assert done.returncode == EXIT_USAGE, done.stdout + done.stderr
        return only_error(done.stdout, done.stderr)

    def refusal_in_this_process(self, *arguments: str) -> str:
        """Run a command that is refused before anything starts, without a process, and return the error."""
        for name in ("PATH", "COMPACTION_HARNESS_CACHE"):
            self.monkeypatch.setenv(name, self.environment[name])
        self.monkeypatch.delenv("JAVA_HOME", raising=False)
        self.monkeypatch.chdir(self.root)
        assert exit_code(self.monkeypatch, *arguments) == EXIT_USAGE
        return only_error(*self.capsys.readouterr())


def only_error(stdout: str, stderr: str) -> str:
    """Return the error, which is the last line, of a command that printed no result."""
    assert stdout == ""
    (error,) = [line for line in stderr.splitlines() if line.startswith("harness: ")]
    assert stderr.splitlines()[-1] == error
    assert "Traceback" not in stderr
    return error.removeprefix("harness: ")


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, monkeypatch, capsys)


def test_debug_shows_the_traceback(machine: Machine) -> None:
    done = machine.call("--debug", "run", "--target", "kafka-39", "--anomaly", "all")
    assert done.returncode == EXIT_USAGE
    assert done.stderr.splitlines()[-1].startswith("harness: Invalid value for '--target': unknown target")


def test_without_a_command_the_help_is_printed(machine: Machine) -> None:
    assert machine.call().returncode == EXIT_USAGE
    assert machine.call("--help").returncode == EXIT_CLEAN


@pytest.mark.parametrize(("results", "expected"), [
    ("file", "'file' is a file"),
    ("file/below", "results cannot be written to file/below"),
    ("/proc/nowhere", "results cannot be written to /proc/nowhere"),
])  # fmt: skip
def test_results_that_cannot_be_written(machine: Machine, results: str, expected: str) -> None:
    (machine.root / "file").touch()
    error = machine.refusal_in_this_process(*RUN, "--results", results)
    assert (expected in error, "--results" in error) == (True, True), error


def test_full_disk(machine: Machine) -> None:
    machine.monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=409600))
    results = machine.root / "results"
    error = machine.refusal_in_this_process(*RUN, "--results", str(results))
    assert f"the disk of {results} has less than 64 MiB free" in error
    assert files_below(results) == []


@pytest.mark.parametrize(
    ("version", "expected"), [("", "there is no java on PATH"), ("11.0.21", "is Java 11.0.21, older than 17")]
)
def test_java_missing_or_too_old(machine: Machine, version: str, expected: str) -> None:
    (machine.root / "bin" / "java").unlink()
    if version:
        write_java(machine.root / "bin", version)
    error = machine.refusal_in_this_process(*RUN)
    assert (expected in error, "openjdk-17-jre-headless" in error) == (True, True), error
    assert not (machine.root / "results").exists()


def test_a_port_that_is_taken(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        error = machine.refusal_in_this_process(*RUN, "--port-base", str(port - 3))
    assert f" on 127.0.0.1 is taken (--port-base {port - 3} needs {port - 3} to {port})" in error
    assert files_below(machine.root / "results") == [], "a refused run leaves no run folder"


def test_jars_that_are_not_to_be_had(machine: Machine) -> None:
    machine.has_real_java()
    shutil.rmtree(machine.root / "cache")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refuses everybody
        port = closed.getsockname()[1]
        machine.environment["COMPACTION_HARNESS_MAVEN_ROOT"] = f"http://127.0.0.1:{port}/"
        error = machine.refusal(*RUN, "--runtime", "local")
    assert re.search("the jars cannot be fetched.*COMPACTION_HARNESS_MAVEN_ROOT", error)
    assert not (machine.root / "results").exists()


def test_what_there_is_is_listed_with_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.cli.main(["nemeses"], standalone_mode=False) == EXIT_CLEAN
    rows = capsys.readouterr().out.splitlines()
    for name, nemesis in SCRIPTS.items():
        assert any(row.split()[0] == name and nemesis.summary[:30] in row for row in rows)


def test_a_run_of_several_scenarios_is_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    verdicts = ["anomaly", "anomaly", "clean", "unknown"]
    audited = audited_verdict("s", "t", "u", "v")
    scenarios = tuple(replace(of, verdict=each) for of, each in zip(audited.scenarios, verdicts, strict=True))
    findings = (finding(topic="s"), finding(topic="t"))
    actual = replace(audited, verdict="anomaly", scenarios=scenarios, findings=findings)
    console.show(RunResult(RunFolder(tmp_path), actual, {}), "text")
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["scenario", "verdict", "findings", "broker", "effect"]
    rows = ["s-0 ANOMALY 1 2 visible", "t-0 ANOMALY 1 2 visible", "u-0 CLEAN 0", "v-0 UNKNOWN 0"]
    assert [" ".join(line.split()) for line in lines[:4]] == rows
    paragraphs = [line.split(None, 1)[1] for line in lines[4:] if line[0] != " "]
    assert paragraphs[:3] == ["tombstone-divergence: s-0, t-0: broker 2 is wrong", "v-0", "u-0"]


def run_folder(top: Path) -> Path:
    log = (put(0, "K"), put(1, "L"))
    history = History("run", wrote=log, after=(replica(1, *log), replica(2, *log)), seen=(appeared(1, log[0]),))
    path = write_run(top, history).path
    write_manifest(path, status="complete")
    list_evidence(path)
    return path


def list_evidence(path: Path) -> None:
    Manifest(RunFolder(path), json.loads((path / "manifest.json").read_text())).list_evidence()


def write_manifest(path: Path, **changes: Any) -> None:
    scenario = {"name": "s", "anomaly": "stuck-lso", "payload": "value", "critical": ["marker"]}
    manifest = {
        **MANIFEST, "run_id": "run", "control": "control", "status": "running",
        "owner": leftovers.owner_of_this_process("run", leftovers.work_root()),
        "scenarios": [{**scenario, "topic": "t", "replicas": {"0": [1, 2]}}], **changes,
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest))


UNFINISHED: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "missing": (lambda _path: None, ["'RUN_DIR'", "run' is not a folder; give a run folder"]),
    "a file": (Path.touch, ["'RUN_DIR'", "run' is not a folder; give a run folder"]),
    "empty": (Path.mkdir, ["'RUN_DIR'", "run' cannot be used", "it has no manifest.json"]),
    "a manifest that lacks fields": (
        lambda path: (run_folder(path.parent) / "manifest.json").write_text('{"run_id": "run"}'),
        ["manifest.json does not have target"],
    ),
    "in progress": (
        lambda path: write_manifest(run_folder(path.parent)),
        ["run is half-written", f"in progress (process {os.getpid()})"],
    ),
    "no history": (lambda path: (run_folder(path.parent) / "history.jsonl").unlink(), ["damaged", "history.jsonl"]),
}


@pytest.mark.parametrize(("write", "expected"), UNFINISHED.values(), ids=UNFINISHED)
def test_check_refuses_an_unfinished_run(machine: Machine, write: Callable[[Path], Any], expected: list[str]) -> None:
    path = machine.root / "run"
    write(path)
    error = machine.refusal("check", path)
    assert [part for part in expected if part not in error] == []
    assert str(path) in error


def with_half_of_line_2(data: bytes) -> bytes:
    first, second, *rest = data.splitlines(keepends=True)
    return b"".join([first, second[:20], b"\n", *rest])


STATE, ON_BROKER_1 = f"fetched/1/{AFTER_REJOIN}/*/state.json", f"brokers/1/{AFTER_REJOIN}"
FLIPPED = "flipped bits in a segment"
WITHOUT_OPEN = b'{"log_start": 0, "high_watermark": 1, "last_stable_offset": 1, "aborted": []}'
CHECKPOINT = f"{ON_BROKER_1}/cleaner-offset-checkpoint"
NO_NUMBER = "history.jsonl has an entry whose offset is not of type int64"
DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "half a state": (STATE, lambda _: b'{"log_start": 0, ', "{path}"),
    "a state that lacks a field": (STATE, lambda _: WITHOUT_OPEN, "{path} does not have open"),
    "half a line of history": ("history.jsonl", with_half_of_line_2, "{path} line 2"),
    "a list in the history": ("history.jsonl", lambda data: data + b"[]\n", "{path} line {lines} is not a JSON object"),
    "words for an offset": ("history.jsonl", lambda data: data + b'{"f": "produce", "offset": "ten"}\n', NO_NUMBER),
    "zeros in observations": ("observations.jsonl", lambda data: data + b"\0\0\0\n", "{path} line {lines}"),
    # The second of two batches of one size.
    FLIPPED: (f"{ON_BROKER_1}/*/*.log", lambda data: data[:-1] + bytes([data[-1] ^ 0xFF]), "{path} at byte {half}"),
    "zeros for an index": (f"{ON_BROKER_1}/*/*.txnindex", lambda _: b"\0" * 10, "{path} at byte 0"),
    "words in a checkpoint": (CHECKPOINT, lambda _: b"0\n1\nt zero 0\n", "{path} at byte 4: line 3"),
}


def damage(run: Path, name: str) -> str:
    """Damage a file of a run; return the place that an error names."""
    pattern, change, place = DAMAGES[name]
    (path,) = run.glob(pattern)
    data = change(path.read_bytes())
    path.write_bytes(data)
    return place.format(path=path, lines=data.count(b"\n"), half=len(data) // 2)


def planned_before(spark: SparkSession, folder: RunFolder) -> Results:
    return check.run_checkers(check.prepare(spark, [folder]))


@pytest.mark.parametrize("judge", [check.check_folder, planned_before], ids=lambda judge: judge.__name__)
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_with_its_place(spark: SparkSession, tmp_path: Path, name: str, judge: Any) -> None:
    run_folder(tmp_path)
    folder, _ = open_run_folder(tmp_path / "run")
    where = damage(folder.path, name)
    with pytest.raises(UsageError, match="the run folder is damaged") as refused:
        judge(spark, folder)
    assert where in str(refused.value)


def test_check_of_a_sound_run_and_of_a_damaged_one(machine: Machine) -> None:
    machine.has_real_java()
    path = run_folder(machine.root)
    done = machine.call("check", path, "--format", "json")
    assert done.returncode == EXIT_UNKNOWN, done.stderr
    assert json.loads(done.stdout) == json.loads((path / "verdict.json").read_text())

    (path / "verdict.json").unlink()
    where = damage(path, FLIPPED)
    list_evidence(path)
    error = machine.refusal("check", path)
    assert ("the run folder is damaged" in error, where in error) == (True, True), error
    assert not (path / "verdict.json").exists()


def test_the_console_script_works_from_any_directory(machine: Machine) -> None:
    """The installed script finds its package data (the lists of jars) without the checkout."""
    machine.environment.pop("PYTHONPATH", None)
    done = machine.execute(Path(sysconfig.get_path("scripts"), "harness"), "targets")
    assert done.returncode == EXIT_CLEAN, done.stderr
    rows = {tuple(line.split()[:2]) for line in done.stdout.splitlines()}
    assert {(target.name, target.version) for target in TARGETS.values()} <= rows


def test_check_of_a_run_whose_evidence_was_lost(machine: Machine) -> None:
    """Refused before Spark starts, for which there is no Java; the verdict stays."""
    path = run_folder(machine.root)
    (path / "verdict.json").write_text("former")
    damage(path, FLIPPED)
    assert "000.log has other content than the run wrote" in machine.refusal("check", path)
    assert (path / "verdict.json").read_text() == "former"


def test_check_of_partial_evidence(machine: Machine) -> None:
    machine.has_real_java()
    path = run_folder(machine.root)
    (path / "verdict.json").write_text('{"verdict": "anomaly"}')
    (path / "observations.jsonl").unlink()
    done = machine.call("check", path, "--partial", "--format", "json")
    assert done.returncode == EXIT_UNKNOWN, done.stderr
    result = json.loads(done.stdout)
    assert result["partial"] == [{"path": "observations.jsonl", "problem": "is missing"}]
    assert result["scenarios"][0]["reason"].startswith("judged by partial evidence: observations.jsonl is missing")
    (former,) = path.glob("verdict-*.json")
    assert former.read_text() == '{"verdict": "anomaly"}'
    assert f"harness: the former verdict differs, and is kept as {former.name}" in done.stderr.splitlines()


SLOW_IMPORTS = {"harness.judge.check", "jpype", "kafka", "matplotlib", "numba", "numpy", "pandas", "pyarrow", "pyspark"}


def test_a_command_line_is_parsed_before_slow_packages_are_imported() -> None:
    """The JVM of Spark starts first, and they are imported meanwhile."""
    code = "import harness.cli.main, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & SLOW_IMPORTS == set()


def test_an_interrupt_while_modules_are_imported() -> None:
    code = (
        "import os, signal, sys\nfrom harness.cli import entry\n"
        "class Interrupting:\n    def find_spec(self, name, *_):\n"
        "        if name == 'harness.cli.main':\n            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\nentry.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
