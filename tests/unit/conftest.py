"""One Spark session for every test that needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.spark import SparkSpec, start_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    session = start_session(SparkSpec("unit-tests", scratch_dir=scratch / "scratch", log_path=scratch / "spark.log"))
    yield session
    session.stop()
