"""Applications on top: rejected options, the steps of a trial, and the records of Connect's own topics."""

import importlib.resources
import io
import json
import urllib.error
from contextlib import nullcontext
from dataclasses import dataclass, field
from email.message import Message
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from harness.errors import HarnessError, UsageError
from harness.host.clock import RealClock
from harness.judge import consequences
from harness.play.applications import Installed, Trial, raise_if_unfit
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.schedules.catalog import ALL, Anomaly, scenarios_for
from harness.schedules.operations import Write
from harness.schedules.scenario import CONSUMER_OFFSETS, Kind
from harness.targets import TARGETS, WITH_JARS, find_target
from harness.targets.jars import RELEASES
from harness.targets.lock import read_digests
from workloads.applications import APPLICATIONS, Application, Life, Observation, Observe, find_application
from workloads.applications.connect import CONFIGS, OFFSET_TOPICS, SCENARIOS, positions_of, reason_of, state_of


def check(target: str = "kafka-4.4", application: str = "streams", *, has_login: bool = False, **options: Any) -> None:
    run_options = RunOptions(target, "all", application=application, **options)
    raise_if_unfit(plan_run(run_options), find_application(application), has_login=has_login)


@pytest.mark.parametrize("application", APPLICATIONS)
@pytest.mark.parametrize("target", [*WITH_JARS, "kafka-4.1.1"])
def test_each_application_has_jars_for_each_line_of_kafka(target: str, application: str) -> None:
    check(target, application)
    release = RELEASES[application]
    version = release.version_for(find_target(target))
    digests = read_digests(importlib.resources.files("harness.targets") / "locks" / f"{application}-{version}.lock")
    for module in release.modules:
        assert len(digests[f"{module}:{version}"]) == 64
    assert not [name for name in digests if "log4j-slf4j" in name or "logback" in name]


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in WITH_JARS])
def test_other_systems_are_refused_by_name(target: str) -> None:
    with pytest.raises(UsageError, match=f"--application connect: Kafka Connect was not tried on {target}"):
        check(target, "connect")


def test_what_would_show_nothing_and_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match="the same keys to every partition"):
        check(partitions=2)
    with pytest.raises(UsageError, match="leave out --command-config"):
        check(has_login=True)
    with pytest.raises(UsageError, match="streams"):
        find_application("stream")
    assert {find_application(name).name for name in APPLICATIONS} == set(APPLICATIONS) == set(RELEASES)


@dataclass
class FakeControl:
    """One leader of every partition; its requests are recorded."""

    leader: int = 0
    led: list[tuple[int, ...]] = field(default_factory=list)

    def states(self, topics: list[str]) -> dict[tuple[str, int], Any]:
        return {(topic, 0): SimpleNamespace(leader=self.leader) for topic in topics}


def reading(partitions: list[tuple[str, int]]) -> Mock:
    """Return a reader that was delivered a value, a deleted value, and a value that was written again."""
    pairs = [("K", "1"), ("D", "2"), ("D", None), ("K", "3")]
    records = [{"offset": 0, "key": key, "value": value} for key, value in pairs]
    return Mock(delivered=dict.fromkeys(partitions, records), ends=dict.fromkeys(partitions, 4))


def trial(observe: Observe, *, absent: int = 1) -> tuple[Trial, FakeControl, io.StringIO]:
    test = plan_run(RunOptions("kafka-4.4", "all", brokers=4, absent=absent))
    control, file = FakeControl(), io.StringIO()

    def lead(orders: dict[tuple[str, int], tuple[int, ...]]) -> None:
        (order,) = {order for (topic, _), order in orders.items() if topic != CONSUMER_OFFSETS}
        control.leader = order[0]
        control.led.append(order)

    exposed = [tp for tp in test.replicas if tp[0] != "control"]
    cluster: Any = SimpleNamespace(
        control=control, lead=lead, clock=RealClock(), runtime=None, replicas=test.replicas, exposed=exposed
    )
    history: Any = SimpleNamespace(invoke=lambda **fields: fields, complete=lambda *_, **__: None)
    system = SimpleNamespace(consumer=lambda _runtime, _leader, partitions: reading(list(partitions)))
    stub: Any = SimpleNamespace(scenarios=test.scenarios, placement=test.placement, timers=test.timers, system=system)
    application = Application("streams", "", lambda *_: nullcontext(observe))
    jars: Any = None
    installed = Installed(application, "4.3.1", jars)
    return Trial(stub, cluster, installed, observe, history, file, lambda _: None), control, file


