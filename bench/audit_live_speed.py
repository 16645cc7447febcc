"""The duration of `harness audit live` by number of partitions, next to a PySpark program that counts ten rows.

Three brokers on this host, each partition on all of them with a few records, and ten with a transaction. Each round
runs the program, the audit, which shares the processors with its brokers, and Kafka's ReplicaVerificationTool until it
reports no lag: nothing has been cleaned here, so the tool can compare batches.

    python bench/audit_live_speed.py --partitions 10 --partitions 3000 --rounds 3
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
from check_time import PROGRAM
from replica_verification import verify
from rich.console import Console
from rich.table import Table

from harness.clients import ClientError
from harness.clients.librdkafka import LibrdkafkaProducer
from harness.cluster.boot import booted_cluster, equip
from harness.errors import EXIT_CLEAN
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.sessions import CHECKS
from harness.kafka_api import TopicPartition
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import ClusterSpec, RuntimeRequest
from harness.spark import background
from harness.spark.background import make_archive
from harness.targets import find_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.cluster.cluster import Cluster

BROKERS = (1, 2, 3)
TARGET = "kafka-4.4"
BOUND_S = 300.0
KEYS = 3
HEAP = ("-Xmx1g",)
"""Brokers with thousands of partitions spend their time on garbage collection otherwise."""
PATIENT = {"message.timeout.ms": "120000"}
"""Brokers with thousands of new partitions take their time."""
TOPIC_PARTITIONS = 100
IN_TRANSACTION = 10
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "segment.index.bytes": "4096"}


def fill(cluster: Cluster, bootstrap: str, places: Sequence[TopicPartition]) -> None:
    """Write records to each partition once all replicas are in sync, outside and inside of a transaction."""
    topics = sorted({topic for topic, _ in places})
    cluster.wait(
        lambda: all(set(state.isr) == set(BROKERS) for state in cluster.admin.partitions(topics).values()),
        "every replica to be in its ISR",
    )
    plain = LibrdkafkaProducer(bootstrap, None, PATIENT)
    transactional = LibrdkafkaProducer(bootstrap, "bench", PATIENT)
    transactional.transact("init")

    def sent(error: ClientError | None, _offset: int) -> None:
        if error is not None:
            raise SystemExit(f"a record was not written: {error}")

    transactional.transact("begin")
    for place in places[:IN_TRANSACTION]:
        transactional.send(place, "t", "v", [], sent)
    transactional.flush()
    transactional.transact("commit")
    for start in range(0, len(places), TOPIC_PARTITIONS):
        for place in places[start : start + TOPIC_PARTITIONS]:
            for key in range(KEYS):
                plain.send(place, f"k{key}", "v", [], sent)
        plain.flush()


def measured(count: int, rounds: int) -> list[tuple[float, float, float]]:
    """Boot a cluster with so many partitions; return the seconds of program, audit and tool, round by round."""
    java = find_java()
    equipment = equip(RuntimeRequest(find_target(TARGET), java, lambda *_: None), LOCAL)
    run_id, here = f"bench-{new_run_id()}", {**os.environ, background.SWITCH: "0"}
    with tempfile.TemporaryDirectory() as top, Workspace(run_id, Path(top)) as workspace, ExitStack() as owned:
        spec = ClusterSpec(run_id, workspace.path, Path(top) / "logs", {}, BROKERS, jvm_flags=HEAP)
        cluster = owned.enter_context(booted_cluster(equipment, spec, settle_s=BOUND_S))
        places = [(f"bench-{n // TOPIC_PARTITIONS}", n % TOPIC_PARTITIONS) for n in range(count)]
        for topic in sorted({topic for topic, _ in places}):
            mine = {place: _rotated(place[1]) for place in places if place[0] == topic}
            cluster.admin.create_topics(mine, SETTINGS)
        cluster.wait_coordinator()
        bootstrap = ",".join(str(cluster.runtime.address(broker)) for broker in BROKERS)
        fill(cluster, bootstrap, places)
        audit = [sys.executable, "-m", "harness.cli.main", "audit", "live", "--bootstrap-server", bootstrap]
        commands = ([sys.executable, "-c", PROGRAM], [*audit, "--topic", "bench-*"])
        rows = []
        for _ in range(rounds):
            program_s, audit_s = (wall_s(command, here) for command in commands)
            verified = verify(bootstrap, "bench-.*")
            if verified.answer != "it agrees":
                raise SystemExit(f"ReplicaVerificationTool: {verified}")
            rows.append((program_s, audit_s, verified.took_s))
            seconds = ", ".join(f"{took_s:.1f} s" for took_s in rows[-1])
            print(f"{count} partitions: {seconds}", file=sys.stderr, flush=True)
        return rows


def wall_s(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the seconds of a command, which has to end with `clean`."""
    started_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    took_s = time.monotonic() - started_s
    if done.returncode != EXIT_CLEAN:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return took_s


def _rotated(number: int) -> tuple[int, ...]:
    first = number % len(BROKERS)
    return BROKERS[first:] + BROKERS[:first]


@click.command()
@click.option("--partitions", "counts", multiple=True, type=int, default=(10, 3000), show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(counts: tuple[int, ...], rounds: int) -> None:
    """Time audits of clusters with so many partitions each."""
    make_archive(find_java(), CHECKS, wait_s=background.LIMIT_S)
    names = ("PySpark, ten rows counted, s", "audit live, s", "ReplicaVerificationTool, s")
    table = Table("partitions", *names, "audit / PySpark", "audit / tool")
    for count in counts:
        rows = measured(count, rounds)
        seconds = (f"{median(column):.1f}" for column in zip(*rows, strict=True))
        ratios = (f"{median(row[1] / row[other] for row in rows):.2f}" for other in (0, 2))
        table.add_row(str(count), *seconds, *ratios)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
