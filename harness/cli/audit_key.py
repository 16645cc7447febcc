"""The command ``harness audit key``."""

import base64
import binascii
import shlex
from contextlib import closing
from typing import Any

from harness.cli.audit import AUDITED, BROKER_FOLDER, RATE_LIMIT, audit, parse_brokers
from harness.cli.options import common
from harness.cli.options.parameters import TOPIC, Text, is_number
from harness.console import JSON, MB, ConsoleProgress
from harness.errors import UsageError, raised_as
from harness.escape import unescape
from harness.json_codec import to_json
from harness.suggest import quoted
from harness.terminal import stdout

BASE64 = "base64:"
MOST_PARTITION = 2**31 - 1
OF_CLUSTERS = {"bootstrap", "cluster", "config", "rate_limit_mb"}


def parse_key(text: str) -> bytes:
    """Return the bytes of a key as commands print it, or after ``base64:``. Raises `UsageError`."""
    with raised_as(UsageError, quoted(text), ValueError, binascii.Error):
        if text.startswith(BASE64):
            return base64.b64decode(text.removeprefix(BASE64), validate=True)
        return unescape(text)


def parse_number(text: str) -> int:
    """Return a partition's number. Raises `UsageError`."""
    if not is_number(text, MOST_PARTITION):
        raise UsageError(f"{quoted(text)}: give a partition's number, such as 0")
    return int(text)


# fmt: off
OPTIONS = (
    AUDITED.option("--topic", TOPIC, "The topic.", name="topics", multiple=True, required=True),
    AUDITED.option("--key", Text(parse_key, metavar="KEY"),
                   r"The key as commands print it (bytes as \xff, a backslash as \\), or base64:….", required=True),
    AUDITED.option("--partition", Text(parse_number, metavar="N"),
                   "A partition to read; repeatable.  [default: the partitions that Java clients and librdkafka choose "
                   "for the key; all of copies and internal topics]", name="partitions", multiple=True),
    AUDITED.flag("--all-partitions", "Read every partition."),
    AUDITED.option("--broker", BROKER_FOLDER,
                   "Copy of a broker's log directory or of a partition's folder, instead of a cluster; repeatable.",
                   name="brokers", multiple=True),
    RATE_LIMIT,
    common.CLUSTER.option("--bootstrap-server", common.SERVERS, "Bootstrap brokers.  [this, or --broker]",
                          name="bootstrap"),
    common.CONFIG, common.CLUSTER_NAME,
)
# fmt: on


@common.command(
    "harness audit key --bootstrap-server kafka-1:9092 --topic orders --key customer-17",
    r"harness audit key --bootstrap-server kafka-1:9092 --topic orders --key '\x00\xff' --all-partitions",
    "harness audit key --broker 1=/copy/broker-1 --broker 2=/copy/broker-2 --topic orders --key base64:AP8=",
    options=OPTIONS,
    of=audit,
)
def key(topics: tuple[str, ...], key: str, brokers: tuple[str, ...], output: str, **options: Any) -> int:
    """Show the records of one key on each replica, and why they are served or not. Read-only.

    Answers "why is my delete still there?" and "why is it back?". Needs Read and DescribeConfigs on the topic.

    Exit codes: 0 the replicas agree, 1 they differ illegally, 2 unknown, 254 usage or set-up error, 255 failed.
    """
    from harness.audit.key.show import exit_code, key_json, show_key  # noqa: PLC0415  (slow imports, where needed)
    from harness.audit.live.cluster import GLOB, client_of, describe  # noqa: PLC0415

    if len(topics) > 1 or GLOB & set(topics[0]):
        raise UsageError("--topic: give the name of one topic")
    bootstrap, config, all_partitions = options["bootstrap"] or "", options["config"], options["all_partitions"]
    if options["partitions"] and all_partitions:
        raise UsageError("leave out --partition or --all-partitions")
    if brokers:
        common.leave_out(common.options_given() & OF_CLUSTERS, "--broker reads copies")
    if not (brokers or bootstrap):
        raise UsageError("give --bootstrap-server, or --broker ID=DIR for copies")
    topic, content, numbers = topics[0], parse_key(key), sorted(map(parse_number, options["partitions"]))
    where = f"disk {shlex.join(f'--broker={text}' for text in brokers)}"
    notes: tuple[str, ...]
    with closing(ConsoleProgress()) as progress:
        if brokers:
            from harness.audit.key.read import read_copies  # noqa: PLC0415

            read, notes = read_copies(parse_brokers(brokers, {}), topic, content, numbers)
        else:
            from harness.audit.key.read import read_live, usual_partitions  # noqa: PLC0415
            from harness.audit.live.reading import RateLimit  # noqa: PLC0415

            progress.stage("ask the cluster")
            cluster = describe(client_of(common.addresses(bootstrap, config)), [topic])
            every, notes = sorted(cluster.state.topics[topic].partitions), cluster.notes
            if missing := set(numbers) - set(every):
                raise UsageError(f"--partition {min(missing)}: {topic} has the partitions 0 to {len(every) - 1}")
            is_guessed = not (numbers or all_partitions or topic.startswith("__"))
            chosen = numbers or (usual_partitions(content, len(every)) if is_guessed else every)
            progress.stage(f"read {len(chosen)} of {len(every)} partitions")
            rate_mb = options["rate_limit_mb"]
            limit = RateLimit(max(int(rate_mb * MB), 1), cluster.client.clock) if rate_mb else None
            read = read_live(cluster, content, [(topic, number) for number in chosen], limit)
            if is_guessed and len(chosen) < len(every) and not any(r.log.count for p in read for r in p.replicas):
                notes += ("no record in the partitions of the usual partitioners: try --all-partitions",)
            login = ["--command-config", str(config)] if config else []
            where = shlex.join(["live", "--bootstrap-server", bootstrap, *login])
    code = exit_code(read)
    if output == JSON:
        fields = {"topic": topic, "key": to_json(content), "exit_code": code, "partitions": key_json(read)}
        stdout().json(common.envelope(**fields, notes=list(notes)))
        return code
    show_key(stdout(), content, read, f"harness audit {where} --topic {topic} --verbose")
    for note in notes:
        stdout().line(f"note: {note}")
    stdout().line(f"(exit code {code})")
    return code
