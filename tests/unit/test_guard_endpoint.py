"""Metrics and health: the result of a scrape, and the conditions of an unhealthy guard."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.errors import UsageError
from harness.protect.guard.journal import Pause, PausePhase, PauseState
from harness.protect.guard.metrics import PREFIX, Endpoint, unhealthy
from harness.protect.guard.status import GuardStatus, Observation

NOW_MS = 100_000
HELD = PauseState({"t": Pause("t", PausePhase.PAUSED, "c", {}, 40_000)}, {"t": frozenset({"repair 7c1f"})})
STATUS = GuardStatus(
    interval_s=2.0, leads=True, round_ms=99_000, rounds=7, requests=21, covered=frozenset("tu"), away={"t": 1},
    adding={"u": 2}, retention_left_s={"t": 17.5}, state=HELD, skipped={"s": "refused"},
)  # fmt: skip
OBSERVED = Observation(90_000, {"t": 3}, {"t": 12}, {"stuck-lso": 1}, ("broker 2 holds it",), {"t": 4096}, {"t": 64.0})


@pytest.fixture
def served() -> Iterator[str]:
    with closing(Endpoint("127.0.0.1", 0, lambda: (STATUS, OBSERVED), lambda: NOW_MS)) as endpoint:
        yield f"http://{endpoint.address}"


def get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310  (of this test)
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_scrape_has_what_the_last_round_and_the_last_look_saw(served: str) -> None:
    code, text = get(f"{served}/metrics")
    assert code == 200
    samples = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    expected = {
        ("leads",): 1, ("healthy",): 1, ("topics",): 2, ("paused_topics",): 1, ("skipped_topics",): 1,
        ("rounds_total",): 7, ("requests_total",): 21, ("replicas_away", "t"): 1, ("replicas_adding", "u"): 2,
        ("retention_left_seconds", "t"): 17.5, ("paused_seconds", "t"): 60, ("held", "t"): 1,
        ("open_transactions", "t"): 3, ("lso_spread_offsets", "t"): 12, ("suspicions", "stuck-lso"): 1,
        ("suspicions", "hanging-transaction"): 0, ("paused_log_bytes", "t"): 4096,
        ("paused_log_growth_bytes_per_second", "t"): 64, ("observation_failed",): 0,
    }  # fmt: skip
    assert {name: samples[name] for name in expected} == expected


def test_health_is_json_with_what_is_paused(served: str) -> None:
    code, text = get(f"{served}/health")
    answer = json.loads(text)
    assert (code, answer["healthy"], answer["paused"], answer["skipped"]) == (200, True, ["t"], {"s": "refused"})
    assert answer["notes"] == ["broker 2 holds it"]


def test_another_path_is_not_found(served: str) -> None:
    assert get(f"{served}/")[0] == 404


def test_an_unhealthy_guard_answers_503() -> None:
    failed = replace(STATUS, failure="alter failed")
    with closing(Endpoint("127.0.0.1", 0, lambda: (failed, OBSERVED), lambda: NOW_MS)) as endpoint:
        code, text = get(f"http://{endpoint.address}/health")
    assert (code, json.loads(text)["wrong"]) == (503, ["the last round failed: alter failed"])


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        (STATUS, None),
        (GuardStatus(), "no round has succeeded yet"),
        (replace(STATUS, round_ms=NOW_MS - 15_001), "the last round that succeeded was 15 s ago"),
        (replace(STATUS, round_ms=NOW_MS - 59_000, interval_s=20.0), None),
        (replace(STATUS, unpaused=frozenset("u")), "exposed and not paused: u"),
        (replace(STATUS, unpaused=frozenset("u"), leads=False), None),
        (replace(STATUS, unpaused=frozenset("u"), mode="observe-only"), None),
    ],
)
def test_what_is_wrong_is_a_sentence(status: GuardStatus, wrong: str | None) -> None:
    assert unhealthy(status, NOW_MS) == ([] if wrong is None else [wrong])


def test_a_port_in_use_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--listen 127.0.0.1:{port}: it cannot listen there \(.*in use\)"):
            Endpoint("127.0.0.1", port, lambda: (STATUS, OBSERVED), lambda: NOW_MS)
    assert capfd.readouterr().err == ""
