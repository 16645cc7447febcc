"""Metrics and health of the guard: scrapes, an unhealthy guard, and observed sizes of paused topics' logs."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import click
import pytest
from fakes.clock import TickingClock
from prometheus_client.parser import text_string_to_metric_families

from harness.audit.live.cluster import AuditedCluster
from harness.cli.protect import guard
from harness.cli.watch import watch
from harness.errors import HarnessError, UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.protect.guard.journal import Pause, PausePhase, PauseState
from harness.protect.guard.run import PREFIX, GuardObserver, Observation, families, growth, health, unhealthy
from harness.protect.guard.service import GuardStatus
from harness.report.endpoint import Endpoint

NOW_MS = 100_000
HELD = PauseState({"t": Pause("t", PausePhase.PAUSED, "c", {}, 40_000)}, {"t": frozenset({"repair 7c1f"})})
STATUS = GuardStatus(
    interval_s=2.0, leads=True, round_ms=99_000, rounds=7, requests=21, covered=frozenset("tu"), away={"t": 1},
    adding={"u": 2}, retention_left_s={"t": 17.5}, state=HELD, skipped={"s": "refused"},
)  # fmt: skip
OBSERVED = Observation(90_000, {"t": 4096}, {"t": 64.0}, "sizes of logs are unknown on broker 2")


def endpoint(status: GuardStatus = STATUS, port: int = 0) -> Endpoint:
    def answer() -> tuple[list[str], dict[str, Any]]:
        return unhealthy(status, NOW_MS), health(status, OBSERVED)

    return Endpoint("127.0.0.1", port, lambda: families(status, OBSERVED, NOW_MS), answer)


@pytest.fixture
def served() -> Iterator[str]:
    with closing(endpoint()) as serving:
        yield f"http://{serving.address}"


def get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310  (of this test)
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_scrape_has_what_the_last_round_and_the_last_look_saw(served: str) -> None:
    code, text = get(f"{served}/metrics")
    assert code == 200
    scraped = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    samples = {(sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value for sample in scraped}
    expected = {
        ("leads",): 1, ("healthy",): 1, ("topics",): 2, ("paused_topics",): 1, ("skipped_topics",): 1,
        ("rounds_total",): 7, ("requests_total",): 21, ("replicas_away", "t"): 1, ("replicas_adding", "u"): 2,
        ("retention_left_seconds", "t"): 17.5, ("paused_seconds", "t"): 60, ("held", "t"): 1,
        ("paused_log_bytes", "t"): 4096, ("paused_log_growth_bytes_per_second", "t"): 64, ("observation_failed",): 1,
    }  # fmt: skip
    assert {name: samples[name] for name in expected} == expected


def test_health_is_json_with_what_is_paused(served: str) -> None:
    code, text = get(f"{served}/health")
    answer = json.loads(text)
    assert (code, answer["healthy"], answer["paused"], answer["skipped"]) == (200, True, ["t"], {"s": "refused"})
    assert answer["notes"] == ["sizes of logs are unknown on broker 2"]
    assert get(f"{served}/")[0] == 404
    with closing(endpoint(replace(STATUS, failure="alter failed"))) as unhealthy_guard:
        code, text = get(f"http://{unhealthy_guard.address}/health")
    assert (code, json.loads(text)["wrong"]) == (503, ["the last round failed: alter failed"])


def test_a_closed_endpoint_ends_its_threads_although_a_connection_is_open() -> None:
    before, serving = set(threading.enumerate()), endpoint()
    host, port = serving.address.split(":")
    with socket.create_connection((host, int(port)), 10) as idle, suppress(ConnectionResetError):
        serving.close()
        assert idle.recv(1) == b""
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 10)


def test_a_connection_without_a_request_is_closed_after_half_a_minute() -> None:
    with closing(endpoint()) as serving:
        host, port = serving.address.split(":")
        with socket.create_connection((host, int(port)), 10) as idle:
            assert get(f"http://{serving.address}/health")[0] == 200, "connections are accepted in their order"
            later = time.time() + 31
            serving._server.trigger.pull_trigger(lambda: serving._server.maintenance(later))
            assert idle.recv(1) == b""


@pytest.mark.parametrize("command", [guard, watch])
def test_the_endpoint_listens_on_loopback_by_default(command: click.Command) -> None:
    (listen,) = (option for option in command.params if option.name == "listen")
    assert listen.default == "127.0.0.1"


@pytest.mark.parametrize(("status", "wrong"), [
    (STATUS, None),
    (GuardStatus(), "no round has succeeded yet"),
    (replace(STATUS, round_ms=NOW_MS - 15_001), "the last round that succeeded was 15 s ago"),
    (replace(STATUS, round_ms=NOW_MS - 59_000, interval_s=20.0), None),
    (replace(STATUS, unpaused=frozenset("u")), "exposed and not paused: u"),
    (replace(STATUS, unpaused=frozenset("u"), leads=False), None),
])  # fmt: skip
def test_what_is_wrong_is_a_sentence(status: GuardStatus, wrong: str | None) -> None:
    assert unhealthy(status, NOW_MS) == ([] if wrong is None else [wrong])


def test_a_port_in_use_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--listen 127.0.0.1:{port}: it cannot listen there \(.*in use\)"):
            endpoint(port=port)
    assert capfd.readouterr().err == ""


COVERED = GuardStatus(covered=frozenset("tu"))
PAUSED = replace(COVERED, state=PauseState({"t": Pause("t", PausePhase.PAUSED, "c", {}, 1)}))


def test_growth_is_between_two_looks_at_the_same_topic() -> None:
    before, now = Observation(1_000, log_bytes={"t": 100}), {"t": 300, "new": 5}
    assert (growth(before, now, 3_000), growth(before, now, 1_000)) == ({"t": 100.0}, {})


class Looked:
    """A cluster whose brokers report the sizes of logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.observer = GuardObserver([Address("b", 1)], TickingClock())
        self.failure: Exception | None = None
        self.described: list[Sequence[str]] = []
        monkeypatch.setattr("harness.protect.guard.run.describe", self.describe)
        monkeypatch.setattr("harness.kafka_api.connection.ClusterClient.ask_all", lambda *_: (self.sizes, self.errors))
        self.sizes: dict[int, Any] = {1: {("t", 0): 100}, 2: {("t", 0): 50}}
        self.errors: dict[int, Exception] = {}

    def describe(self, client: ClusterClient, names: Sequence[str]) -> AuditedCluster:
        self.described.append(names)
        if self.failure is not None:
            raise self.failure
        state = PartitionState(1, (1, 2), (1, 2))
        brokers = {number: Address("b", number) for number in (1, 2)}
        return AuditedCluster(client, ClusterState("c", brokers, {n: TopicState(n, {0: state}) for n in names}), {})


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(monkeypatch)


def test_a_look_at_paused_topics_alone_sums_up_by_topic(looked: Looked) -> None:
    for status, described, log_bytes in ((COVERED, [], {}), (PAUSED, [["t"]], {"t": 150})):
        looked.observer.observe(status)
        latest = looked.observer.latest
        assert (looked.described, latest.log_bytes, latest.failure) == (described, log_bytes, None)


@pytest.mark.parametrize("failure", [HarnessError("no broker answers"), RuntimeError("no broker answers")])
def test_a_look_that_fails_keeps_what_was_seen_before(looked: Looked, failure: Exception) -> None:
    looked.observer.observe(PAUSED)
    looked.failure = failure
    looked.observer.observe(PAUSED)
    latest = looked.observer.latest
    assert (latest.log_bytes, latest.failure) == ({"t": 150}, "no broker answers")


def test_sizes_that_a_broker_does_not_report_are_said(looked: Looked) -> None:
    del looked.sizes[2]
    looked.errors[2] = HarnessError("not allowed")
    looked.observer.observe(PAUSED)
    latest, failure = looked.observer.latest, "sizes of logs are unknown on broker 2: not allowed"
    assert (latest.log_bytes, latest.failure) == ({"t": 100}, failure)
