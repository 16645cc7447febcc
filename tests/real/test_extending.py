"""The pages in ``docs/extending``: their additions work in a copy of the source."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sandbox import completed, harness_command

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "extending"
CATALOG = "harness/schedules/catalog.py"
RUNTIMES = "harness/runtimes/__init__.py"
TARGETS = "harness/targets/__init__.py"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("harness", "checkers", "nemesis", "workloads", "compose"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def page(name: str) -> str:
    return (PAGES / name).read_text()


def add(source: Path, example: str, destination: str) -> None:
    shutil.copyfile(PAGES / "examples" / example, source / destination)


def insert(source: Path, path: str, before: str, text: str) -> None:
    content = (source / path).read_text()
    assert before in content
    (source / path).write_text(content.replace(before, f"{text}\n{before}", 1))


def commands(name: str) -> list[list[str]]:
    return [line.split()[1:] for line in re.findall(r"^ +(harness (?:run|soak) .*)$", page(name), re.MULTILINE)]


def run(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source), "COMPACTION_HARNESS_BACKGROUND": "0"}
    environment.pop("PYTHONSAFEPATH", None)
    return completed(*harness_command(*arguments), cwd=source, env=environment)


def verdict(source: Path, arguments: list[str]) -> dict[str, Any]:
    ended = run(source, *arguments, "--format", "json")
    assert ended.returncode in {0, 1, 2}, ended.stderr
    content: dict[str, Any] = json.loads(ended.stdout)
    return content


def test_a_fault_is_one_file(source: Path) -> None:
    of_run, of_soak = commands("fault.md")
    assert "unknown nemesis 'crash-loop'" in run(source, *of_run).stderr
    add(source, "crash_loop.py", "nemesis/crash_loop.py")
    assert verdict(source, of_run)["verdict"] == "anomaly"
    assert "again while the broker starts" in run(source, "nemeses").stdout
    assert "crash-loop" in verdict(source, of_soak)["drawn"]


def test_an_anomaly_is_one_file_and_its_entries_in_the_catalog(source: Path) -> None:
    (command,) = commands("anomaly.md")
    assert "unknown anomaly 'lagging-lso'" in run(source, *command).stderr
    add(source, "lagging_lso.py", "checkers/anomalies/lagging_lso.py")
    (name,) = re.findall(r"^ +(LAGGING_LSO = .*)$", page("anomaly.md"), re.MULTILINE)
    (scenario,) = re.findall(r"^ +(Scenario\(\n.*?^ +\),)$", page("anomaly.md"), re.MULTILINE | re.DOTALL)
    insert(source, CATALOG, "\n\n@dataclass(frozen=True)\nclass PluginAnomaly", f"    {name}")
    insert(source, CATALOG, ")  # fmt: skip\n\nGROUP_SCENARIOS = ", scenario)
    ended = verdict(source, command)
    assert "lagging-lso" in {finding["anomaly"] for finding in ended["findings"]}
    assert [scenario["anomaly"] for scenario in ended["scenarios"]] == ["lagging-lso"]


def test_a_runtime_is_one_file_and_a_row(source: Path) -> None:
    (command,) = commands("runtime.md")
    assert "unknown runtime 'sim-slow'" in run(source, *command).stderr
    add(source, "sim_slow.py", "harness/runtimes/sim_slow.py")
    (row,) = re.findall(r'^ +("sim-slow": RuntimeKind\(.*\),)$', page("runtime.md"), re.MULTILINE)
    insert(source, RUNTIMES, '}\n"""Every runtime by name.', f"    {row}")
    assert verdict(source, command)["verdict"] == "anomaly"


def test_a_line_is_a_row_and_a_lock(source: Path) -> None:
    command, _ = commands("kafka-line.md")
    lock = source / "harness/targets/locks/kafka-4.4.0.lock"
    kept = lock.read_text()
    lock.unlink()
    rows = (source / TARGETS).read_text()
    (source / TARGETS).write_text(re.sub(r'^    Target\("kafka-4\.4".*\n', "", rows, flags=re.MULTILINE))
    assert "unknown target 'kafka-4.4'" in run(source, *command).stderr
    (row,) = re.findall(r'^ +(Target\("kafka-4\.4".*\),)$', page("kafka-line.md"), re.MULTILINE)
    insert(source, TARGETS, ")\n\n# Without this setting markers are never removed", f"    {row}")
    lock.write_text(kept)
    assert verdict(source, command)["verdict"] == "anomaly"
