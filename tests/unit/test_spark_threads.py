"""Threads that share a session, and what users see of its jobs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.errors import HarnessError
from harness.spark.jobs import describe, failures_reported, name_call_sites, stages_reported, threads

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