def test_the_steps_and_who_leads_in_each_each_absent_broker_once() -> None:
    steps: list[Life] = []

    def observe(step: Life) -> list[Observation]:
        steps.append(step)
        return [{"topic": "t", "entries": dict(step.consumed[step.topics[0]])}]

    made, control, file = trial(observe, absent=1)
    made.run()
    topics = [scenario.name for scenario in scenarios_for(ALL) if scenario.kind is Kind.RECORDS]
    assert [(step.name, step.state) for step in steps] == [
        ("staying-leads", "as-it-should-be"), ("absent-leads", "broker-2"), ("staying-leads-again", "broker-2"),
    ]  # fmt: skip
    assert all(step.topics == topics for step in steps)
    assert control.led == [(1, 3, 2), (1, 3, 2), (2, 1, 3), (1, 3, 2)]
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(line["leader"], line["absent"]) for line in lines] == [(1, None), (2, 2), (1, 2)]
    assert all(line["entries"] == {"K": "3"} for line in lines)
    assert (lines[0]["application"], lines[0]["version"]) == ("streams", "4.3.1")
    made, control, _ = trial(lambda _: [], absent=2)
    made.run()
    assert control.led == [(1, 2, 3), (1, 2, 3), (2, 1, 3), (1, 2, 3), (3, 1, 2), (1, 2, 3)]


def test_a_broker_that_loses_its_leadership_shows_nothing() -> None:
    def observe(step: Life) -> list[Observation]:
        if step.name == consequences.ABSENT:
            control.leader = 1
        return [{}]

    made, control, file = trial(observe)
    with pytest.raises(HarnessError, match=r"broker 2 did not lead .* to the end of the step absent-leads"):
        made.run()
    assert len(file.getvalue().splitlines()) == 1


def test_the_answers_of_a_worker_and_why_it_refuses() -> None:
    """Answers of Connect 4.3.1."""
    running = {"state": "RUNNING", "worker_id": "127.0.0.1:28083", "version": "4.3.1"}
    status = {"name": "reader", "connector": running, "tasks": [{"id": 0, **running}], "type": "source"}
    assert state_of(status) == "RUNNING, task 0 RUNNING"
    assert state_of({"connector": {"state": "STOPPED"}, "tasks": []}) == "STOPPED"
    answer = {"partition": {"filename": "lines.txt"}, "offset": {"position": 71}}
    assert positions_of({"offsets": [answer]}) == {'{"filename":"lines.txt"}': '{"position":71}'}
    assert positions_of({"offsets": [{**answer, "offset": None}]}) == {}

    def reason(code: int, answer: bytes) -> str:
        return reason_of(urllib.error.HTTPError("http://127.0.0.1/", code, "Error", Message(), io.BytesIO(answer)))

    refusal = b'{"error_code":409,"message":"Cannot complete request momentarily"}'
    assert reason(409, refusal) == "409 Cannot complete request momentarily"
    assert reason(500, b"no JSON") == "500 no JSON"
    assert reason_of(TimeoutError("timed out")) == "no answer within 10 s"
    assert reason_of(ConnectionRefusedError("refused")) == "refused"


def test_the_records_of_connect_are_those_that_a_worker_writes() -> None:
    """Keys and values as a worker of 4.3.1 wrote them, for a connector with the same settings."""
    writes = (write for scenario in SCENARIOS for write in scenario.before if isinstance(write, Write))
    by_key = {write.key: write.value for write in writes}
    configured = json.loads(str(by_key["connector-deleted"]))
    source = "org.apache.kafka.connect.file.FileStreamSource"
    properties = {
        "connector.class": f"{source}Connector", "tasks.max": "1", "file": "lines.txt", "topic": "connect-lines",
        "topic.creation.default.replication.factor": "-1", "topic.creation.default.partitions": "1", "name": "deleted",
    }  # fmt: skip
    assert configured == {"properties": properties}
    task = json.loads(str(by_key["task-deleted-0"]))["properties"]
    assert task == {**properties, "task.class": f"{source}Task"}
    assert by_key["commit-deleted"] == '{"tasks":1}'
    assert by_key["target-state-reset"] == '{"state":"PAUSED","state.v2":"STOPPED"}'
    assert by_key['["reset",{"filename":"lines.txt"}]'] == '{"position":71}'
    scenario = next(candidate for candidate in SCENARIOS if candidate.name == CONFIGS)
    assert list(map(str, scenario.outage)) == ["plain deletes connector-deleted", "plain deletes target-state-deleted"]


def test_a_run_has_the_topics_of_its_application_beside_those_asked_for() -> None:
    test = plan_run(RunOptions("kafka-4.4", "aborted-to-committed", application="connect"))
    names = [scenario.name for scenario in test.scenarios]
    names_of_trials = [scenario.name for scenario in SCENARIOS]
    assert names == ["aborted-to-committed", "aborted-to-committed-delete", *names_of_trials, "control"]
    assert set(OFFSET_TOPICS.values()) < set(names_of_trials)
    anomalies = {Anomaly.TOMBSTONE_DIVERGENCE, Anomaly.STUCK_LSO, Anomaly.ABORTED_TO_COMMITTED}
    assert {scenario.anomaly for scenario in SCENARIOS} == anomalies
