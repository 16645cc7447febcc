"""Threads that share a session."""

from typing import Any

from pyspark.sql import SparkSession

from harness.spark.threads import threads

SETTING = "spark.sql.dataFrameQueryContext.enabled"


def test_a_thread_plans_by_the_settings_of_the_session(spark: SparkSession) -> None:
    """Otherwise each column that it makes asks the JVM for a stack trace, and each operator walks the stack."""
    jvm: Any = spark._jvm

    def answer(_: int) -> tuple[str, str | None]:
        conf = jvm.org.apache.spark.sql.internal.SQLConf.get()
        return conf.getConfString(SETTING), spark.sparkContext.getLocalProperty("callSite.short")

    with threads(spark, 2) as pool:
        assert list(pool.map(answer, range(2))) == [("false", "check")] * 2
