"""Faults, anomalies, targets and applications of other packages."""

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from plugged import install, install_example, python

from harness.judge.check import judge_run
from harness.judge.run_verdict import Results
from harness.plugins import BUILT_IN, PluginGroup, Registry
from harness.run_folder.store import RunFolder


@dataclass(frozen=True)
class Thing:
    name: str


def group() -> PluginGroup:
    misfits = {"misfit": "misfit does not fit", "right": None, "other": None}
    return PluginGroup("things", (Thing,), frozenset({"given"}), lambda thing: misfits[thing.name])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder of Python's path with a module that has an object of each kind."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "things.py").write_text(
        f"from {__name__} import Thing\nTEXT = 'text'\n"
        "RIGHT, OTHER, GIVEN, MISFIT, ODD = map(Thing, ('right', 'other', 'given', 'misfit', 'odd'))\n"
    )
    (folder / "failing.py").write_text("raise RuntimeError('it needs a licence')\n")
    (folder / "exiting.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(folder))
    for module in ("things", "failing"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return folder


def test_objects_of_plugins_follow_the_built_in_ones(site: Path) -> None:
    install(site, "acme-things", {"things": {"right": "things:RIGHT"}, "others": {"other": "things:OTHER"}})
    plugins = group()
    registry = Registry(plugins, {"given": Thing("given")})
    assert list(registry) == ["given", "right"]
    assert registry["right"] == Thing("right")
    assert [plugins.origin(name) for name in registry] == [BUILT_IN, "acme-things 1.0"]


@pytest.mark.parametrize(("name", "value", "problem"), [
    ("right", "failing:RIGHT", "RuntimeError: it needs a licence"),
    ("right", "missing_module:RIGHT", "ModuleNotFoundError: No module named 'missing_module'"),
    ("right", "things:TEXT", "things:TEXT is of type str, not Thing"),
    ("right", "things:OTHER", "things:OTHER has another name, other"),
    ("given", "things:GIVEN", "given is built-in"),
    ("misfit", "things:MISFIT", "misfit does not fit"),
    ("odd", "things:ODD", "KeyError: 'odd'"),
    ("right", "exiting:RIGHT", "SystemExit: 3"),
])  # fmt: skip
def test_a_broken_plugin_is_reported_once_by_its_name_and_left_out(
    site: Path, caplog: pytest.LogCaptureFixture, name: str, value: str, problem: str
) -> None:
    install(site, "acme-things", {"things": {name: value, "other": "things:OTHER"}})
    registry = Registry(group(), {"given": Thing("first")})
    with caplog.at_level(logging.WARNING, "harness"):
        assert dict(registry) == {"given": Thing("first"), "other": Thing("other")}
        assert len(registry) == len(list(registry))
    assert [record.getMessage() for record in caplog.records] == [
        f"{name} of acme-things 1.0 is left out of the things: {problem}"
    ]


def test_of_two_plugins_with_a_name_one_is_left_out(site: Path) -> None:
    for distribution in ("acme-things", "more-things"):
        install(site, distribution, {"things": {"right": "things:RIGHT"}})
    loaded, left_out = group().plugins
    assert {loaded.origin, left_out.origin} == {"acme-things 1.0", "more-things 1.0"}
    assert left_out.problem == f"{loaded.origin} offers that name, too"


LISTS = """
import json, sys
from harness.cli import main
assert not any(name.startswith("example_plugin") for name in sys.modules)
from click.testing import CliRunner
for command in ("targets", "nemeses", "anomalies"):
    for row in json.loads(CliRunner().invoke(main.cli, [command, "--format", "json"]).stdout)[command]:
        if row["origin"] != "built-in":
            print(row["origin"], *list(row.values())[:-1], sep=" | ")
from harness.doctor import _plugins
for check in _plugins():
    print(check.status, check.name, check.found, sep=" | ")
from workloads.applications import find_application
print(find_application("last-values").summary)
print("pyspark" in sys.modules)
"""


def test_the_example_is_listed_with_its_origin_and_loaded_late(tmp_path: Path) -> None:
    install_example(tmp_path)
    ended = python(tmp_path, LISTS)
    assert not ended.stderr, ended.stderr
    target, fault, anomaly, *doctor, application, spark = ended.stdout.splitlines()
    assert target.startswith("example-plugin 1.0 | kafka-4.4-two-fetchers | 4.4.0 | ")
    assert fault.startswith("example-plugin 1.0 | crash-loop | SIGKILL, again while")
    assert anomaly.startswith("example-plugin 1.0 | lagging-lso | value | A transaction is committed")
    kinds = {"crash-loop": "nemeses", "lagging-lso": "anomalies", "kafka-4.4-two-fetchers": "targets",
             "last-values": "applications"}  # fmt: skip
    assert doctor == [f"ok | plugin {name} | one of the {kind}, of example-plugin 1.0" for name, kind in kinds.items()]
    assert application == "a cache of the last values"
    assert spark == "False", "a checker is imported by checks alone"


PLAN = """
import {module}
from checkers.anomalies import FINDERS
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
plan = plan_run(RunOptions("sim-kafka", "lagging-lso", nemesis="crash-loop"))
print([scenario.name for scenario in plan.scenarios], plan.nemesis.name, "lagging-lso" in FINDERS)
plan = plan_run(RunOptions("kafka-4.4-two-fetchers", "all"))
print(plan.scenarios[6].name, plan.broker_settings["num.replica.fetchers"])
from nemesis import FAULTS
print(FAULTS["crash-loop"].summary)
"""


@pytest.mark.parametrize(
    "first", ["harness", *(f"example_plugin.{name}" for name in ("crash_loop", "anomaly", "target"))]
)
def test_runs_use_the_example_whatever_is_imported_first(tmp_path: Path, first: str) -> None:
    install_example(tmp_path)
    ended = python(tmp_path, PLAN.format(module=first))
    assert (ended.stderr, ended.stdout.splitlines()) == ("", [
        "['lagging-lso', 'control'] crash-loop True",
        "lagging-lso 2",
        "SIGKILL, again while the broker starts, and a restart at the end",
    ])  # fmt: skip


def test_a_checker_that_cannot_be_imported_is_reported_and_left_out(tmp_path: Path) -> None:
    install_example(tmp_path)
    (tmp_path / "example_plugin" / "lagging_lso.py").write_text("raise RuntimeError('it needs a licence')\n")
    ended = python(tmp_path, "from checkers.anomalies import FINDERS\nprint(*FINDERS)")
    assert "lagging-lso of example-plugin 1.0 is not checked: RuntimeError: it needs a licence" in ended.stderr
    assert "stuck_lso" in ended.stdout.split()
    assert "lagging-lso" not in ended.stdout.split()


def test_a_run_is_not_clean_without_the_checker_of_its_anomaly(tmp_path: Path) -> None:
    scenario = {"name": "lagging-lso", "anomaly": "lagging-lso", "payload": "value", "topic": "lagging-lso",
                "replicas": {"0": [1, 3, 2]}, "critical": ["marker"]}  # fmt: skip
    manifest = {"scenarios": [scenario], "control": "control", "absent_brokers": [2], "nemesis": "kill", "run_id": "r",
                "target": {"name": "sim-kafka"}, "timings_s": {}}  # fmt: skip
    verdict = judge_run(Results(guarantees=()), RunFolder(tmp_path), manifest)
    assert verdict.verdict == "unknown"
    assert verdict.reason == ("lagging-lso: checker lagging-lso raised an error: no package here offers this checker")
    known = {**manifest, "scenarios": [{**scenario, "anomaly": "stuck-lso"}]}
    assert not judge_run(Results(guarantees=()), RunFolder(tmp_path), known).checker_errors


def test_plugins_of_runs_obey_their_rules(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text(
        "from dataclasses import replace\n"
        "from harness.schedules.catalog import PluginAnomaly, SCENARIOS\n"
        "from nemesis.kill import FAULT, SCRIPT\n"
        "TWICE = PluginAnomaly('twice', 'acme', scenarios=(replace(SCENARIOS[0], anomaly='twice'),))\n"
        "UNDRAWN = replace(SCRIPT, name='undrawn')\n"
        "DRAWN = replace(UNDRAWN, name='drawn', soak_excluded='it takes long')\n"
    )
    nemeses = {"undrawn": "acme:UNDRAWN", "drawn": "acme:DRAWN"}
    install(tmp_path, "acme", {"nemeses": nemeses, "anomalies": {"twice": "acme:TWICE"}})
    code = (
        "import json\nfrom harness.schedules import catalog\nimport nemesis\n"
        "print(json.dumps({plugin.name: plugin.problem for group in (nemesis.PLUGINS, catalog.PLUGINS)"
        " for plugin in group.plugins}))"
    )
    assert json.loads(python(tmp_path, code).stdout) == {
        "drawn": "",
        "undrawn": "declare a FAULT, or the reason why soak cannot draw it as soak_excluded",
        "twice": "the scenario tombstone-divergence has a built-in name, another anomaly, or another kind",
    }
