"""The page about Python and pytest: its regression test runs, and commands are functions in one process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kept import kept_cluster
from sandbox import Sandbox, completed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending" / "library.md"

AGREES = """
import pytest
from sandbox import completed
from harness import absent, assert_replicas_agree

@pytest.mark.compaction_cluster("kafka-3.9", settings={"log.cleaner.enable": "false"})
def test_replicas_agree_while_nothing_is_removed(compaction_cluster):
    assert compaction_cluster.target.name == "kafka-3.9"
    compaction_cluster.create_topic("orders", partitions=2)
    for fault, broker in (("kill", 1), ("pause", 3), ("stop", 2)):
        with absent(compaction_cluster, broker, fault):
            compaction_cluster.write("orders", "key", f"value after {fault}")
            compaction_cluster.write("orders", "key", None, partition=1)
        assert_replicas_agree(compaction_cluster, ["orders"])
"""


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the plugin as the only one, whether it is installed or not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COMPACTION_HARNESS_BACKGROUND": "0"}
    return completed(sys.executable, "-P", *arguments, cwd=folder, env=environment)


def run_test(folder: Path, code: str, *arguments: str) -> str:
    (folder / "test_deleted_key.py").write_text(code)
    return python(folder, "-m", "pytest", "-p", "harness.api.pytest_plugin", "-c", os.devnull, *arguments).stdout


@pytest.mark.commit
def test_the_regression_test_of_the_page_fails_on_todays_kafka(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?^def test_.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(code.strip().splitlines()) <= 12
    printed = run_test(tmp_path, code, "--compaction-target", "kafka-4.4")
    error = r"(?m)^E +AssertionError: tombstone-divergence: broker 2, orders-0, offset 0: "
    assert re.search(error, printed), printed
    assert "1 failed" in printed


def test_replicas_agree_after_outages_without_compaction(tmp_path: Path) -> None:
    printed = run_test(tmp_path, AGREES)
    assert "1 passed" in printed, printed


COMMANDS = """
import harness

first, second = (harness.run(target="sim-kafka", anomaly="stuck-lso", seed=1, results="r") for _ in range(2))
again = harness.check(first.folder.path)
for verdict in (first.verdict, second.verdict, again.verdict):
    print(verdict.verdict, verdict.findings[0].anomaly, verdict.findings[0].broker)
copies = {broker: first.folder.path / "brokers" / str(broker) / "after-rejoin" for broker in (1, 2, 3)}
audited = harness.audit_disk(topic=["stuck-lso"], broker=copies)
print(audited.verdict, audited.findings[0].anomaly, audited.findings[0].broker)
"""


def test_the_commands_of_the_page(tmp_path: Path, sandbox: Sandbox) -> None:
    (code,) = re.findall(r"```python\n(import harness\n.*?)```", PAGE.read_text(), re.DOTALL)
    with kept_cluster(sandbox, "kafka-4.4", "stuck-lso") as kept:
        ended = python(tmp_path, "-c", code.replace("kafka-1:9092", kept.bootstrap).replace("orders-*", "stuck-*"))
    run, *findings = ended.stdout.splitlines()
    verdict, folder = run.split()
    assert (verdict, Path(folder).parent.name, len(findings)) == ("anomaly", "stuck-lso", 1), ended.stderr
    assert findings[0].startswith("stuck-lso: broker 2, stuck-lso-0, offset ")


def test_commands_are_functions_that_can_be_called_again(tmp_path: Path) -> None:
    ended = python(tmp_path, "-c", COMMANDS)
    assert ended.stdout.splitlines() == ["anomaly stuck-lso 2"] * 4, ended.stderr
    assert not ended.stderr
