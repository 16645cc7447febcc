"""The functions for other programs, and the plugin of pytest, without a broker."""

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import Mock

import click
import pytest
from fakes.cluster import RecordedCluster, recorded_cluster
from plugged import python

import harness
from harness.api import clusters, commands, pytest_plugin
from harness.api.clusters import LocalCluster, absent
from harness.cli.audit import disk, live
from harness.cli.results import check
from harness.cli.run import run
from harness.errors import HarnessError, UsageError
from harness.runtimes.base import ClusterSpec
from harness.schedules.placement import Placement
from harness.targets import find_target

ROOT = Path(__file__).resolve().parents[2]
OF_THE_TERMINAL = {"help", "quiet", "verbose", "format"}
OF_FILES = {"output", "junit", "html", "results"}
LOADED = "import sys\nbefore = set(sys.modules)\nimport %s\nprint(*sorted(set(sys.modules) - before))"
"""Prints the modules that an import loads."""


@pytest.mark.parametrize(("command", "keywords", "others"), [
    (run, commands.RunKeywords, set()),
    (check, commands.SparkKeywords, {"partial"}),
    (disk, commands.DiskKeywords, OF_FILES),
    (live, commands.LiveKeywords, OF_FILES),
])  # fmt: skip
def test_keywords_are_the_options_of_the_command(command: click.Command, keywords: Any, others: set[str]) -> None:
    options = {parameter.opts[-1].removeprefix("--").replace("-", "_"): parameter for parameter in command.params}
    names = {name for name, parameter in options.items() if isinstance(parameter, click.Option)}
    hints = get_type_hints(keywords)
    assert hints.keys() == names - OF_THE_TERMINAL - others
    for name, kind in hints.items():
        option = options[name]
        assert isinstance(option, click.Option)
        is_repeatable = getattr(kind, "__origin__", None) in {Sequence, Mapping}
        assert (option.is_flag, option.multiple) == (kind is bool, is_repeatable), name


def test_exported_names_are_those_of_the_page(tmp_path: Path) -> None:
    assert set(harness.__all__) == set(harness._EXPORTS)
    for name in harness.__all__:
        assert getattr(harness, name).__doc__
    with pytest.raises(AttributeError, match="module 'harness' has no attribute 'runs'"):
        _ = getattr(harness, "runs")  # noqa: B009
    ended = python(tmp_path, f"{LOADED % 'harness'}\nprint(harness.UsageError('x').exit_code)")
    loaded, code = ended.stdout.splitlines()
    assert {name.partition(".")[0] for name in loaded.split()} <= {"harness", "importlib", "warnings"}
    assert code == "254"


ERRORS = """
import json, harness
calls = json.loads(input())
for function, keywords in calls:
    try:
        getattr(harness, function)(**keywords)
    except harness.HarnessError as error:
        print(type(error).__name__, error, sep=": ")
"""
WRONG: tuple[tuple[str, Mapping[str, Any], str], ...] = (
    ("run", {}, "give --target and --anomaly: see `harness targets` and `harness anomalies`"),
    ("run", {"target": "sim-kafka", "anomaly": "none"}, "Invalid value for '--anomaly': unknown anomaly 'none'"),
    ("run", {"target": "sim-kafka", "anomaly": "all", "brokers": 2}, "Invalid value for '--brokers': '2' is not"),
    ("run", {"target": "sim-kafka", "anomaly": "all", "set": {"topic.a": 1}}, "--set 'topic.a=1': Kafka 4.4.0 has no"),
    ("run", {"target": "sim-kafka", "anomaly": "all", "gate": True}, "--gate is for --runtime local, and contradicts"),
    ("run", {"target": "sim-kafka", "anomaly": "all", "gates": True}, "No such option '--gates'"),
    ("check", {"run_dir": "."}, "Invalid value for 'RUN_DIR': '.' cannot be used: it has no manifest.json"),
    ("audit_disk", {"topic": ["t"]}, "Missing option '--broker'."),
    ("audit_disk", {"broker": {"1": ["/missing", "/gone"]}}, "the folder of broker 1 cannot be read: /missing: "),
    ("audit_live", {"topic": ["t"]}, "Missing option '--bootstrap-server'."),
    (
        "audit_live", {"bootstrap_server": "127.0.0.1:1", "quick": True, "spool_limit": "1GiB"},
        "--quick reads no data: leave out --spool-limit",
    ),
    ("audit_live", {"bootstrap_server": "127.0.0.1:1", "quick": True}, "--bootstrap-server: no broker answers"),
    ("audit_live", {"bootstrap_server": "127.0.0.1:1", "output": "a", "results": "r"},
     "functions return their result, and write no other files: leave out --output, --results"),
)  # fmt: skip


