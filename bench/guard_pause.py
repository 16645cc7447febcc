"""How soon does the guard pause compaction, and what does it ask of a cluster where nothing happens?

    python bench/guard_pause.py --target kafka-4.4 --topics 1000 --rounds 3 --results DIR

Boots three brokers with so many compacted topics of one partition on all of them, and starts ``harness guard`` with its
defaults. In each round broker 2 is killed; prints the seconds from the replica's leave from the ISR, as another broker
answers, to the event that the last topic is paused, and from its return to the last release; and the guard's requests
per second while all is well, by its own metric. The brokers share this machine with the guard.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import click

from harness.cluster.boot import booted_cluster, equip
from harness.errors import HarnessError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.run_folder.guard_events import GuardEventKind
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import ClusterSpec, RuntimeRequest, bootstrap_servers
from harness.targets import find_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.cluster.cluster import Cluster
    from harness.kafka_api.admin import Admin

BROKERS = (1, 2, 3)
BOUND_S = 180.0
AT_ONCE = 100
IDLE_S = 20.0


def isr_of(admin: Admin, topics: Sequence[str]) -> set[frozenset[int]]:
    """Return the different ISRs of the topics; none while nobody answers."""
    try:
        return {frozenset(state.isr) for state in admin.partitions(topics).values()}
    except HarnessError:
        return set()


def events(path: Path, kind: GuardEventKind) -> list[dict[str, Any]]:
    """Return the guard's events of a kind."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [one for one in map(json.loads, lines) if one["event"] == kind]


def requests(path: Path) -> float:
    """Return how many requests the guard has sent, by its metrics."""
    (listens,) = events(path, GuardEventKind.LISTENS)
    url = str(listens["what"]).split(" ", 1)[0]
    with urlopen(url, timeout=10) as answer:  # noqa: S310  (its own loopback address)
        text = answer.read().decode()
    found = re.search(r"^\w*requests\w* ([\d.e+]+)$", text, re.MULTILINE)
    if found is None:
        raise click.ClickException("the guard has no metric of its requests")
    return float(found[1])


def one_round(cluster: Cluster, names: Sequence[str], path: Path, number: int) -> None:
    """Kill broker 2 and start it again; print how long pausing and releasing took."""
    before = {kind: len(events(path, kind)) for kind in (GuardEventKind.PAUSED, GuardEventKind.RELEASED)}
    cluster.runtime.kill(2)
    cluster.wait(lambda: frozenset(BROKERS) not in isr_of(cluster.admin, names), "the replica to leave every ISR")
    left_ms = cluster.clock.time_ms()
    cluster.wait(
        lambda: len(events(path, GuardEventKind.PAUSED)) >= before[GuardEventKind.PAUSED] + len(names),
        "every topic to be paused",
    )
    paused_ms = max(one["time_ms"] for one in events(path, GuardEventKind.PAUSED))
    cluster.runtime.start(2)
    cluster.wait(lambda: isr_of(cluster.admin, names) == {frozenset(BROKERS)}, "the replica to be in every ISR")
    back_ms = cluster.clock.time_ms()
    cluster.wait(
        lambda: len(events(path, GuardEventKind.RELEASED)) >= before[GuardEventKind.RELEASED] + len(names),
        "every topic to be released",
    )
    released_ms = max(one["time_ms"] for one in events(path, GuardEventKind.RELEASED))
    paused_s, released_s = (paused_ms - left_ms) / 1000, (released_ms - back_ms) / 1000
    print(f"{number}: last of {len(names)} topics paused after {paused_s:.1f} s, released after {released_s:.1f} s")


@click.command()
@click.option("--target", default="kafka-4.4", show_default=True)
@click.option("--topics", type=click.IntRange(1, 10_000), default=1_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--interval", "interval_s", type=float, default=2.0, show_default=True, help="The guard's.")
@click.option("--results", type=click.Path(path_type=Path), required=True)
def main(target: str, topics: int, rounds: int, interval_s: float, results: Path) -> None:
    """Measure, and print."""
    results.mkdir(parents=True, exist_ok=True)
    path, names = results / "guard.jsonl", [f"many-{number}" for number in range(topics)]
    path.unlink(missing_ok=True)
    with Workspace(f"bench-{new_run_id()}", results) as workspace:
        settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
        # The runtime gives brokers of a run so little memory that a thousand topics exhaust it.
        spec = ClusterSpec(workspace.run_id, workspace.path, results, settings, BROKERS, jvm_flags=("-Xmx2g",))
        equipment = equip(RuntimeRequest(find_target(target), find_java(), lambda *_: None), LOCAL)
        with booted_cluster(equipment, spec, settle_s=BOUND_S) as cluster:
            admin = cluster.admin
            for begin in range(0, topics, AT_ONCE):
                new = {(name, 0): BROKERS for name in names[begin : begin + AT_ONCE]}
                admin.create_topics(new, {"cleanup.policy": "compact"})
            cluster.wait(lambda: isr_of(admin, names) == {frozenset(BROKERS)}, "every replica to be in sync")
            guard = subprocess.Popen(
                [sys.executable, "-m", "harness.cli.main", "guard",
                 "--bootstrap-server", bootstrap_servers(cluster.runtime),
                 "--interval", str(interval_s), "--port", "0", "--events", str(path), "--quiet"],
            )  # fmt: skip
            try:
                cluster.wait(lambda: bool(events(path, GuardEventKind.READY)), "the guard to be ready")
                asked, began_s = requests(path), cluster.clock.now_s()
                time.sleep(IDLE_S)
                per_second = (requests(path) - asked) / (cluster.clock.now_s() - began_s)
                print(f"{target}, {topics} topics, an interval of {interval_s:g} s: {per_second:.1f} idle requests/s")
                for number in range(1, rounds + 1):
                    one_round(cluster, names, path, number)
            finally:
                guard.send_signal(signal.SIGTERM)
                code = guard.wait(BOUND_S)
            print(f"the guard ended with {code}")


if __name__ == "__main__":
    main()
