"""``--spark-master`` and ``--spark-conf``, for every command that checks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import cloup

from harness.cli.options.parameters import Text
from harness.spark.options import LOCAL, parse_spark

if TYPE_CHECKING:
    from collections.abc import Callable

SPARK = cloup.OptionGroup("Spark")
PARAMETERS = frozenset({"spark_master", "spark_conf"})
"""Click's names for the two options."""


def spark_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add both options to a command, which gets ``spark``, a `SparkOptions`, in their place."""

    @cloup.option(
        "--spark-master",
        group=SPARK,
        type=Text(),
        default=LOCAL,
        show_default=True,
        metavar="URL",
        help="The Spark to check on: spark://HOST:PORT, yarn, k8s://URL, local[N].",
    )
    @cloup.option(
        "--spark-conf",
        group=SPARK,
        type=Text(),
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark's, such as memory; repeatable.",
    )
    @functools.wraps(command)
    def with_spark(*arguments: Any, spark_master: str, spark_conf: tuple[str, ...], **more: Any) -> int:
        return command(*arguments, spark=parse_spark(spark_master, spark_conf), **more)

    return with_spark
