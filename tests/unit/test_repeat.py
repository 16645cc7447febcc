"""The command that repeats a run: the command line parses it into the options of that run."""

import random
import shlex
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from described import described
from fakes.progress import FakeProgress

from harness.cli import main as cli
from harness.cli.run import OPTIONS, command_line
from harness.cluster.boot import Equipment
from harness.host import engine
from harness.host.nodes import Access, Node
from harness.play import run as runs
from harness.play import run_plan
from harness.play.begin import begin_manifest
from harness.play.options import RunOptions
from harness.play.run_plan import PreparedRun, plan_run, prepare_run, repeatable
from harness.run_folder import store
from harness.run_folder.manifest import HIDDEN
from harness.run_folder.store import RunFolder
from harness.runtimes import choose, docker
from harness.runtimes.base import Need, PreparedRuntime, RuntimeRequest
from harness.schedules.schedule import Schedule, in_order, write_schedule
from harness.schedules.timers import TIMERS
from harness.targets import TARGETS, WITH_JARS, find_target
from nemesis import SCRIPTS

SCHEDULE = Schedule(
    in_order(*described("t puts K; 2 leaves; t commits; p puts K; 2 returns")), "stuck-lso", "sim-kafka", "c"
)
VALUES = ("1", "a b", "it's", 'say "so"', "$HOME", "a;b", "größe", "--x", "*", "", "a=b,c", "\\")
"""Of a setting that takes any text: what a shell would change."""
GENERATED = 300
ELSEWHERE = {"results", "keep", "port_base", "spark"}
"""Fields that decide nothing of what a run does."""


def drawn(random_: random.Random, folder: Path) -> RunOptions:
    """Return any options of a run that do not contradict each other by their types."""

    def maybe(value: Any) -> Any:
        return random_.choice((None, value))

    hosts = random_.randint(3, 7)
    access = Access(
        tuple(Node(f"n{number}", random_.randint(1, 65_535), "me") for number in range(hosts)),
        key=maybe(str(folder / "key file")),
        known_hosts=maybe(str(folder / "key file")),
        pins=random_.choice(((), ("SHA256:a",), ("SHA256:a+/=", "SHA256:b"))),
    )
    access_or_none = maybe(access)
    schedule = maybe(SCHEDULE)
    return RunOptions(
        target=random_.choice([*WITH_JARS, "kafka-4.1.1", *TARGETS]),
        anomaly="" if schedule else random_.choice(["all", "stuck-lso", "stuck-lso,aborted-to-committed"]),
        schedule=schedule,
        schedule_path=folder / "the schedule.json" if schedule else None,
        nemesis=random_.choice(list(SCRIPTS)),
        client=random_.choice(["librdkafka", "java"]),
        timers=random_.choice(list(TIMERS)),
        brokers=hosts if access_or_none else random_.randint(3, 7),
        replication_factor=random_.randint(2, 7),
        partitions=random_.randint(1, 100),
        absent=random_.randint(1, 6),
        seed=random_.randrange(2**62),
        topic_settings=random_.choice(({}, {"segment.ms": "9", "x": random_.choice(VALUES)})),
        broker_settings=random_.choice(({}, {"listener.name.client.x": random_.choice(VALUES)})),
        time_limit_s=maybe(random_.uniform(0.001, 1e6)),
        application=maybe("streams"),
        gate=random_.choice((True, False)),
        guard=random_.choice((True, False)),
        gate_options=maybe("hold=markers,topics=a*:b"),
        runtime=random_.choice(["local", "docker", "ssh", "sim", "auto"]),
        image=maybe("registry.example:5000/kafka@sha256:0123"),
        access=access_or_none,
        command_config=maybe(folder / "key file"),
    )


class Asked(BaseException):
    """The manifest contains the options of a run."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the files that options name; its name has to be quoted."""
    made = tmp_path / "it's here"
    made.mkdir()
    (made / "key file").touch()
    write_schedule(made / "the schedule.json", SCHEDULE)
    return made


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """Have what the command line asks for written down in place of a run."""
    requests: list[RunOptions] = []

    def go(options: RunOptions, *_: Any) -> NoReturn:
        requests.append(options)
        raise Asked

    monkeypatch.setattr(runs, "run", go)
    return requests


def parsed(command: str, requests: list[RunOptions]) -> RunOptions:
    """Return what the real command line takes a command for."""
    program, *words = shlex.split(command)
    assert program == "harness"
    with pytest.raises(Asked):
        cli.cli.main(words, standalone_mode=False)
    return requests[-1]


@pytest.mark.parametrize("seed", range(GENERATED))
def test_the_command_asks_for_the_same(seed: int, folder: Path, requests: list[RunOptions]) -> None:
    options = drawn(random.Random(seed), folder)  # noqa: S311
    again = parsed(command_line(options), requests)
    for field in fields(RunOptions):
        assert getattr(again, field.name) == getattr(options, field.name), field.name
    assert again.schedule_path == options.schedule_path
    assert command_line(again) == command_line(options)


