"""`harness guard` on real brokers, by a user with exactly the ACLs of its page."""

import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from documentation import ROOT
from sandbox import Going, Ran, Sandbox, wait_until
from secured import BOUND_S, Secured, booted, login_file

from harness.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_UNKNOWN
from harness.host.clock import RealClock
from harness.protect.guard.channel import TOPIC as CHANNEL
from harness.protect.guard.cluster import DIRTY_RATIO, MAX_LAG_MS, LiveCluster, explicit_values, is_pause

USER = "guard"
FOUND = {DIRTY_RATIO: "0.2", MAX_LAG_MS: None}
GUARDED, OTHER = "guarded-1", "guarded-2"
MANY = 100


def acls_of_the_page() -> list[tuple[str, str, str]]:
    """Return type, name and operation of every `acls` line of the how-to page."""
    rights: list[tuple[str, str, str]] = []
    for line in re.findall(r"^acls (.+)$", (ROOT / "docs/how-to/guard.md").read_text(), re.MULTILINE):
        ((kind, name),) = re.findall(r"--(topic|group|cluster)(?: '?([^' ]+))?", line)
        operations = re.findall(r"--operation (\w+)", line)
        rights += [(kind, name or "kafka-cluster", operation) for operation in operations]
    return rights


def settings_of(cluster: Secured, topics: Sequence[str]) -> Mapping[str, Any]:
    """Return the topics' settings, as an administrator sees them."""
    with closing(LiveCluster(cluster.inside, RealClock())) as live:
        return live.settings(topics).settings


def own(cluster: Secured, *topics: str) -> dict[str, dict[str, str | None]]:
    return {topic: explicit_values(values) for topic, values in settings_of(cluster, topics).items()}


def paused(cluster: Secured, *topics: str) -> list[str]:
    read = settings_of(cluster, topics)
    return [topic for topic in topics if all(is_pause(name, read[topic][name]) for name in FOUND)]


def assert_put_back(cluster: Secured) -> None:
    assert own(cluster, GUARDED, OTHER) == {GUARDED: FOUND, OTHER: FOUND}


def first_entry(cluster: Secured) -> int:
    """Return the log start offset of the guard's topic."""
    consumer = Consumer({"bootstrap.servers": ",".join(map(str, cluster.inside)), "group.id": "reader"})
    first, _end = consumer.get_watermark_offsets(TopicPartition(CHANNEL, 0), timeout=BOUND_S, cached=False)
    consumer.close()
    return first


@contextmanager
def outage(cluster: Secured, broker: int = 2) -> Iterator[None]:
    """Kill a broker for the time of a block, which may start it again by itself."""
    cluster.runtime.kill(broker)
    try:
        yield
    finally:
        back(cluster, broker)


def back(cluster: Secured, broker: int = 2) -> None:
    if not cluster.runtime.is_up(broker):
        cluster.runtime.start(broker)
    wait_until(lambda: cluster.is_whole(GUARDED, OTHER, CHANNEL), BOUND_S, "every replica to be in sync")


