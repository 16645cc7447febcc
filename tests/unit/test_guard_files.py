"""The files with which the guard runs for good: commands can be parsed, metrics exist and are documented."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from documentation import ROOT
from fakes.clock import NOW_MS
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_documentation import parse
from test_watch_rounds import STATUS

import compose.guard
from harness.audit.watch import status as watch_status
from harness.protect.guard.run import PREFIX, Observation, families
from harness.protect.guard.service import GuardStatus

FILES = Path(compose.guard.__file__).parent
PAGE = (ROOT / "docs/reference/guard.md").read_text()
OF_GUARD, OF_WATCH = list(families(GuardStatus(), Observation(), 1)), list(watch_status.families(STATUS, NOW_MS))
METRICS = {family.name for family in OF_GUARD}
EXPOSED = {sample.name for family in (*OF_GUARD, *OF_WATCH) for sample in family.samples} | METRICS
"""The names of all samples, and of the guard's metrics that have none before the first round."""
LABELS = {label for family in OF_WATCH for sample in family.samples for label in sample.labels}


def expressions_of_rules() -> list[str]:
    rules: Any = yaml.safe_load((FILES / "alerts.yaml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads((FILES / "dashboard.json").read_text())["panels"] if panel["type"] != "row"]


def expressions_of_panels() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.mark.parametrize("expressions", [expressions_of_rules, expressions_of_panels])
def test_the_metrics_of_alert_rules_and_dashboard_exist(expressions: Callable[[], list[str]]) -> None:
    names = {name for expression in expressions() for name in re.findall(r"compaction_\w+", expression)}
    assert {name.split("_")[1] for name in names} == {"guard", "watch"}
    assert names - EXPOSED == set()


def test_the_dashboard_has_every_label_that_its_legends_name() -> None:
    legends = "".join(target["legendFormat"] for panel in panels() for target in panel["targets"])
    assert set(re.findall(r"{{(\w+)}}", legends)) <= LABELS | {"topic", "instance"}


def test_every_metric_is_on_the_page() -> None:
    documented = set(re.findall(r"^\| `([a-z_]+)`", PAGE, re.MULTILINE))
    assert {name.removeprefix(PREFIX) for name in METRICS} <= {name.removesuffix("_total") for name in documented}


def test_the_commands_of_the_unit_and_of_the_service_can_be_parsed() -> None:
    unit = (FILES / "compaction-guard.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    servers = re.findall(r"^Environment=BOOTSTRAP_SERVERS=(.+)$", unit, re.MULTILINE)[0]
    words = shlex.split(line.replace("${BOOTSTRAP_SERVERS}", servers))
    parse(words[1:])
    assert "SuccessExitStatus=2" in unit
    content: Any = yaml.safe_load((FILES / "guard.yaml").read_text())
    words = [word if "BOOTSTRAP" not in word else "kafka-1:9092" for word in content["services"]["guard"]["command"]]
    parse(words)
    assert content["services"]["guard"]["ports"] == ["127.0.0.1:9464:9464"], "on loopback by default"


def needed_by(distributions: Iterable[str]) -> set[str]:
    """Return the distributions and all that they require, with normalized names."""
    needed = [canonicalize_name(name) for name in distributions]
    for name in needed:
        with suppress(metadata.PackageNotFoundError):  # for another Python or system
            required = [Requirement(text) for text in metadata.requires(name) or ()]
            names = {canonicalize_name(package.name) for package in required if "extra" not in str(package.marker)}
            needed.extend(names - set(needed))
    return set(needed)


GUARD_ALONE = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(name)

ABSENT = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Absent())
from harness.cli.main import main
import harness.audit.watch.run, harness.protect.guard.channel, harness.protect.guard.service, harness.report.endpoint
from harness.report.rendering import render
render("style.css")
main()
"""


@pytest.mark.parametrize(("command", "left_out", "error"), [
    ("guard --dry-run", (), "no broker answers"),
    ("guard --dry-run", ("waitress",), "ModuleNotFoundError"),
    ("watch --checks-only --state state", (), "no broker answers"),
])  # fmt: skip
def test_the_small_image_has_the_packages_of_its_commands(command: str, left_out: Sequence[str], error: str) -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    present = needed_by(groups["guard"]) | {"compaction-harness"}
    absent = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not present & {canonicalize_name(owner) for owner in owners} and module.isidentifier()
    }
    assert {"pyspark", "numpy", "pyarrow"} <= absent
    words = [",".join({*absent, *left_out}), *command.split(), "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run([sys.executable, "-c", GUARD_ALONE, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert error in done.stderr
