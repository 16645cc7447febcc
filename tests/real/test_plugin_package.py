"""The example of a plugin: it is installed as any package, and runs use everything that it offers."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from sandbox import completed

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"  # the build leaves files beside it
    shutil.copytree(EXAMPLE, source)
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--target", folder / "site")
    done = completed(*pip, source)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def run(site: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}
    command = (sys.executable, "-P", "-m", "harness.cli.main", "run", "--anomaly", "lagging-lso", "--format", "json")
    ended = completed(*command, *arguments, cwd=folder, env=environment)
    assert ended.returncode == 1, ended.stderr
    verdict: dict[str, Any] = json.loads(ended.stdout)
    return verdict


def test_a_simulated_run_has_its_fault_and_its_checker(installed: Path, tmp_path: Path) -> None:
    verdict = run(installed, tmp_path, "--target", "sim-kafka", "--nemesis", "crash-loop")
    assert verdict["nemesis"] == "crash-loop"
    assert {finding["anomaly"] for finding in verdict["findings"]} == {"lagging-lso", "stuck-lso"}
    assert not verdict["checker_errors"]


def test_a_run_of_its_target_shows_what_its_application_sees(installed: Path, tmp_path: Path) -> None:
    target = ("--target", "kafka-4.4-two-fetchers", "--runtime", "local")
    verdict = run(installed, tmp_path, *target, "--nemesis", "crash-loop", "--application", "last-values")
    assert verdict["target"]["name"] == "kafka-4.4-two-fetchers"
    (view,) = verdict["applications"]
    assert (view["application"], view["version"]) == ("last-values", "example-plugin 1.0")
    assert view["differs"]
    assert view["summary"].startswith("last-values example-plugin 1.0: cache of lagging-lso ")
    (properties,) = tmp_path.glob("results/kafka-4.4-two-fetchers/lagging-lso/2*/manifest.json")
    assert json.loads(properties.read_text())["broker_settings"]["num.replica.fetchers"] == "2"
