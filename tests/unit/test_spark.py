"""Spark's session next to other JVMs, threads that share it, what users see of its jobs, and its Python workers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

from harness.errors import HarnessError, UsageError
from harness.spark.jobs import describe, failures_reported, name_call_sites, stages_reported, threads
from harness.spark.session import session_on
from harness.spark.workspace_session import probe


def test_exceptions_of_another_jvm_are_its_own(spark: SparkSession) -> None:
    # pyspark would convert them, by asking Spark's JVM about an object that the other one holds.
    port, token = launch_gateway(die_on_exit=True, enable_auth=True)[:2]
    other = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        with pytest.raises(Py4JJavaError, match="NumberFormatException"):
            other.jvm.java.lang.Integer.parseInt("no number")
    finally:
        other.shutdown()
    with pytest.raises(AnalysisException, match="no_such_column"):
        spark.range(1).select("no_such_column")


def test_folders_that_executors_do_not_see(spark: SparkSession, tmp_path: Path) -> None:
    probe(spark, [tmp_path])
    with pytest.raises(UsageError, match=f"executors do not see {tmp_path}/away: every folder has to be"):
        probe(spark, [tmp_path, tmp_path / "away"])


def test_columns_are_made_once(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    a, b = jvm.functions.col("a"), jvm.functions.col("b")
    assert jvm.functions.col("a") is a is not b
    assert [str(value) for value in (a, b)] == ["a", "b"]
    to_seq = jvm.PythonUtils.toSeq
    assert to_seq([a, b]) is to_seq([a, b])
    assert [to_seq(items).mkString(",") for items in ([a, b], [b, a], ["a"])] == ["a,b", "b,a", "a"]


def test_arguments_are_not_searched_for_arrays(spark: SparkSession) -> None:
    converters = spark.sparkContext._gateway._gateway_client.converters  # type: ignore[union-attr]
    assert converters
    assert not [value for value in converters if "Numpy" in type(value).__name__]


def test_a_constructor_of_pyspark_without_a_parameter_for_a_session_of_the_jvm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    constructor: Any = SparkSession.__init__

    def changed(self: SparkSession, context: Any, *, options: Any = None) -> None:
        constructor(self, context, options=options or {})

    monkeypatch.setattr(SparkSession, "__init__", changed)
    assert session_on(spark.sparkContext).range(3).count() == 3


def test_a_java_class_that_was_moved(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(self: SparkSession, context: Any, *rest: Any, **_: Any) -> None:
        del self
        context._jvm.org.apache.spark.sql.moved.SparkSession(*rest)

    monkeypatch.setattr(SparkSession, "__init__", changed)
    built = type("Built", (), {"conf": None})()
    monkeypatch.setattr(SparkSession, "builder", type("Builder", (), {"getOrCreate": lambda _: built})())
    assert session_on(spark.sparkContext) is built


def test_a_setting_that_spark_rejects_raises_before_the_first_query(spark: SparkSession) -> None:
    conf: Any = spark.sparkContext._jsc.sc().conf()
    before = conf.get("spark.sql.shuffle.partitions")
    conf.set("spark.sql.shuffle.partitions", "bad")
    try:
        with pytest.raises(IllegalArgumentException, match="The value 'bad' in the config"):
            session_on(spark.sparkContext)
    finally:
        conf.set("spark.sql.shuffle.partitions", before)


SETTING = "spark.sql.dataFrameQueryContext.enabled"


def test_a_thread_plans_by_the_settings_of_the_session(spark: SparkSession) -> None:
    """Otherwise each column that it makes asks the JVM for a stack trace, and each operator walks the stack."""
    jvm: Any = spark._jvm

    def answer(_: int) -> tuple[str, str | None]:
        conf = jvm.org.apache.spark.sql.internal.SQLConf.get()
        return conf.getConfString(SETTING), spark.sparkContext.getLocalProperty("callSite.short")

    with threads(spark, 2) as pool:
        assert list(pool.map(answer, range(2))) == [("false", "check")] * 2


def test_a_thread_describes_its_jobs_as_the_thread_that_made_it(spark: SparkSession) -> None:
    describe(spark, "compare")
    try:
        with threads(spark, 1) as pool:
            assert pool.submit(spark.sparkContext.getLocalProperty, "spark.job.description").result() == "compare"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
        name_call_sites(spark)


def test_running_stages_are_reported_with_their_tasks(spark: SparkSession, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    reports: list[tuple[str, int, int]] = []
    os.mkfifo(gate)

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        Path(gate).read_bytes()
        yield from batches

    def report(step: str, ended: int, count: int) -> None:
        if not reports:
            Path(gate).write_bytes(b"")
        reports.append((step, ended, count))

    with stages_reported(spark, report):
        describe(spark, "wait")
        spark.range(0, 1, 1, 1).mapInArrow(wait, "id long").collect()
        name_call_sites(spark)
    assert reports[0] == ("wait", 0, 1)


def test_data_that_went_with_an_executor_end_the_command_with_a_sentence(spark: SparkSession) -> None:
    stored = spark.sparkContext._jsc.getPersistentRDDs
    before = set(stored())
    rows = spark.range(3).localCheckpoint()
    for number in set(stored()) - before:
        stored()[number].unpersist()
    with pytest.raises(HarnessError, match=r"^Spark lost an executor, and with it data"), failures_reported():
        rows.collect()


def test_workers_do_without_pandas_and_know_how_to_read() -> None:
    code = (
        "import sys, checkers.workers, pyarrow; pyarrow.array(['a list']); "
        "print('pandas' in sys.modules, 'checkers.evidence.parse' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
