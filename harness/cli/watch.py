"""The ``watch`` command."""

from typing import Any

from harness.cli.audit import NEEDS_DATA, READING, SIZE, request_of
from harness.cli.options import common
from harness.cli.options.parameters import DIRECTORY, MEGABYTES_A_SECOND, PORT, Number, Text
from harness.console import ConsoleProgress, print_progress
from harness.spark.options import SparkOptions

WATCHING = common.Group("Watching")
# fmt: off
OPTIONS = (
    common.topic_option(common.Group("What to audit")),
    common.BOOTSTRAP, common.CONFIG, common.CLUSTER_NAME, *common.CONTROLLERS,
    WATCHING.option("--state", DIRECTORY, "Folder with the latest verdict of each partition; created if missing.",
                    required=True),
    WATCHING.option("--every", Number(1, 86_400, "S"), "Polling interval in seconds.", default=60.0),
    WATCHING.option("--listen", Text(metavar="HOST"), "Address of the endpoint.", default="127.0.0.1"),
    WATCHING.option("--port", PORT, "Port of the endpoint; 0 chooses a free port.", default=9465),
    WATCHING.flag("--checks-only", "Only the checks that take seconds, which need neither Spark nor Java."),
    READING.option("--rate-limit-mb", MEGABYTES_A_SECOND, "Megabytes per second, from all brokers together, at most.",
                   default=10.0),
    READING.option("--spool-limit", SIZE, "Disk space for data, which is checked and deleted in parts.",
                   default="1GiB"),
)
# fmt: on


@common.command(
    "harness watch --bootstrap-server kafka-1:9092,kafka-2:9092 --state /var/lib/compaction-watch",
    "harness watch --bootstrap-server kafka-1:9092 --topic 'orders-*' --state watch --rate-limit-mb 50 --port 9465",
    options=OPTIONS,
    formats=False,
    spark=True,
)
def watch(spark: SparkOptions, **options: Any) -> int:
    """Audit a running cluster continuously. Read-only.

    Looks for frozen replicas and replicas at risk every minute. Meanwhile it compares all partitions in full, suspected
    partitions first, then the oldest comparison; not with --checks-only.

    Serves a page at /, the latest verdict of each partition at /partitions (JSON), /metrics for Prometheus, and
    /health.

    Exit codes: 0 ended by a signal, 254 usage or set-up error, or no broker answers at the start, 255 failed.
    """
    if options["checks_only"]:
        common.leave_out(common.options_given() & NEEDS_DATA, "--checks-only compares nothing")
    from harness.audit.watch.run import watch_until_signal  # noqa: PLC0415  (slow imports, only where needed)

    return watch_until_signal(
        request_of(options),
        every_s=options["every"],
        state=options["state"],
        listen=(options["listen"], options["port"]),
        spark=None if options["checks_only"] else spark,
        progress=ConsoleProgress(is_quiet=True),
        report=print_progress,
    )
