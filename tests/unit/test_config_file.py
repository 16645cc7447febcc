"""``harness.toml``: the default of each option, and errors in the file; every environment variable is listed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from documentation import ROOT

from harness.cli.config_file import FILE, VARIABLE, ConfigFile, default_map, read_config_file
from harness.cli.machine import VARIABLES
from harness.cli.main import cli
from harness.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def commands() -> click.Group:
    servers, config = click.Option(["--bootstrap-server", "bootstrap"]), click.Option(["--command-config", "config"])
    topics, results = click.Option(["--topic", "topics"], multiple=True), click.Option(["--results"])
    audit = click.Group("audit", commands=[click.Command("live", params=[servers, config, topics])])
    run, repair = click.Command("run", params=[config, results]), click.Command("repair", params=[servers])
    return click.Group("harness", commands=[audit, run, repair])


def test_each_setting_is_the_default_of_its_option(folder: Path) -> None:
    (folder / FILE).write_text(
        'results = "runs"\n[cluster]\nbootstrap-server = "kafka-1:9092"\ncommand-config = "client.properties"\n'
        'topics = ["orders-*", "users"]\n[spark]\nconf = { "spark.driver.memory" = "8g" }\n'
    )
    config = read_config_file()
    assert config.path == folder / FILE
    assert config.values["spark.conf"] == ["spark.driver.memory=8g"]
    config_path, topics = str(folder / "client.properties"), ["orders-*", "users"]
    assert default_map(commands(), config) == {
        "audit": {"live": {"bootstrap": "kafka-1:9092", "config": config_path, "topics": topics}},
        # Neither the brokers' login of a run nor the cluster of a command that changes one comes from a file.
        "run": {"results": str(folder / "runs")},
        "repair": {},
    }


def test_the_variable_names_another_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = folder / "deep" / "other.toml"
    other.parent.mkdir()
    other.write_text('results = "runs"')
    (folder / FILE).write_text('results = "elsewhere"')
    monkeypatch.setenv(VARIABLE, str(other))
    assert read_config_file().values == {"results": str(folder / "deep" / "runs")}


@pytest.mark.parametrize(("text", "message"), [
    ("results = 3", "results has to be a path"),
    ("results = ''", "results has to be a path"),
    ("result = 'runs'", "unknown setting 'result'; did you mean results?"),
    ("[cluster]\ntopics = 'orders'", "cluster.topics has to be a list of texts"),
    ("[cluster]\ntopics = [3]", "cluster.topics has to be a list of texts"),
    ("[spark]\nconf = ['a=b']", "spark.conf has to be a table of texts"),
    ("[clusters.eu]\ntopics = 'orders'", "[clusters.eu]: cluster.topics has to be a list of texts"),
    ("[clusters.eu]\ntopic = ['orders']", "[clusters.eu]: unknown setting 'cluster.topic'"),
    ("[clusters]\neu = 'kafka-1:9092'", "[clusters.eu]: unknown setting 'cluster'"),
    ("clusters = 'eu'", "clusters has to be a table of tables"),
    ("[spark]\nmasters = 'local'", "unknown setting 'spark.masters'; did you mean spark.master"),
    ("spark = 'local'", "unknown setting 'spark'"),
    ("results = ", "Invalid value"),
])  # fmt: skip
def test_a_wrong_file_is_named_with_what_is_wrong(folder: Path, text: str, message: str) -> None:
    (folder / FILE).write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        read_config_file()
    assert str(folder / FILE) in str(raised.value)


@pytest.mark.usefixtures("folder")
def test_only_a_named_file_has_to_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_config_file() == ConfigFile(None, {})
    monkeypatch.setenv(VARIABLE, "missing.toml")
    with pytest.raises(UsageError, match=r"missing\.toml"):
        read_config_file()


CLUSTERS = """\
results = "runs"
[cluster]
bootstrap-server = "kafka-1:9092"
command-config = "client.properties"
topics = ["orders-*"]
[clusters.staging]
bootstrap-server = "staging-1:9092"
[clusters."prod.eu"]
bootstrap-server = "eu-1:9092"
topics = ["users"]
"""


def parameters(monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, Any]:
    """Return the parameters that a command line gives a command, which is not executed."""
    command: click.Command = cli
    for word in words:
        command = command.commands.get(word, command) if isinstance(command, click.Group) else command
    got: dict[str, Any] = {}
    monkeypatch.setattr(command, "callback", lambda **given: got.update(given))
    cli.main(list(words), prog_name="harness", standalone_mode=False)
    return {name: got[name] for name in ("bootstrap", "config", "topics") if name in got}


ORDERS, STAGING, EU, USERS = "kafka-1:9092", "staging-1:9092", "eu-1:9092", ("users",)


@pytest.mark.parametrize(("line", "expected"), [
    ("audit exposure", {"bootstrap": ORDERS, "config": "client.properties", "topics": ("orders-*",)}),
    ("audit exposure --topic t", {"bootstrap": ORDERS, "config": "client.properties", "topics": ("t",)}),
    ("audit exposure --cluster staging", {"bootstrap": STAGING, "config": None, "topics": ()}),
    ("audit live --topic t --cluster prod.eu", {"bootstrap": EU, "config": None, "topics": ("t",)}),
    ("audit live --cluster prod.eu --bootstrap-server a:1", {"bootstrap": "a:1", "config": None, "topics": USERS}),
    ("audit key --key K --topic t --cluster prod.eu", {"bootstrap": EU, "config": None, "topics": ("t",)}),
    ("watch --state s --cluster prod.eu", {"bootstrap": EU, "config": None, "topics": USERS}),
    ("guard status --cluster staging", {"bootstrap": STAGING, "config": None}),
])  # fmt: skip
def test_a_named_cluster_replaces_the_other_cluster_as_a_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: dict[str, Any]
) -> None:
    (folder / FILE).write_text(CLUSTERS)
    (folder / "client.properties").touch()
    if expected["config"]:
        expected = {**expected, "config": folder / expected["config"]}
    assert parameters(monkeypatch, *line.split()) == expected


def test_an_unknown_cluster_is_rejected_with_the_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / FILE).write_text(CLUSTERS)
    names = r"--cluster: .*harness\.toml: unknown cluster 'prod'.*\(known: prod\.eu, staging\)"
    with pytest.raises(UsageError, match=names):
        parameters(monkeypatch, "audit", "live", "--cluster", "prod")
    (folder / FILE).unlink()
    with pytest.raises(UsageError, match=r"unknown cluster 'prod' \(known: none\)"):
        parameters(monkeypatch, "audit", "live", "--cluster", "prod")


@pytest.mark.parametrize("words", ["guard", "guard release", "repair audit.json --plan"])
@pytest.mark.usefixtures("folder")
def test_commands_that_change_a_cluster_take_its_address_only(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    with pytest.raises(click.NoSuchOption, match="--cluster"):
        parameters(monkeypatch, *words.split(), "--cluster", "staging")


OWN = re.compile("COMPACTION_HARNESS_[A-Z_]+|HARNESS_CONFIG")
OTHERS = {"SPARK_CONNECT_MODE", "SPARK_LOCAL_IP", "PYSPARK_DRIVER_PYTHON"}
"""Variables that the harness sets, or takes away, for its own Spark."""


def variables_read() -> Iterator[str]:
    for package in ("harness", "checkers", "models", "nemesis", "workloads"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and OWN.fullmatch(str(node.value)):
                    yield str(node.value)
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get":
                    yield from (str(name.value) for name in node.args[:1] if isinstance(name, ast.Constant))


def test_every_variable_that_is_read_is_listed() -> None:
    read = set(variables_read())
    assert {"JAVA_HOME", "HARNESS_CONFIG", "COMPACTION_HARNESS_CACHE"} <= read
    assert read - OTHERS - {name for name, _ in VARIABLES} == set()
