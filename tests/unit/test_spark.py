"""Spark's session beside other JVMs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from harness.errors import UsageError
from harness.spark.probe import probe

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


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
