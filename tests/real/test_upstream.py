"""The contributions to Apache Kafka (``results/upstream``): the reproduction, and the patch with its unit tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import late_image
import pytest
from click.testing import CliRunner
from kafka_home import UPSTREAM, make_kafka_home
from sandbox import Sandbox, completed

from harness.errors import EXIT_CLEAN

TESTS_OF_THE_PATCH = 9
DUCKTAPE = "ducktape==0.17.0"
DIVERGED = "The returned replica serves the deleted value"
KEPT = "the others kept it while the replica was absent, and every replica removed it afterwards"


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Give what the build prints, and its folder of classes."""
    output = tmp_path_factory.mktemp("patched")
    done = completed(sys.executable, UPSTREAM / "patch" / "build.py", output)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, output / "classes"


def test_the_reproduction_shows_every_consequence(tmp_path: Path) -> None:
    home = make_kafka_home(tmp_path / "kafka")
    (tmp_path / "work").mkdir()
    environment = {**os.environ, "KAFKA_HOME": str(home), "TMPDIR": str(tmp_path / "work")}
    done = completed(UPSTREAM / "reproduction" / "reproduce.sh", env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    rows = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()[-3:]]
    expected = [["record 61", "no record"], ["record 0", "record 10"], ["deleted", "key: k payload: v"]]
    assert [row[1:] for row in rows] == expected
    assert list((tmp_path / "work").iterdir()) == []


def test_the_unit_tests_of_the_patch_pass(patched: tuple[str, Path]) -> None:
    assert f"{TESTS_OF_THE_PATCH} tests successful" in patched[0]


def run_ducktape(home: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the test of ducktape by its own runner, with the stand-ins, on brokers of that Kafka."""
    folder.mkdir()
    tests = UPSTREAM / "ducktape"
    environment = {
        **os.environ, "KAFKA_HOME": str(home), "KAFKA_HEAP_OPTS": "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "WORK": str(folder / "nodes"), "PYTHONPATH": str(tests / "standins"),
    }  # fmt: skip
    runner = [sys.executable, "-m", "uv", "tool", "run", "--python", sys.executable, "--from", DUCKTAPE, "ducktape"]
    chosen = ["--cluster", "local_cluster.LocalCluster", "--results-root", str(folder / "results")]
    return completed(*runner, tests / "compaction_replicas_test.py", *chosen, env=environment, cwd=folder)


def test_ducktape_fails_on_a_release(tmp_path: Path) -> None:
    done = run_ducktape(make_kafka_home(tmp_path / "kafka"), tmp_path / "ducktape")
    assert done.returncode == 1, done.stdout + done.stderr
    assert DIVERGED in done.stdout, done.stdout


def test_ducktape_passes_with_the_patch(tmp_path: Path, patched: tuple[str, Path]) -> None:
    home = make_kafka_home(tmp_path / "kafka", "4.3.1", patched[1])
    done = run_ducktape(home, tmp_path / "ducktape")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("nemesis", ["kill", "join"])
def test_brokers_with_the_patch_are_clean(sandbox: Sandbox, patched: tuple[str, Path], nemesis: str) -> None:
    words = ("--patch", str(patched[1]), "--anomaly", "all", "--nemesis", nemesis, "--format", "json")
    ran = sandbox.run("kafka-4.3", *words).end(EXIT_CLEAN)
    assert {one["exposure"]["earned"] for one in ran.verdict["scenarios"]} == {KEPT}


def test_a_broker_with_the_patch_whose_metadata_are_late_removes_nothing(patched: tuple[str, Path]) -> None:
    ran = CliRunner().invoke(late_image.main, ["--version", f"4.3+{patched[1]}"])
    assert ran.exit_code == EXIT_CLEAN, ran.output
