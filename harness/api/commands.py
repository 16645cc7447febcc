"""The commands as functions: their keyword arguments are the options of the command line, with underscores.

``--time-limit 60`` is ``time_limit=60``, a flag is True, a repeatable option is a sequence, and an option of the form
``NAME=VALUE`` is a mapping. Values are checked, and defaults chosen, by the commands themselves; harness.toml is
read for ``cluster`` alone. Nothing is printed; a ``progress`` (`harness.judge.progress.Progress`) follows the stages.

Every function raises `harness.errors.HarnessError`; `UsageError`, which is one, before a broker starts or data is read.
Spark runs in this process: a function raises `UsageError` while another session of pyspark is active here.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, TypeAlias, TypedDict, Unpack

import click

from harness.audit.explain.show import prefiltered_json
from harness.cli.audit import disk, live, parse_brokers, request_of
from harness.cli.options.common import leave_out, options_given
from harness.cli.results import check as check_command
from harness.cli.run import carry_out
from harness.cli.run import run as run_command
from harness.console import ConsoleProgress
from harness.errors import UsageError
from harness.judge.progress import Progress
from harness.judge.verdict import RunResult, Verdict
from harness.spark.options import parse_spark

FilePath: TypeAlias = str | PathLike[str]
Settings: TypeAlias = Mapping[str, str | int]
OF_COMMANDS_ONLY = frozenset({"output", "file", "junit", "html"})


# fmt: off
SparkKeywords = TypedDict("SparkKeywords", {"spark_master": str, "spark_conf": Settings}, total=False)  # noqa: UP013
"""Options of every function."""
RunKeywords = TypedDict("RunKeywords", {  # noqa: UP013  (a table)
    "target": FilePath, "patch": FilePath, "anomaly": str, "schedule": FilePath, "nemesis": str, "client": str,
    "runtime": str, "nodes": str, "nodes_file": FilePath, "ssh_user": str, "ssh_port": int, "ssh_key": FilePath,
    "ssh_known_hosts": FilePath, "ssh_host_key": Sequence[str], "image": str, "command_config": FilePath,
    "timers": str, "brokers": int, "replication_factor": int, "partitions": int, "absent": int, "seed": int,
    "set": Settings, "time_limit": float, "application": str, "gate": bool, "gate_options": str, "guard": bool,
    "results": FilePath, "port_base": int, "resume": FilePath, "keep": bool,
    "spark_master": str, "spark_conf": Settings,
}, total=False)
"""Options of `run`."""
DiskKeywords = TypedDict("DiskKeywords", {  # noqa: UP013
    "topic": Sequence[str], "broker": Mapping[int, FilePath | Sequence[FilePath]],
    "spark_master": str, "spark_conf": Settings,
}, total=False)
"""Options of `audit_disk`. ``broker``: the folder of each broker's id, or several."""
LiveKeywords = TypedDict("LiveKeywords", {  # noqa: UP013
    "bootstrap_server": str, "topic": Sequence[str], "command_config": FilePath, "cluster": str, "controllers": str,
    "controllers_config": FilePath, "rate_limit_mb": float, "since": str | int, "until": str | int, "quick": bool,
    "save": FilePath, "spool_limit": str, "spark_master": str, "spark_conf": Settings,
}, total=False)
"""Options of `audit_live`."""
# fmt: on


def run(*, progress: Progress | None = None, **options: Unpack[RunKeywords]) -> RunResult:
    """Do as ``harness run``: boot a cluster, inject a fault, and judge the logs of all brokers.

    The result has the verdict, the run folder, and with ``keep`` the addresses of the brokers.
    """
    with _parameters(run_command, options) as parameters:
        return carry_out(parameters, progress or ConsoleProgress(is_quiet=True))


def check(
    run_dir: FilePath, *, partial: bool = False, progress: Progress | None = None, **options: Unpack[SparkKeywords]
) -> RunResult:
    """Do as ``harness check``: judge a stored run again."""
    from harness.play.check import check_folder  # noqa: PLC0415  (slow imports, only where needed)

    with _parameters(check_command, {**options, "partial": partial}, run_dir) as parameters:
        path, spark = parameters["run_dir"], parameters["spark"]
        return check_folder(path, progress or ConsoleProgress(is_quiet=True), spark, partial=parameters["partial"])


def audit_disk(*, progress: Progress | None = None, **options: Unpack[DiskKeywords]) -> Verdict:
    """Do as ``harness audit disk``: compare copies of the brokers' log directories."""
    from harness.audit.judge_copies import audit_disk as audit  # noqa: PLC0415  (slow imports, only where needed)

    with _parameters(disk, options) as parameters:
        spark = parameters["spark"]
        brokers = parse_brokers(parameters["brokers"], spark.conf)
        return audit(brokers, parameters["topics"], progress or ConsoleProgress(is_quiet=True), spark)


def audit_live(*, progress: Progress | None = None, **options: Unpack[LiveKeywords]) -> Verdict:
    """Do as ``harness audit live``: compare the replicas of a running cluster. Read-only."""
    from harness.audit.live import compare  # noqa: PLC0415  (slow imports, only where needed)

    with _parameters(live, options) as parameters:
        request = request_of(parameters)
        if not parameters["quick"]:
            return compare.audit_live(request, progress or ConsoleProgress(is_quiet=True), parameters["spark"])
        verdict, prefiltered = compare.audit_quickly(request, progress or ConsoleProgress(is_quiet=True))
        return replace(verdict, prefilter=prefiltered_json(prefiltered))


@contextmanager
def _parameters(command: click.Command, options: Mapping[str, Any], *arguments: FilePath) -> Iterator[dict[str, Any]]:
    """Yield the parameters that a command gets for these options. Raises `UsageError` as the command line does."""
    words = [*_words(options), "--", *map(str, arguments)]
    try:
        context = command.make_context(str(command.name), words)
    except click.ClickException as error:
        raise UsageError(error.format_message()) from error
    if (pyspark := sys.modules.get("pyspark")) and pyspark.SparkContext._active_spark_context is not None:  # noqa: SLF001
        raise UsageError("a Spark session is active in this process: end it with SparkSession.stop()")
    try:
        with context:
            ignored = OF_COMMANDS_ONLY if command is run_command else OF_COMMANDS_ONLY | {"results"}
            leave_out(options_given() & ignored, "functions return their result, and write no other files")
            parameters = {name: context.params[name] for name in context.params.keys() - OF_COMMANDS_ONLY}
            parameters["spark"] = parse_spark(parameters.pop("spark_master"), parameters.pop("spark_conf"))
            yield parameters
    finally:
        if "pyspark" in sys.modules:
            from harness.spark.workspace_session import forget  # noqa: PLC0415  (only where Spark was needed)

            forget()


def _words(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a command line."""
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            yield flag
        elif value is not None and value is not False:
            named = {f"{key}=": each for key, each in value.items()} if isinstance(value, Mapping) else {"": value}
            for key, content in named.items():
                several = [content] if isinstance(content, str) or not isinstance(content, Sequence) else content
                yield from (f"{flag}={key}{part}" for part in several)