@pytest.fixture(scope="module", params=["kafka-4.4", "kafka-3.9"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("guarded")
    with booted(request.param, folder, login_file(folder, USER, "secret"), {}) as cluster:
        settings = {"cleanup.policy": "compact", "delete.retention.ms": "60000", DIRTY_RATIO: "0.2"}
        cluster.admin.create_topics({(GUARDED, 0): (1, 2, 3), (OTHER, 0): (2, 3, 1)}, settings)
        cluster.allow(USER, acls_of_the_page())
        yield cluster


@dataclass
class Running:
    going: Going
    path: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def wait_for(self, kind: str, *topics: str) -> None:
        def happened() -> bool:
            assert self.going.process.poll() is None, self.going.end().output
            return {event["topic"] for event in self.events(kind)} >= set(topics or ("",))

        wait_until(happened, BOUND_S, f"the event {kind} of {topics}")

    def end(self, number: int = signal.SIGTERM, code: int | None = None) -> Ran:
        self.going.process.send_signal(number)
        return self.going.end(code)


Start = Callable[..., Running]


@pytest.fixture
def start(guarded: Secured, sandbox: Sandbox) -> Iterator[Start]:
    """Return a function that starts guards; guards that still run at the end are killed."""
    started: list[Running] = []

    def one(*words: str, ready: str = "ready") -> Running:
        path = sandbox.root / f"events-{len(started)}"
        common = ("--topic", "guarded-*", "--interval", "0.5", "--port", "0", "--observe-every", "2")
        running = Running(sandbox.start("guard", *guarded.server, *common, "--events", str(path), *words), path)
        started.append(running)
        running.wait_for(ready)
        return running

    yield one
    for running in started:
        if running.going.process.poll() is None:
            running.going.kill()


def test_a_killed_broker_pauses_its_topics_and_its_return_puts_them_back(guarded: Secured, start: Start) -> None:
    running = start()
    with outage(guarded):
        running.wait_for("paused", GUARDED, OTHER)
        assert paused(guarded, GUARDED, OTHER) == [GUARDED, OTHER]
        (listens,) = running.events("listens")
        address = listens["what"].partition("/metrics")[0]
        away = f'compaction_guard_replicas_away{{topic="{GUARDED}"}} 1.0'

        def is_counted() -> bool:
            with urlopen(f"{address}/metrics", timeout=10) as answer:  # noqa: S310  (of this test)
                return {away, "compaction_guard_paused_topics 2.0"} <= set(answer.read().decode().splitlines())

        # Metrics are those at the end of a round, and events are reported within it.
        wait_until(is_counted, BOUND_S, "the metrics of the outage")
        back(guarded)
        running.wait_for("released", GUARDED, OTHER)
    running.end(code=EXIT_CLEAN)
    assert_put_back(guarded)


def test_a_guard_killed_in_mid_outage_is_followed_by_another(guarded: Secured, sandbox: Sandbox, start: Start) -> None:
    running = start()
    with outage(guarded):
        running.wait_for("paused", OTHER)
        running.end(signal.SIGKILL)
        status = sandbox.call("guard", "status", *guarded.server, "--format", "json", code=EXIT_UNKNOWN)
        found = {one["topic"]: one["found"] for one in json.loads(status.stdout)["paused"]}
        assert found == {GUARDED: FOUND, OTHER: FOUND}
        sandbox.call("guard", "release", *guarded.server, code=EXIT_UNKNOWN)
        assert paused(guarded, GUARDED, OTHER) == [GUARDED, OTHER]
    sandbox.call("guard", "release", *guarded.server, code=EXIT_CLEAN)
    assert_put_back(guarded)


def test_a_signal_in_mid_outage_leaves_a_pause_that_the_next_guard_ends(guarded: Secured, start: Start) -> None:
    running = start()
    with outage(guarded):
        running.wait_for("paused", GUARDED)
        ended = running.end(code=EXIT_UNKNOWN)
        assert "harness guard release" in ended.stderr
    again = start()
    wait_until(lambda: not paused(guarded, GUARDED, OTHER), BOUND_S, "the next guard to put it back")
    assert again.end().code == EXIT_CLEAN
    assert_put_back(guarded)


def test_of_two_guards_one_acts_and_the_other_takes_over(guarded: Secured, sandbox: Sandbox, start: Start) -> None:
    first = start()
    second = start(ready="stands-by")
    with outage(guarded):
        first.wait_for("paused", GUARDED)
        assert second.events("paused") == []
        sandbox.call("guard", "release", *guarded.server, code=EXIT_FAILED)
        first.end(signal.SIGKILL)
        second.wait_for("leads")
        assert paused(guarded, GUARDED, OTHER) == [GUARDED, OTHER]
    second.wait_for("released", GUARDED)
    assert second.end().code == EXIT_CLEAN
    assert_put_back(guarded)


def test_a_value_that_somebody_changes_during_the_pause_is_left_alone(guarded: Secured, start: Start) -> None:
    running = start()
    try:
        with outage(guarded):
            running.wait_for("paused", GUARDED, OTHER)
            guarded.admin.alter_topics([GUARDED], {DIRTY_RATIO: "0.7"})
        running.wait_for("left-alone", GUARDED)
        running.end(code=EXIT_CLEAN)
        assert own(guarded, GUARDED) == {GUARDED: {**FOUND, DIRTY_RATIO: "0.7"}}
    finally:
        guarded.admin.alter_topics([GUARDED], {DIRTY_RATIO: "0.2"})


def test_a_dry_run_changes_nothing(guarded: Secured, sandbox: Sandbox) -> None:
    with outage(guarded):
        wait_until(lambda: not guarded.is_whole(GUARDED), BOUND_S, "a replica to leave the ISR")
        ran = sandbox.call("guard", *guarded.server, "--topic", "guarded-*", "--dry-run")
        assert ran.code == EXIT_UNKNOWN
        assert f"guard: would {GUARDED}: would pause it" in ran.output
        assert_put_back(guarded)


def test_a_hundred_topics_are_paused_and_put_back(guarded: Secured, start: Start) -> None:
    names = [f"guarded-many-{number}" for number in range(MANY)]
    guarded.admin.create_topics({(name, 0): (1, 2, 3) for name in names}, {"cleanup.policy": "compact"})
    wait_until(lambda: guarded.is_whole(*names), BOUND_S, "the topics to be whole")
    running = start("--interval", "2")
    guarded.runtime.kill(2)
    try:
        wait_until(lambda: len(running.events("paused")) >= MANY, BOUND_S, "every topic to be paused")
        assert paused(guarded, *names) == names
    finally:
        back(guarded)
    wait_until(lambda: len(running.events("released")) >= MANY, BOUND_S, "every topic to be put back")
    wait_until(lambda: first_entry(guarded) > MANY, BOUND_S, "the entries of this outage to be deleted")
    running.end(code=EXIT_CLEAN)
    assert not [one for one in running.events("warning") if "cannot be deleted" in one["what"]]
    assert own(guarded, *names) == {name: dict.fromkeys(FOUND) for name in names}
    for name in names:
        guarded.admin.delete_topic(name)