def test_functions_reject_what_commands_reject_and_print_nothing(tmp_path: Path) -> None:
    calls = json.dumps([(function, keywords) for function, keywords, _ in WRONG])
    ended = python(tmp_path, ERRORS.replace("input()", repr(calls)))
    assert not ended.stderr
    for line, (_, _, expected) in zip(ended.stdout.splitlines(), WRONG, strict=True):
        assert line.startswith(f"UsageError: {expected}")
    assert not list(tmp_path.iterdir())


def test_settings_of_a_folder_are_read_for_a_named_cluster_alone(tmp_path: Path) -> None:
    address = 'bootstrap-server = "127.0.0.1:1"\n'
    (tmp_path / "harness.toml").write_text(f"[cluster]\n{address}[clusters.east]\n{address}")
    calls = json.dumps([("audit_live", {}), ("audit_live", {"cluster": "east"}), ("audit_live", {"cluster": "west"})])
    unnamed, east, west = python(tmp_path, ERRORS.replace("input()", repr(calls))).stdout.splitlines()
    assert unnamed == "UsageError: Missing option '--bootstrap-server'."
    assert east.startswith("UsageError: --bootstrap-server: no broker answers (127.0.0.1:1: ")
    assert "unknown cluster 'west'" in west


def test_another_spark_session_in_the_process_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        SparkContext = type("SparkContext", (), {"_active_spark_context": object()})

    monkeypatch.setitem(sys.modules, "pyspark", Other)
    with pytest.raises(UsageError, match=r"a Spark session is active in this process: end it with SparkSession.stop"):
        harness.audit_disk(broker={1: tmp_path, 2: tmp_path})


