"""Spark's session next to other JVMs."""

from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from harness.errors import UsageError
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
    built = object()
    monkeypatch.setattr(SparkSession, "builder", type("Builder", (), {"getOrCreate": lambda _: built})())
    assert session_on(spark.sparkContext) is built
