"""One Spark session for every test that needs one, as pyspark has one in a process; and which cases are generated."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from harness.spark import background
from harness.spark.launch import SparkSpec
from harness.spark.session import start_session

# Tests look at what commands leave behind, and measure none of them.
os.environ[background.SWITCH] = "0"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quality-seed", type=int, default=0, help="the first seed of each kind of generated case")
    parser.addoption("--quality-runs", type=int, default=None, help="number of seeds of each kind")
    parser.addoption("--quality-kind", action="append", help="of this kind of generated case alone; repeatable")
    parser.addoption("--mutants", action="append", help="all, or texts in their names; else a few of each module")


pytest_plugins = ["tiers", "needs", "failure_reports", "pytester"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    session = start_session(SparkSpec("tests", scratch / "scratch", scratch / "spark.log", outlives_jobs=True))
    yield session
    session.stop()
