"""The ``audit`` commands."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cloup

from harness.audit.live.request import AuditRequest
from harness.broker_files.segments.records import MAX_INT64
from harness.cli.options import common
from harness.cli.options import parameters as kinds
from harness.console import JSON, MB, TEXT, ConsoleProgress, is_verbose
from harness.errors import EXIT_CLEAN, EXIT_INTERRUPTED, EXIT_UNKNOWN, HarnessError, UsageError, interruptible
from harness.json_codec import to_json
from harness.judge.verdict import EXIT_CODES, Verdict
from harness.run_folder.store import AUDITS, VERDICT
from harness.spark.options import SparkOptions
from harness.suggest import quoted
from harness.terminal import stdout

NEEDS_DATA = common.SPARK_PARAMETERS | {"rate_limit_mb", "since", "until", "save", "spool_limit", "controllers"}
"""Parameters of ``audit live`` and ``watch`` that make no sense if no data is read."""


def time_ms(text: str) -> int:
    """Return milliseconds since the epoch of such a number, or of an ISO 8601 time. Raises `UsageError`."""
    if kinds.is_number(text, MAX_INT64):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{quoted(text)}: give a time such as 2026-01-31T12:00Z, or ms since the epoch") from error
    # Brokers take negative numbers for other questions, such as the end of the log.
    return max(int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000), 0)


UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def size_bytes(text: str) -> int:
    """Return the bytes of a size such as 4GiB or 500MB. Raises `UsageError`."""
    for unit, size in UNITS.items():
        number = text.removesuffix(unit)
        if number != text and kinds.is_number(number, MAX_INT64 // size) and int(number) > 0:
            return int(number) * size
    raise UsageError(f"{quoted(text)}: give a size such as 4GiB or 500MB ({', '.join(UNITS)})")


def broker_folder(text: str) -> tuple[int, str]:
    """Return broker and folder of ``ID=DIR``. Raises `UsageError` for any other text."""
    number, equals, folder = text.partition("=")
    if not (equals and kinds.is_number(number, kinds.MOST_BROKER) and folder.strip()):
        raise UsageError(f"{quoted(text)}: give it as ID=DIR, such as 1=/backup/broker-1")
    return int(number), folder


def parse_brokers(texts: Sequence[str], conf: Mapping[str, str]) -> dict[int, list[Path]]:
    """Return the folders of each broker id; ``conf``: Spark's settings. Raises `UsageError`."""
    from harness.broker_files.storage import place  # noqa: PLC0415

    brokers: dict[int, list[Path]] = {}
    for broker, folder in map(broker_folder, texts):
        brokers.setdefault(broker, []).append(place(folder, conf))
    return brokers


@dataclass(frozen=True)
class AuditFiles:
    """Where a verdict is written to. ``results``: a results folder, which gets a folder with ``verdict.json``."""

    file: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    results: Path | None = None

    def check(self) -> None:
        """Raise `UsageError` for a file that cannot be written, before anything is read."""
        folder = None if self.results is None else self.results / AUDITS
        kinds.raise_unless_writable(self.file, self.junit, self.html, folder=folder)

    def write(self, verdict: Verdict, repair: str) -> str | None:
        """Write the files; return the name of one with ``verdict.json``, if any. ``repair``: as in `show`.

        Raises `HarnessError` for a file that cannot be written.
        """
        from harness.report.audits import FILE, audit_page  # noqa: PLC0415  (slow imports, only where needed)
        from harness.report.junit import write_audit  # noqa: PLC0415

        stored = None if self.results is None else self.results / AUDITS / verdict.run_id / VERDICT
        try:
            if stored is not None:
                stored.parent.mkdir(parents=True)
            written = [path for path in (self.file, stored) if path is not None]
            for path in written:
                path.write_text(json.dumps(to_json(verdict), indent=2) + "\n")
            name = str(written[0]) if written else None
            if self.junit is not None:
                write_audit(self.junit, verdict)
            if self.html is not None:
                self.html.write_text(audit_page(verdict, name or FILE, repair))
        except OSError as error:
            raise HarnessError(f"{error.filename or 'a file of the verdict'}: {error.strerror}") from error
        return name


