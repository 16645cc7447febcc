"""The files with which the guard runs for good: commands can be parsed, metrics exist and are documented."""

import re
import shlex
from pathlib import Path
from typing import Any

import yaml
from documentation import ROOT
from test_documentation import parse

import compose.guard
from harness.protect.guard.metrics import PREFIX, families
from harness.protect.guard.status import GuardStatus, Observation

FILES = Path(compose.guard.__file__).parent
PAGE = (ROOT / "docs/reference/guard.md").read_text()
METRICS = {family.name for family in families(GuardStatus(), Observation(), 1)}


def test_the_metrics_of_the_alert_rules_exist() -> None:
    rules: Any = yaml.safe_load((FILES / "alerts.yaml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    names = {name for expression in expressions for name in re.findall(rf"{PREFIX}\w+", expression)}
    assert len(names) > 5
    assert names <= METRICS


def test_every_metric_is_on_the_page() -> None:
    documented = set(re.findall(r"^\| `([a-z_]+)`", PAGE, re.MULTILINE))
    assert {name.removeprefix(PREFIX) for name in METRICS} <= {name.removesuffix("_total") for name in documented}


def test_the_command_of_the_unit_can_be_parsed() -> None:
    unit = (FILES / "compaction-guard.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    servers = re.findall(r"^Environment=BOOTSTRAP_SERVERS=(.+)$", unit, re.MULTILINE)[0]
    words = shlex.split(line.replace("${BOOTSTRAP_SERVERS}", servers))
    parse(words[1:])
    assert "SuccessExitStatus=2" in unit


def test_the_command_of_the_service_can_be_parsed() -> None:
    content: Any = yaml.safe_load((FILES / "guard.yaml").read_text())
    words = [word if "BOOTSTRAP" not in word else "kafka-1:9092" for word in content["services"]["guard"]["command"]]
    parse(words)
    assert content["services"]["guard"]["ports"] == ["127.0.0.1:9464:9464"], "on loopback by default"
