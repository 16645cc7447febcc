"""Kafka's ReplicaVerificationTool next to `harness audit live`, on one cluster with diverged and healthy partitions.

    python bench/replica_verification.py --partitions 24 --seed 1 --evidence DIR

The cluster is that of `bench/blame.py`, at rest, each partition a topic of its own: the clients of a round know which
partitions diverged. The tool compares the batches of all replicas one by one, without an end, and exits at the first
different offset: it runs once for all topics, until it exits or reports no lag, and once for each topic.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from blame import audit_live, replicas_of
from random_outages import Round, played
from random_traffic import load_client_log
from rich.console import Console
from rich.table import Table

from harness.host.cache import cache_root
from harness.host.java import find_java
from harness.soak.judge.truth import compare
from harness.targets.jars import fetch_locked, materialise
from harness.targets.lock import read_digests

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOL = "org.apache.kafka.tools.ReplicaVerificationTool"
LOCK = Path(__file__).parents[1] / "tests/real/kafka-tools-4.4.0.lock"
LONGEST_S = 60.0
DIFFERS = re.compile(r"partition (\S+?)(?: has unmatched checksum|: replica \d+'s offset)")
EXITS, AGREES = "doesn't match", "max lag is 0 "
AUDITED = {"anomaly": "it differs", "clean": "it agrees", "unknown": "no answer"}


class Verified(NamedTuple):
    """The answer of the tool, the partitions that it names as different, its last line, and the seconds until then."""

    answer: str
    named: frozenset[str]
    line: str
    took_s: float


def verify(bootstrap: str, topics: str) -> Verified:
    """Run the tool on topics, a regular expression, from their first offsets until it exits or reports no lag."""
    jars = materialise(read_digests(LOCK), cache_root() / "jars" / "tools-4.4.0", fetch_locked)
    options = ["--broker-list", bootstrap, "--topics-include", topics, "--time", "-2", "--report-interval-ms", "1"]
    started_s, line, answer = time.monotonic(), "", "no answer"
    named: set[str] = set()
    with _ended([str(find_java().path), "-Xmx256m", "-cp", jars.classpath, TOOL, *options]) as process:
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            named.update(DIFFERS.findall(line))
            if EXITS in line or AGREES in line:
                answer = "it differs" if named else "it agrees"
                break
    return Verified(answer, frozenset(named), line.strip(), time.monotonic() - started_s)


@contextmanager
def _ended(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command, and kill it at the end of the block, and after `LONGEST_S`."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        timer = threading.Timer(LONGEST_S, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


@click.command()
@click.option("--target", default="kafka-4.4", show_default=True)
@click.option("--partitions", default=24, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--evidence", type=click.Path(path_type=Path), required=True, help="Folder that keeps the round.")
def main(target: str, partitions: int, seed: int, evidence: Path) -> None:
    """Play a round, and have both commands say which partitions diverged."""
    folder = (evidence / f"{target}-{seed}").absolute()
    with played(Round(target, seed, partitions, topics=partitions), folder) as round_:
        started_s = time.monotonic()
        verdict = audit_live(round_.bootstrap)
        audit_s = time.monotonic() - started_s
        whole = verify(round_.bootstrap, "blame-.*")
        each = {topic: verify(round_.bootstrap, topic) for topic in (f"blame-{n}" for n in range(partitions))}
    diverged = {topic for topic, _ in compare(load_client_log(folder / "clients.json"), replicas_of(folder)).diverged}
    audited = {scenario["topic"]: AUDITED[scenario["verdict"]] for scenario in verdict["scenarios"]}
    answers = ("it differs", "it agrees", "no answer")
    table = Table("", "partitions", *(f"{command}: {answer}" for command in ("tool", "audit") for answer in answers))
    for name, topics in (("diverged", diverged), ("healthy", each.keys() - diverged)):
        said = [Counter(each[topic].answer for topic in topics), Counter(audited[topic] for topic in topics)]
        table.add_row(name, str(len(topics)), *(str(counts[answer]) for counts in said for answer in answers))
    console = Console(width=160)
    console.print(table)
    tool_s = sum(verified.took_s for verified in each.values())
    console.print(f"audit of all: {audit_s:.1f} s. Tool, topic by topic: {tool_s:.1f} s, {tool_s / audit_s:.1f} x")
    named = sum(f"{topic}-0" in whole.named for topic in diverged)
    text = f"{named} diverged, {len(whole.named) - named} healthy partitions named after {whole.took_s:.1f} s"
    console.print(f"Tool, all topics: {text}: {whole.line}", markup=False, soft_wrap=True)
    for topic, verified in sorted(each.items()):
        name = "diverged" if topic in diverged else "healthy"
        console.print(f"{topic} ({name}): {verified.took_s:.1f} s, {verified.line}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