AUDITED, READING = map(common.Group, ("What to audit", "Reading"))
# fmt: off
TIME = kinds.Text(time_ms, metavar="TIME")
SIZE = kinds.Text(size_bytes, metavar="SIZE")
BROKER_FOLDER = kinds.Text(broker_folder, metavar="ID=DIR")
RATE_LIMIT = READING.option("--rate-limit-mb", kinds.MEGABYTES_A_SECOND,
                            "Megabytes per second, from all brokers together, at most.")
FILES = (
    common.OUTPUT.option("--output", kinds.FILE, "Also write the verdict to this file, as JSON.", name="file"),
    common.OUTPUT.option("--junit", kinds.FILE, "Also write JUnit XML with a test case for each partition."),
    common.OUTPUT.option("--html", kinds.FILE, "Also write an HTML page that needs no network."),
    common.OUTPUT.option("--results", kinds.DIRECTORY, "Also store the verdict in this folder, for `harness report`."),
)
DISK_OPTIONS = (
    common.topic_option(AUDITED),
    AUDITED.option("--broker", BROKER_FOLDER,
                   "Copy of a broker's log directory or of a partition's folder: local, s3a:// or hdfs://; repeatable, "
                   "also for the same broker.", name="brokers", multiple=True, required=True),
    *FILES,
)
LIVE_OPTIONS = (
    common.topic_option(AUDITED), common.BOOTSTRAP, common.CONFIG, common.CLUSTER_NAME, *common.CONTROLLERS,
    RATE_LIMIT,
    READING.option("--since", TIME,
                   "Read only records from this time on: ISO 8601 (UTC by default), or ms since the epoch."),
    READING.option("--until", TIME, "Read only records before this time."),
    READING.flag("--quick", "Read no data: compare what brokers and coordinators report, within seconds."),
    READING.option("--save", kinds.FilePath(metavar="DIR"),
                   "Keep the data that was read in a new folder.  [default: deleted at the end]"),
    *FILES,
    READING.option("--spool-limit", SIZE,
                   "Disk space for data, which is checked and deleted in parts. Not with --save.", default="4GiB"),
)
# fmt: on


@cloup.group()
def audit() -> None:
    """Compare the replicas of your own cluster."""


@common.command(
    "harness audit disk --topic 'orders-*' --broker 1=/copy/broker-1 --broker 2=/copy/broker-2",
    "harness audit disk --topic orders --broker 1=s3a://copies/broker-1 --broker 2=s3a://copies/broker-2 --format json",
    options=DISK_OPTIONS,
    of=audit,
    spark=True,
)
def disk(
    topics: tuple[str, ...], brokers: tuple[str, ...], output: str, spark: SparkOptions, **files: Path | None
) -> int:
    """Compare copies of the brokers' log directories. Needs no cluster.

    Exit codes: 0 clean, 1 anomaly, 2 unknown, 254 usage or set-up error, 255 failed.
    """
    from harness.audit.judge_copies import audit_disk  # noqa: PLC0415  (slow imports, only where needed)

    written = AuditFiles(**files)
    written.check()
    with closing(ConsoleProgress()) as progress:
        verdict = audit_disk(parse_brokers(brokers, spark.conf), topics, progress, spark)
    return show(verdict, output, written)


@common.command(
    "harness audit live --bootstrap-server kafka-1:9092 --topic 'orders-*'",
    "harness audit live --bootstrap-server kafka-1:9092 --topic 'orders-*' --quick",
    options=LIVE_OPTIONS,
    of=audit,
    spark=True,
)
def live(output: str, spark: SparkOptions, **reading: Any) -> int:
    """Compare the replicas of a running cluster. Read-only.

    Reads every replica from its own broker, while clients may write, and reads differences again to rule out ongoing
    writes. Needs Read and DescribeConfigs on the topics; reports more with Describe on the cluster, on groups and on
    transactional ids. --quick, --since and --until never give `clean`, because unread data may differ.

    Exit codes: 0 clean, 1 anomaly, 2 unknown, 254 usage or set-up error, 255 failed.
    """
    from harness.audit.explain.show import prefiltered_json, replica_table  # noqa: PLC0415
    from harness.audit.live.compare import InterruptedAudit, audit_live, audit_quickly  # noqa: PLC0415

    files = AuditFiles(**{field.name: reading[field.name] for field in fields(AuditFiles)})
    files.check()
    request, save = request_of(reading), reading["save"]
    login = f" --command-config {request.config}" if request.config else ""
    repair = f"--bootstrap-server {reading['bootstrap']}{login}"
    remaining = f"the data that was read is in {save}/" if save else "no data was stored (--save DIR stores it)"
    with closing(ConsoleProgress()) as progress:
        if not reading["quick"]:
            with interruptible(lambda: remaining):
                try:
                    return show(audit_live(request, progress, spark), output, files, repair)
                except InterruptedAudit as interrupt:
                    show(interrupt.verdict, output, files, repair, EXIT_INTERRUPTED)
                    raise
        verdict, prefiltered = audit_quickly(request, progress)
    if output == TEXT:
        stdout().table(replica_table(prefiltered.statuses))
    return show(replace(verdict, prefilter=prefiltered_json(prefiltered)), output, files, repair)


