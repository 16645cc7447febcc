"""The ``watch`` command."""

from pathlib import Path
from typing import Any

from harness.cli.audit import READING, size_bytes
from harness.cli.options import common
from harness.cli.options.parameters import DIRECTORY, MEGABYTES_A_SECOND, PORT, Number, Text
from harness.console import MB, ConsoleProgress, print_progress
from harness.spark.options import SparkOptions

LEAST_S, MOST_S = 1.0, 86_400.0
WATCHING = common.Group("Watching")


@common.command(
    "harness watch --bootstrap-server kafka-1:9092,kafka-2:9092 --state /var/lib/compaction-watch",
    "harness watch --bootstrap-server kafka-1:9092 --topic 'orders-*' --state watch --rate-limit-mb 50 --port 9465",
    formats=False,
    spark=True,
)
@common.topic_option(common.Group("What to audit"))
@common.bootstrap_option()
@common.config_option
@common.cluster_option
@common.controllers_option
@common.controllers_config_option
@WATCHING.option(
    "--state", DIRECTORY, "Folder with the latest verdict of each partition; created if missing.", required=True
)
@WATCHING.option("--every", Number(LEAST_S, MOST_S, "S"), "Polling interval in seconds.", default=60.0)
@WATCHING.option("--listen", Text(metavar="HOST"), "Address of the endpoint.", default="127.0.0.1")
@WATCHING.option("--port", PORT, "Port of the endpoint; 0 chooses a free port.", default=9465)
@READING.option(
    "--rate-limit-mb", MEGABYTES_A_SECOND, "Megabytes per second, from all brokers together, at most.", default=10.0
)
@READING.option(
    "--spool-limit",
    Text(size_bytes, metavar="SIZE"),
    "Disk space for data, which is checked and deleted in parts.",
    default="1GiB",
)
def watch(topics: tuple[str, ...], bootstrap: str, config: Path | None, spark: SparkOptions, **options: Any) -> int:
    """Audit a running cluster continuously. Read-only.

    Looks for frozen replicas and replicas at risk every minute. Meanwhile it compares all partitions in full, suspected
    partitions first, then the oldest comparison.

    Serves a page at /, the latest verdict of each partition at /partitions (JSON), /metrics for Prometheus, and
    /health.

    Exit codes: 0 ended by a signal, 254 usage or set-up error, or no broker answers at the start, 255 failed.
    """
    from harness.audit.live.compare import AuditRequest  # noqa: PLC0415  (slow imports, only where needed)
    from harness.audit.watch.run import watch_until_signal  # noqa: PLC0415

    request = AuditRequest(
        common.addresses(bootstrap, config),
        topics,
        rate_limit_bytes_s=max(int(options["rate_limit_mb"] * MB), 1),
        config=None if config is None else str(config),
        spool_limit_bytes=size_bytes(options["spool_limit"]),
        controllers=common.controller_addresses(options, config),
    )
    return watch_until_signal(
        request,
        every_s=options["every"],
        state=options["state"],
        listen=(options["listen"], options["port"]),
        spark=spark,
        progress=ConsoleProgress(is_quiet=True),
        report=print_progress,
    )
