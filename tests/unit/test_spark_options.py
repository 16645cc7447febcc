"""The options of Spark, its settings, and the message if no session can be started."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from harness.errors import UsageError
from harness.host import leftovers
from harness.host.leftovers import SPARK_MARKER
from harness.spark import launch, workspace_session
from harness.spark.launch import SparkJobs, SparkSpec, options_of
from harness.spark.options import LOCAL, SparkOptions, parse_spark, public
from harness.spark.workspace_session import session_of

CLUSTER = "spark://master:7077"


@pytest.mark.parametrize(("master", "pair", "expected"), [
    (LOCAL, "spark.executor.memory", "give spark.NAME=VALUE"),
    (LOCAL, "executor.memory=1g", "give spark.NAME=VALUE"),
    (LOCAL, "=1g", "give spark.NAME=VALUE"),
    (LOCAL, "spark.master=yarn", "the harness sets spark.master itself"),
    (LOCAL, "spark.speculation=true", "a copy of a task would read a broker again"),
    (LOCAL, "spark.sql.warehouse.dir=/tmp", "the harness sets spark.sql.warehouse.dir itself"),
    ("mesos://a:1", "spark.a=b", "--spark-master mesos://a:1: give spark://HOST:PORT"),
    ("local[0x2]", "spark.a=b", "give spark://HOST:PORT"),
    ("spark://", "spark.a=b", "give spark://HOST:PORT"),
    ("spark://a:port", "spark.a=b", "--spark-master spark://a:port: Port could not be cast"),
    ("yarn", "spark.a=b", "set HADOOP_CONF_DIR or YARN_CONF_DIR"),
])  # fmt: skip
def test_invalid_options_are_reported(master: str, pair: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError) as caught:
        parse_spark(master, [pair])
    assert expected in str(caught.value)


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1,127.0.0.1:1", "k8s://https://127.0.0.1:1"])
def test_a_master_that_nobody_is_at(master: str) -> None:
    with pytest.raises(UsageError, match=f"{master} cannot be reached: 127.0.0.1:1: Connection refused"):
        parse_spark(master, [])


@pytest.mark.parametrize(("master", "is_on_this_host", "has_executors"), [
    ("local", True, False), ("local[*]", True, False), ("local[4,2]", True, False),
    ("local-cluster[2,1,1024]", True, True), ("yarn", False, True),
])  # fmt: skip
def test_masters_that_there_are(
    master: str, monkeypatch: pytest.MonkeyPatch, *, is_on_this_host: bool, has_executors: bool
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    options = parse_spark(master, ["spark.a = b=c "])
    assert options.conf == {"spark.a": "b=c"}
    assert (options.is_on_this_host, options.has_executors) == (is_on_this_host, has_executors)


def spec(master: str = LOCAL, **conf: str) -> SparkSpec:
    named = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    return SparkSpec("run-1", Path("/scratch"), Path("/log"), options=SparkOptions(master, named))


def test_a_session_of_this_host_stays_on_loopback() -> None:
    set_ = options_of(spec())
    assert (set_["spark.driver.host"], set_["spark.driver.memory"]) == ("127.0.0.1", launch.DRIVER_MEMORY)
    flags = set_["spark.driver.extraJavaOptions"].split()
    assert {"-Dharness.run=run-1", SPARK_MARKER, *launch.HEAP_FLAGS} <= set(flags)
    assert set_["spark.executor.extraJavaOptions"].split() == ["-Dharness.run=run-1", SPARK_MARKER]
    on_cluster = options_of(spec(CLUSTER))
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & on_cluster.keys(), "it finds its driver itself"


def test_what_a_user_sets_wins() -> None:
    mine = {"driver_host": "me", "driver_memory": "512m", "driver_extraJavaOptions": "-Da=b"}
    set_ = options_of(spec(CLUSTER, **mine, sql_shuffle_partitions="9"))
    actual = [set_[f"spark.{name}"] for name in ("driver.host", "driver.memory", "sql.shuffle.partitions", "local.dir")]
    assert actual == ["me", "512m", "9", "/scratch"]
    theirs = {"spark.local.dir": "/fast", "spark.ui.enabled": "true"}
    assert theirs.items() <= options_of(spec(CLUSTER, local_dir="/fast", ui_enabled="true")).items()
    flags = set_["spark.driver.extraJavaOptions"].split()
    # A heap that starts with more than it may have is refused by the JVM.
    assert flags[-1] == "-Da=b"
    assert not [flag for flag in flags if flag.startswith("-Xm")]
    assert SPARK_MARKER in flags


@pytest.mark.parametrize(("master", "conf", "variable", "is_stopped"), [
    (LOCAL, {}, "TMP", False), (LOCAL, {"spark.local.dir": "/fast"}, "TMP", True),
    (LOCAL, {}, "SPARK_LOCAL_DIRS", True), (CLUSTER, {}, "TMP", True),
])  # fmt: skip
def test_a_session_is_stopped_if_it_leaves_something_outside_the_workspace(
    master: str, conf: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    monkeypatch.setenv(variable, "/fast")
    session, ended = Mock(), Mock()
    for module, name, value in ((leftovers, "end_processes", ended), (workspace_session, "start", lambda *_: session)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(workspace_session, "find_archive", lambda *_: None)
    with session_of(Mock(path=Path("/w")), Mock(), SparkOptions(master, conf), [], SparkJobs("a:b", "c")):
        pass
    assert (session.stop.called, ended.called) == (is_stopped, True)


def test_secrets_are_kept_off_the_command_line() -> None:
    names = {f"spark.hadoop.fs.s3a.{name}" for name in ("access.key", "secret.key", "session.token", "endpoint")}
    assert names & public(dict.fromkeys(names, "x")).keys() == {"spark.hadoop.fs.s3a.endpoint"}


@pytest.mark.parametrize(("asked", "python"), [
    (SparkOptions(), sys.executable),
    (SparkOptions(CLUSTER), "theirs"),
    (SparkOptions(CLUSTER, {"spark.pyspark.python": "named"}), "named"),
    (SparkOptions(LOCAL, {"spark.pyspark.python": "named"}), "named"),
])  # fmt: skip
def test_the_python_of_workers(asked: SparkOptions, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PYSPARK_PYTHON": "theirs"}
    monkeypatch.setattr("harness.spark.launch.os.environ", environment)
    launch.set_environment(asked)
    assert environment["PYSPARK_PYTHON"] == python
    assert ("SPARK_LOCAL_IP" in environment) == asked.is_on_this_host


def test_the_python_in_an_archive_of_workers_is_this_one_for_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    launch.write_driver_python(replace(spec(CLUSTER), scratch_dir=tmp_path))
    program = "import sys; print(sys.prefix, *sys.argv[1:])"
    output = subprocess.check_output([tmp_path / "env/bin/python", "-c", program, "a b"], text=True)
    assert output == f"{sys.prefix} a b\n"


def test_a_cluster_without_room_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def start(*_: object) -> Any:
        assert ended.wait(30), "a session only comes to an end where its JVM is ended"
        raise ConnectionError("the JVM is gone")

    monkeypatch.setattr("harness.spark.session.start_session", start)
    monkeypatch.setattr(leftovers, "end_processes", lambda *_args, **_named: ended.set())
    monkeypatch.setattr(workspace_session, "START_LIMIT_S", 0.01)
    with pytest.raises(UsageError, match=r"^Spark does not start on spark://master:7077: not within 0 s; do its"):
        workspace_session.start(spec(CLUSTER), launch.SparkJobs("json:loads", workers=""), [])


@pytest.mark.parametrize(("cause", "error", "log"), [
    ("ImportError: no y",
     "An error\n: org.SparkException: outer\nFile x\n  ImportError: no y\nPATH\norg.SparkException: EOF", ""),
    ("busy", ": java.lang.IllegalStateException: stopped", "WARN a\n12 ERROR Some: busy\n13 ERROR Other: later\n"),
    ("a.BException: 1x", "the gateway exited", "WARN a\nException in x a.BException: 1x\n\tat x.Exception\n"),
    ("a.InnerError: y", "error\n: a.OuterException: x\n\tat a.b\nCaused by: a.InnerError: y\n\t... 3 more", ""),
    ("b; Invalid; Error: A", "the gateway exited", "a\nb\nInvalid\nError: A"),
    ("RuntimeError", "", ""),
])  # fmt: skip
def test_the_cause_that_is_reported(cause: str, error: str, log: str, tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    path.write_text(log)
    assert workspace_session._cause(RuntimeError(error), path) == cause