def test_every_field_that_decides_is_drawn_and_rendered(folder: Path) -> None:
    """Otherwise the test above would compare defaults with defaults, and a new field could be forgotten."""
    many = [drawn(random.Random(seed), folder) for seed in range(GENERATED)]  # noqa: S311
    for field in fields(RunOptions):
        values = {repr(getattr(options, field.name)) for options in many}
        assert (len(values) == 1) == (field.name in ELSEWHERE), field.name
    texts = [command_line(options) for options in many]
    # `--nodes` contains their values, and the name of the target contains the patch.
    others = {"--nodes-file", "--ssh-user", "--ssh-port", "--patch"}
    assert [
        option.opts[0] for option in OPTIONS if not any(f"{option.opts[0]} " in f"{text} " for text in texts)
    ] == sorted(others, key=[option.opts[0] for option in OPTIONS].index)


def assembled(options: RunOptions, **more: Any) -> PreparedRun:
    """Return a run that is about to begin, with fake facts about the machine."""
    nothing: Any = SimpleNamespace()
    ready = PreparedRuntime({"name": "local"}, lambda _: nothing)
    plan = plan_run(options)
    equipment = Equipment(plan.target, nothing, "local", ready)
    return PreparedRun(plan, replace(equipment, **more))


def test_what_was_left_open_is_written_as_it_was_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = RunOptions("kafka-4.4", "stuck-lso", command_config=Path("login.properties"))
    made = assembled(options)
    again = repeatable(made, RunFolder(tmp_path / "run"))
    assert again == replace(
        options,
        target="kafka-4.4.0",
        runtime="local",
        seed=made.plan.seed,
        command_config=tmp_path / "login.properties",
    )
    assert replace(plan_run(again), target=made.plan.target) == made.plan


def test_a_schedule_is_that_of_the_run_folder(tmp_path: Path, requests: list[RunOptions]) -> None:
    folder = RunFolder(tmp_path / "run")
    options = RunOptions("kafka-4.4", "", schedule=SCHEDULE, schedule_path=Path("gone.json"))
    write_schedule(folder.path / store.SCHEDULE, SCHEDULE)
    again = parsed(command_line(repeatable(assembled(options), folder)), requests)
    assert again.schedule == SCHEDULE
    assert again.schedule_path == folder.path / store.SCHEDULE


def test_secrets_are_not_in_the_command(tmp_path: Path) -> None:
    secret = {"ssl.keystore.password": "hush", "num.io.threads": "3"}
    made = assembled(RunOptions("kafka-4.4", "all", broker_settings=secret))
    command = command_line(repeatable(made, RunFolder(tmp_path)))
    assert "hush" not in command
    assert f"'broker.ssl.keystore.password={HIDDEN}'" in command
    assert "broker.num.io.threads=3" in command


def test_the_manifest_has_the_command(tmp_path: Path) -> None:
    java: Any = SimpleNamespace(version_text="17")
    made = assembled(RunOptions("kafka-4.4", "stuck-lso"), java=java)
    result = begin_manifest(RunFolder(tmp_path), made, "harness run …")
    assert result.content["command"] == "harness run …"


def wanted(target: str = "kafka-4.4", **more: Any) -> RuntimeRequest:
    nothing: Any = None
    return RuntimeRequest(find_target(target), nothing, nothing, **more)


HOSTS = Access((Node("n1", 22, "me"),))


@pytest.mark.parametrize(
    ("asked", "engine", "name", "reason"),
    [
        (wanted("sim-kafka"), None, "sim", "sim-kafka is simulated"),
        (wanted(access=HOSTS), None, "ssh", "hosts are given"),
        (wanted("redpanda-26.2"), None, "docker", "redpanda-26.2 comes as an image only"),
        (wanted(image="x:1"), "there is none", "docker", "an image is given"),
        (wanted(), None, "docker", "the container engine has an image of kafka-4.4"),
        (wanted(), "no engine answers", "local", "no engine answers"),
    ],
)
def test_auto_says_what_it_chose_and_why(
    monkeypatch: pytest.MonkeyPatch, asked: RuntimeRequest, engine: str | None, name: str, reason: str
) -> None:
    monkeypatch.setattr("harness.runtimes.may_have_engine", lambda: True)
    monkeypatch.setattr(docker, "why_unavailable", lambda _: engine)
    assert choose("auto", asked) == (name, reason)
    assert choose("local", asked) == ("local", None)


def test_auto_chooses_processes_for_a_clock_for_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runtimes.may_have_engine", lambda: True)
    monkeypatch.setattr(engine, "connect", lambda: pytest.fail("the needs are checked first"))
    name, reason = choose("auto", wanted(needs=frozenset({Need.CLOCK})))
    assert name == "local"
    assert str(reason).startswith("this run needs a separate clock for each broker: containers share the clock")


def test_the_choice_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = PreparedRuntime({"name": "local"}, lambda _: pytest.fail("nothing is made"), None)
    monkeypatch.setattr(run_plan, "find_java", lambda: None)
    monkeypatch.setattr(run_plan, "find_archive", lambda *_: None)
    monkeypatch.setattr(run_plan, "choose", lambda *_: ("local", "there is no engine"))
    monkeypatch.setattr("harness.cluster.boot.find_runtime", lambda _: lambda _: ready)
    progress = FakeProgress()
    prepare_run(plan_run(RunOptions("kafka-4.4", "stuck-lso")), progress)
    assert progress.stages == ["runtime local (there is no engine)"]
