"""Audits on executors in separate processes, as on a Spark cluster."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from expected import STUCK_LSO
from generate import generate
from kept import Kept, kept_clusters
from sandbox import Going, Sandbox, command_line, make_spark_home, wait_until

from harness.broker_files.segments.blocks import WORTH_COMPILING_BYTES
from harness.errors import EXIT_ANOMALY, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from harness.host.leftovers import SPARK_MARKER

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
EXECUTORS = 2
EXECUTORS_S = 120


@dataclass(frozen=True)
class Diverged:
    """Copies from three brokers, one of which is wrong, and where commands on them run."""

    sandbox: Sandbox
    brokers: dict[int, Path]

    def audit(self, *more: str, servers: str | None = None) -> Going:
        """Start the audit on a cluster of this host: of the copies, or of the brokers at ``servers``."""
        cluster = ("--spark-master", f"local-cluster[{EXECUTORS},1,1024]")
        places = [word for broker, folder in self.brokers.items() for word in ("--broker", f"{broker}={folder}")]
        source = ["disk", *places] if servers is None else ["live", "--bootstrap-server", servers]
        return self.sandbox.start("audit", *source, "--topic", "*", *cluster, "--format", "json", *more)

    def executors(self) -> list[psutil.Process]:
        return [one for one in self.sandbox.processes() if EXECUTOR in command_line(one)]


@pytest.fixture
def diverged(make_sandbox: Callable[[str], Sandbox], monkeypatch: pytest.MonkeyPatch) -> Iterator[Diverged]:
    sandbox = make_sandbox("cluster")
    monkeypatch.setenv("SPARK_HOME", str(make_spark_home(sandbox)))
    yield Diverged(sandbox, generate(0, STUCK_LSO).write(sandbox.root / "copies"))
    sandbox.wait_until_nothing_is_left()


@pytest.mark.parametrize("is_big", [False, True])
def test_executors_find_what_was_planted(diverged: Diverged, *, is_big: bool) -> None:
    if is_big:
        # Preallocated room for records that are yet to come is read, too, and that by the reader for big files.
        log = max(next(iter(diverged.brokers.values())).glob("*/*.log"))
        os.truncate(log, WORTH_COMPILING_BYTES)
    going = diverged.audit()
    wait_until(lambda: len(diverged.executors()) == EXECUTORS, EXECUTORS_S, "the executors to start")
    assert all(SPARK_MARKER in command_line(one) for one in diverged.executors())
    ran = going.end(EXIT_ANOMALY)
    (planted,) = generate(0, STUCK_LSO).expected
    actual = [(one["anomaly"], one["broker"], one["offset"]) for one in ran.verdict["findings"]]
    assert actual == [(planted.anomaly, planted.broker, planted.offset)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_executors_go_with_an_audit_that_is_cut_off(diverged: Diverged, how: signal.Signals) -> None:
    going = diverged.audit()
    going.wait_for_stage(f"check {len(diverged.brokers)} replicas")
    assert diverged.executors()
    going.process.send_signal(how)
    assert going.end().code == (EXIT_INTERRUPTED if how == signal.SIGINT else -how)


kept = kept_clusters("stuck-lso", "kafka-4.4")


def test_executors_read_brokers(diverged: Diverged, kept: Kept) -> None:
    ran = diverged.audit(servers=kept.bootstrap).end(EXIT_ANOMALY)
    # A record of the filler may come before the transaction.
    actual = [(row["anomaly"], row["broker"], row["topic"]) for row in ran.verdict["findings"]]
    assert actual == [("stuck-lso", 2, "stuck-lso")]


def test_a_lost_executor_ends_the_audit_of_a_live_cluster(diverged: Diverged, kept: Kept) -> None:
    going = diverged.audit(servers=kept.bootstrap)
    going.wait_for_stage("check 5 replicas")
    diverged.executors()[0].kill()
    ran = going.end(EXIT_FAILED)
    assert "harness: Spark lost an executor, and with it data that were stored only there" in ran.stderr


def test_executors_that_cannot_work_are_reported(diverged: Diverged) -> None:
    ran = diverged.audit("--spark-conf", "spark.pyspark.python=/usr/bin/false").end(EXIT_USAGE)
    (actual,) = [line for line in ran.stderr.splitlines() if line.startswith("harness: ")]
    assert "executors on local-cluster[2,1,1024] cannot run this (each needs its wheel" in actual