def local(cluster: RecordedCluster, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    replicas = dict(cluster.replicas)
    cluster.absent = ()
    monkeypatch.setattr(LocalCluster, "partitions", lambda _: replicas)
    spec = ClusterSpec("run", Path(), Path(), {}, brokers=cluster.brokers)
    nobody: Any = None
    return LocalCluster(find_target("kafka-4.4"), "", spec, {}, cluster, nobody)


def test_an_absent_broker_has_left_before_the_block_and_is_back_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recorded_cluster(Placement())
    monkeypatch.setattr(recorded, "differing_ends", lambda _: recorded.actions.extend(["compare the ends"]))
    with absent(local(recorded, monkeypatch), 2):
        during = [recorded.absent, recorded.away]
        recorded.actions.append("the block")
    assert during == [(2,), {2}]
    assert (recorded.absent, recorded.away) == ((), frozenset())
    kill, *actions = recorded.actions
    assert kill == "kill 2"
    middle = actions.index("the block")
    assert "broker 2 to leave every ISR" in " ".join(actions[:middle])
    assert actions[middle + 1] == "start 2"
    assert "broker 2 to be in every ISR" in " ".join(actions[middle:])
    assert "compare the ends" in actions[middle:]


def test_a_fault_is_healed_where_the_block_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recorded_cluster(Placement())
    with pytest.raises(ZeroDivisionError), absent(local(recorded, monkeypatch), 3, "pause"):
        _ = 1 / 0
    assert recorded.actions[0] == "pause 3"
    assert recorded.actions[-1] == "resume 3"
    assert not recorded.away


def test_a_fault_that_cannot_be_injected_is_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recorded_cluster(Placement())
    monkeypatch.setattr(recorded.control, "rest", Mock(side_effect=HarnessError("refused")))
    with pytest.raises(HarnessError, match="refused"), absent(local(recorded, monkeypatch), 2, "late-cleaner"):
        pytest.fail("the block is not entered")
    assert (recorded.actions, recorded.absent) == (["broker 2: {'log.cleaner.backoff.ms': None}"], ())


@pytest.mark.parametrize(("broker", "fault", "message"), [
    (2, "kil", "unknown fault 'kil'; did you mean kill"),
    (2, "partition", r"this cluster was not started for partition: give faults=\['partition'\]"),
    (4, "kill", "broker 4 is not among the brokers that are up"),
])  # fmt: skip
def test_unfit_faults_are_rejected(monkeypatch: pytest.MonkeyPatch, broker: int, fault: str, message: str) -> None:
    recorded = recorded_cluster(Placement())
    with pytest.raises(UsageError, match=message), absent(local(recorded, monkeypatch), broker, fault):
        pytest.fail("the block is not entered")
    assert not recorded.actions


@pytest.mark.parametrize(("target", "options", "message"), [
    ("sim-kafka", {}, "sim-kafka cannot run as processes of this host"),
    ("kafka-4.4", {"brokers": 0}, "brokers=0: give 2 to 7"),
    ("kafka-4.4", {"settings": {"nonsense": "1"}}, "no such setting of a broker"),
])  # fmt: skip
def test_clusters_that_cannot_be_booted(tmp_path: Path, target: str, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        clusters.local_cluster(target, tmp_path, **options).__enter__()


TESTS = """
import pytest

def test_default(compaction_cluster):
    assert compaction_cluster == ("%s", {})

@pytest.mark.compaction_cluster("kafka-3.9", brokers=4)
def test_marked(compaction_cluster):
    assert compaction_cluster == ("kafka-3.9", {"brokers": 4})

@pytest.mark.compaction_cluster(faults=["partition"])
@pytest.mark.parametrize("compaction_cluster", ["kafka-4.0", "kafka-4.1"], indirect=True)
def test_parameters(compaction_cluster, request):
    assert compaction_cluster == (request.node.callspec.params["compaction_cluster"], {"faults": ["partition"]})

def test_session(compaction_session_cluster):
    assert compaction_session_cluster == ("%s", {})

def test_session_again(compaction_session_cluster, booted):
    assert [name for name, _ in booted].count("%s") == 2  # the test's and the session's
"""
CONFTEST = """
import contextlib
import pytest
from harness.api import clusters

BOOTED = []

@contextlib.contextmanager
def local_cluster(target, folder, **options):
    assert folder.is_dir()
    BOOTED.append((target, options))
    yield target, options

clusters.local_cluster = local_cluster

@pytest.fixture
def booted():
    return BOOTED
"""


@pytest.mark.parametrize(("ini", "arguments", "target"), [
    ("", (), clusters.NEWEST),
    ("compaction_target = kafka-4.2", (), "kafka-4.2"),
    ("compaction_target = kafka-4.2", ("--compaction-target", "kafka-4.3"), "kafka-4.3"),
])  # fmt: skip
def test_fixtures_have_their_target_from_parameter_marker_option_or_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ini: str, arguments: tuple[str, ...], target: str
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini(f"[pytest]\naddopts = -p harness.api.pytest_plugin --strict-markers\n{ini}")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS.replace("%s", target))
    pytester.runpytest_subprocess(*arguments).assert_outcomes(passed=6)


def test_packages_are_typed_and_name_their_plugin_for_pytest_which_costs_nothing_unused(tmp_path: Path) -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    setuptools = content["tool"]["setuptools"]
    for package in (pattern.removesuffix("*") for pattern in setuptools["packages"]["find"]["include"]):
        assert (ROOT / package / "py.typed").is_file()
        assert "py.typed" in setuptools["package-data"][package]
    assert content["project"]["entry-points"]["pytest11"] == {"compaction_harness": pytest_plugin.__name__}
    loaded = python(tmp_path, f"import pytest\n{LOADED % 'harness.api.pytest_plugin'}").stdout.split()
    assert loaded == ["harness", "harness.api", "harness.api.pytest_plugin"]
