"""`harness watch` on a cluster that diverged: it is killed, started again, loses Spark and its brokers, and ends."""

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest
import yaml
from documentation import ROOT
from kept import Kept, kept_clusters
from prometheus_client.parser import text_string_to_metric_families
from sandbox import Going, Sandbox, command_line, wait_until

from harness.audit.watch.status import PREFIX
from harness.errors import EXIT_CLEAN, EXIT_USAGE
from harness.host.clock import RealClock
from harness.host.leftovers import SPARK_MARKER

BOUND_S = 300
END_S = 20
EVERY_S = 3

Place = tuple[str, int]


kept = kept_clusters("stuck-lso,tombstone-divergence", "kafka-4.4")


class Watching:
    def __init__(self, sandbox: Sandbox, servers: str, *more: str) -> None:
        self.command = (
            "watch", "--bootstrap-server", servers, "--topic", "*", "--state", str(sandbox.root / "state"),
            "--every", str(EVERY_S), "--port", "0", *more,
        )  # fmt: skip
        self.going: Going = sandbox.start(*self.command)
        self.address = self.wait_for_line(r"watch: listens: (http://[^/]+)/")

    def wait_for_line(self, pattern: str) -> str:
        def printed() -> str:
            match = re.search(pattern, self.going._err.read_text())
            assert match or self.going.process.poll() is None, self.going.end().output
            return match[1] if match else ""

        return RealClock().wait_until(printed, BOUND_S, pattern)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"{self.address}{path}", timeout=10) as answer:  # noqa: S310  (of this test)
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def partitions(self) -> dict[Place, dict[str, Any]]:
        rows = json.loads(self.get("/partitions")[1])["partitions"]
        return {(row["topic"], row["partition"]): row for row in rows}

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Return the samples by name and label values, in the order of the labels' names."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        samples = (sample for family in families for sample in family.samples)
        return {(s.name.removeprefix(PREFIX), *(v for _, v in sorted(s.labels.items()))): s.value for s in samples}

    def wait_for_comparisons(self, since: dict[Place, dict[str, Any]]) -> dict[Place, dict[str, Any]]:
        """Wait until each partition was compared after ``since``."""

        def compared() -> dict[Place, dict[str, Any]]:
            assert self.going.process.poll() is None, self.going.end().output
            rows = self.partitions()
            before = {place: since.get(place, {}).get("compared_ms") or 0 for place in rows}
            return rows if all((row["compared_ms"] or 0) > before[place] for place, row in rows.items()) else {}

        return RealClock().wait_until(compared, BOUND_S, "every partition to be compared")


@pytest.fixture
def start(kept: Kept, sandbox: Sandbox) -> Iterator[Callable[..., Watching]]:
    started: list[Watching] = []

    def one(*more: str) -> Watching:
        started.append(Watching(sandbox, kept.bootstrap, *more))
        return started[-1]

    yield one
    for watching in started:
        if watching.going.process.poll() is None:
            watching.going.kill()


def verdicts_of(rows: dict[Place, dict[str, Any]]) -> dict[Place, str]:
    return {place: row["verdict"] for place, row in rows.items()}


def test_a_watch_finds_divergence_and_survives_kills(sandbox: Sandbox, start: Callable[..., Watching]) -> None:
    watching = start()
    rows = watching.wait_for_comparisons({})
    verdicts = {topic: verdict for (topic, _), verdict in verdicts_of(rows).items()}
    assert {"stuck-lso": "anomaly", "tombstone-divergence": "anomaly", "control": "clean"}.items() <= verdicts.items()
    (stuck,) = rows["stuck-lso", 0]["findings"]
    assert (stuck["anomaly"], stuck["broker"], stuck["effect"]) == ("stuck-lso", 2, "visible")
    assert next(iter(rows.values()))["verdict"] == "anomaly", "the worst first"
    metrics = watching.metrics()
    expected = {
        ("healthy",): 1, ("diverged_partitions", "stuck-lso"): 1, ("diverged_partitions", "tombstone-divergence"): 1,
        ("diverged_partitions", "aborted-to-committed"): 0, ("suspicions", "stuck-lso"): 1,
        ("undecided_partitions", "not-compared"): 0, ("replicas_at_risk", "frozen", "too late", "stuck-lso"): 1,
    }  # fmt: skip
    assert {name: metrics.get(name) for name in expected} == expected
    assert 0 < metrics["oldest_comparison_seconds",] < BOUND_S
    rules: Any = yaml.safe_load((ROOT / "compose/guard/alerts.yaml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for text in expressions for name in re.findall(rf"{PREFIX}(\w+)", text)}
    assert len(named) > 3
    assert named <= {name for name, *_ in metrics}
    code, page = watching.get("/")
    assert (code, "stuck-lso-0" in page, "http://" not in page) == (200, True, True)

    second = sandbox.call(*watching.command)
    assert (second.code, "another watch uses it" in second.stderr) == (EXIT_USAGE, True), second.output

    watching.going.process.send_signal(signal.SIGKILL)
    watching.going.end()
    sandbox.wait_until_nothing_is_left()
    watching = start("--rate-limit-mb", "0.01")
    assert verdicts_of(watching.partitions()) == verdicts_of(rows)
    assert watching.get("/health")[0] == 200
    again = watching.wait_for_comparisons(rows)
    assert verdicts_of(again) == verdicts_of(rows)

    spark = [p for p in sandbox.processes() if SPARK_MARKER in command_line(p)]
    assert len(spark) == 1
    spark[0].kill()
    watching.wait_for_comparisons(watching.wait_for_comparisons(again))
    assert watching.get("/health")[0] == 200

    watching.going.process.send_signal(signal.SIGTERM)
    assert watching.going.process.wait(END_S) == EXIT_CLEAN, watching.going.end().output
    sandbox.wait_until_nothing_is_left()


def test_an_outage_of_all_brokers_is_survived(sandbox: Sandbox, kept: Kept, start: Callable[..., Watching]) -> None:
    watching = start()
    compared = watching.wait_for_comparisons({})
    ports = {int(server.rpartition(":")[2]) for server in kept.addresses.values()}
    brokers = [p for p in psutil.process_iter() if ports & listening(p)]
    for broker in brokers:
        broker.suspend()
    try:
        wait_until(lambda: watching.get("/health")[0] == 503, BOUND_S, "the watch to be unhealthy")
        wait_until(lambda: watching.metrics()["check_failures_total",] >= 1, BOUND_S, "checks to fail")
        assert watching.partitions().keys() == compared.keys()
    finally:
        for broker in brokers:
            broker.resume()
    wait_until(lambda: watching.get("/health")[0] == 200, BOUND_S, "the watch to recover")
    watching.going.process.send_signal(signal.SIGINT)
    assert watching.going.process.wait(END_S) == EXIT_CLEAN, watching.going.end().output
    sandbox.wait_until_nothing_is_left()


def listening(process: psutil.Process) -> set[int]:
    try:
        return {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    except psutil.Error:
        return set()


def test_no_broker_at_the_start_is_a_usage_error(sandbox: Sandbox) -> None:
    state = sandbox.root / "state"
    ran = sandbox.call("watch", "--bootstrap-server", "127.0.0.1:1", "--state", str(state))
    assert (ran.code, "no broker answers" in ran.stderr) == (EXIT_USAGE, True), ran.output
    assert not Path(state).exists()