def request_of(reading: Mapping[str, Any]) -> AuditRequest:
    """Return what the parameters of ``audit live`` or ``watch`` ask for. Raises `UsageError` for contradictions."""
    if reading.get("quick"):
        common.leave_out(common.options_given() & NEEDS_DATA, "--quick reads no data")
    elif reading.get("save"):
        common.leave_out(common.options_given() & {"spool_limit"}, "--save stores all data at once")
    config, rate_mb, since, until = (reading.get(name) for name in ("config", "rate_limit_mb", "since", "until"))
    controllers, login = reading["controllers"], reading["controllers_config"]
    if login and not controllers:
        raise UsageError("--controllers-config is the login of --controllers HOST:PORT, which is missing")
    request = AuditRequest(
        common.addresses(reading["bootstrap"], config),
        reading["topics"],
        rate_limit_bytes_s=None if rate_mb is None else max(int(rate_mb * MB), 1),
        since_ms=None if since is None else time_ms(since),
        until_ms=None if until is None else time_ms(until),
        save=reading.get("save"),
        config=None if config is None else str(config),
        spool_limit_bytes=size_bytes(reading["spool_limit"]),
        controllers=common.addresses(controllers, login or config) if controllers else (),
    )
    if request.since_ms is not None and request.until_ms is not None and request.since_ms >= request.until_ms:
        raise UsageError(f"--since {since} is not before --until {until}")
    return request


@common.command(
    "harness audit exposure --bootstrap-server kafka-1:9092 --topic 'orders-*'",
    "harness audit exposure --bootstrap-server kafka-1:9092 --topic 'orders-*' --format json",
    options=(common.topic_option(AUDITED), common.BOOTSTRAP, common.CONFIG, common.CLUSTER_NAME),
    of=audit,
)
def exposure(topics: tuple[str, ...], bootstrap: str, config: Path | None, output: str) -> int:
    """List the replicas of a running cluster that are at risk, and since when. Read-only.

    Exit codes: 0 every topic is ok, 2 a topic is at risk or unknown, 254 usage or set-up error, 255 failed.
    """
    from harness.audit.explain.show import exposure_json, exposure_table  # noqa: PLC0415
    from harness.audit.live import exposure as exposures  # noqa: PLC0415
    from harness.audit.live.cluster import client_of, describe  # noqa: PLC0415

    ConsoleProgress().stage("ask the cluster")
    cluster = describe(client_of(common.addresses(bootstrap, config)), topics)
    result = exposures.exposure(cluster)
    if output == JSON:
        stdout().json(common.envelope(**exposure_json(result)))
    else:
        out = stdout()
        out.table(exposure_table(result))
        for note in (*result.notes, *cluster.selection):
            out.line(f"note: {note}")
    return EXIT_CLEAN if result.level == exposures.Level.OK and not result.notes else EXIT_UNKNOWN


def show(
    verdict: Verdict, output: str, files: AuditFiles | None = None, repair: str | None = None, code: int | None = None
) -> int:
    """Print an audit's verdict to stdout, write it to files, and return its exit code, or ``code``.

    ``repair``: options of `harness repair` for the cluster; None for an unknown address. Raises as `AuditFiles.write`.
    """
    from harness.audit.explain.show import show_audit  # noqa: PLC0415  (slow imports, only where needed)
    from harness.report.audits import ANY_CLUSTER  # noqa: PLC0415

    code, out, repair = EXIT_CODES[verdict.verdict] if code is None else code, stdout(), repair or ANY_CLUSTER
    file = (files or AuditFiles()).write(verdict, repair)
    if output == JSON:
        out.json(to_json(verdict))
        return code
    show_audit(out, verdict, repair, file=file, is_verbose=is_verbose())
    out.line(f"(exit code {code})")
    return code
