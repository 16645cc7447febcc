"""The command that repeats a run: the command line parses it into the options of that run."""

import random
import shlex
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

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


def drawn(seed: int, folder: Path) -> RunOptions:
    random_ = random.Random(seed)  # noqa: S311
    integer, choice = random_.randint, random_.choice

    def maybe(value: Any) -> Any:
        return choice((None, value))

    hosts, schedule, key = integer(3, 7), maybe(SCHEDULE), str(folder / "key file")
    nodes = tuple(Node(f"n{number}", integer(1, 65_535), "me") for number in range(hosts))
    pins = choice(((), ("SHA256:a",), ("SHA256:a+/=", "SHA256:b")))
    access = maybe(Access(nodes, key=maybe(key), known_hosts=maybe(key), pins=pins))
    return RunOptions(
        target=choice([*WITH_JARS, "kafka-4.1.1", *TARGETS]),
        anomaly="" if schedule else choice(["all", "stuck-lso", "stuck-lso,aborted-to-committed"]),
        schedule=schedule,
        schedule_path=folder / "the schedule.json" if schedule else None,
        nemesis=choice(list(SCRIPTS)),
        client=choice(["librdkafka", "java"]),
        timers=choice(list(TIMERS)),
        brokers=hosts if access else integer(3, 7),
        replication_factor=integer(2, 7),
        partitions=integer(1, 100),
        absent=integer(1, 6),
        seed=random_.randrange(2**62),
        topic_settings=choice(({}, {"segment.ms": "9", "x": choice(VALUES)})),
        broker_settings=choice(({}, {"listener.name.client.x": choice(VALUES)})),
        time_limit_s=maybe(random_.uniform(0.001, 1e6)),
        application=maybe("streams"),
        gate=choice((True, False)),
        guard=choice((True, False)),
        gate_options=maybe("hold=markers,topics=a*:b"),
        runtime=choice(["local", "docker", "ssh", "sim", "auto"]),
        image=maybe("registry.example:5000/kafka@sha256:0123"),
        access=access,
        command_config=maybe(folder / "key file"),
    )


class Asked(BaseException):
    """The command line has passed on its options."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with the files that options name; its name has to be quoted."""
    made = tmp_path / "it's here"
    made.mkdir()
    (made / "key file").touch()
    write_schedule(made / "the schedule.json", SCHEDULE)
    return made


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Mock:
    go = Mock(side_effect=Asked)
    monkeypatch.setattr(runs, "run", go)
    return go


def parsed(command: str, go: Mock) -> RunOptions:
    program, *words = shlex.split(command)
    assert program == "harness"
    with pytest.raises(Asked):
        cli.cli.main(words, standalone_mode=False)
    options: RunOptions = go.call_args.args[0]
    return options


@pytest.mark.parametrize("seed", range(GENERATED))
def test_the_command_asks_for_the_same(seed: int, folder: Path, go: Mock) -> None:
    options = drawn(seed, folder)
    again = parsed(command_line(options), go)
    for field in fields(RunOptions):
        assert getattr(again, field.name) == getattr(options, field.name), field.name
    assert again.schedule_path == options.schedule_path
    assert command_line(again) == command_line(options)


def test_every_field_that_decides_is_drawn_and_rendered(folder: Path) -> None:
    """Otherwise the test above would compare defaults with defaults, and a new field could be forgotten."""
    many = [drawn(seed, folder) for seed in range(GENERATED)]
    for field in fields(RunOptions):
        values = {repr(getattr(options, field.name)) for options in many}
        assert (len(values) == 1) == (field.name in ELSEWHERE), field.name
    text = " ".join(map(command_line, many)) + " "
    # `--nodes` contains their values, and the name of the target contains the patch.
    others = {"--nodes-file", "--ssh-user", "--ssh-port", "--patch"}
    assert {option.opts[0] for option in OPTIONS if f"{option.opts[0]} " not in text} == others


NOTHING: Any = SimpleNamespace()
LOCAL = PreparedRuntime({"name": "local"}, lambda _: NOTHING)


def assembled(options: RunOptions, **more: Any) -> PreparedRun:
    """Return a run that is about to begin, with fake facts about the machine."""
    plan = plan_run(options)
    return PreparedRun(plan, replace(Equipment(plan.target, NOTHING, "local", LOCAL), **more))


def test_what_was_left_open_is_written_as_it_was_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = RunOptions("kafka-4.4", "stuck-lso", command_config=Path("login.properties"))
    made = assembled(options)
    again = repeatable(made, RunFolder(tmp_path / "run"))
    decided = {"target": "kafka-4.4.0", "runtime": "local", "seed": made.plan.seed}
    assert again == replace(options, **decided, command_config=tmp_path / "login.properties")  # type: ignore[arg-type]
    assert replace(plan_run(again), target=made.plan.target) == made.plan


def test_a_schedule_is_that_of_the_run_folder(tmp_path: Path, go: Mock) -> None:
    folder = RunFolder(tmp_path / "run")
    options = RunOptions("kafka-4.4", "", schedule=SCHEDULE, schedule_path=Path("gone.json"))
    write_schedule(folder.path / store.SCHEDULE, SCHEDULE)
    again = parsed(command_line(repeatable(assembled(options), folder)), go)
    assert (again.schedule, again.schedule_path) == (SCHEDULE, folder.path / store.SCHEDULE)


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
    assert begin_manifest(RunFolder(tmp_path), made, "harness run …").content["command"] == "harness run …"


def requested(target: str = "kafka-4.4", **more: Any) -> RuntimeRequest:
    return RuntimeRequest(find_target(target), NOTHING, NOTHING, **more)


HOSTS = Access((Node("n1", 22, "me"),))


@pytest.mark.parametrize(
    ("request_", "engine", "name", "reason"),
    [
        (requested("sim-kafka"), None, "sim", "sim-kafka is simulated"),
        (requested(access=HOSTS), None, "ssh", "hosts are given"),
        (requested("redpanda-26.2"), None, "docker", "redpanda-26.2 comes as an image only"),
        (requested(image="x:1"), "there is none", "docker", "an image is given"),
        (requested(), None, "docker", "the container engine has an image of kafka-4.4"),
        (requested(), "no engine answers", "local", "no engine answers"),
    ],
)
def test_auto_says_what_it_chose_and_why(
    monkeypatch: pytest.MonkeyPatch, request_: RuntimeRequest, engine: str | None, name: str, reason: str
) -> None:
    monkeypatch.setattr("harness.runtimes.may_have_engine", lambda: True)
    monkeypatch.setattr(docker, "why_unavailable", lambda _: engine)
    assert choose("auto", request_) == (name, reason)
    assert choose("local", request_) == ("local", None)


def test_auto_chooses_processes_for_a_clock_for_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runtimes.may_have_engine", lambda: True)
    monkeypatch.setattr(engine, "connect", lambda: pytest.fail("the needs are checked first"))
    name, reason = choose("auto", requested(needs=frozenset({Need.CLOCK})))
    assert name == "local"
    assert str(reason).startswith("this run needs a separate clock for each broker: containers share the clock")


def test_the_choice_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "find_java", lambda: None)
    monkeypatch.setattr(run_plan, "find_archive", lambda *_: None)
    monkeypatch.setattr(run_plan, "choose", lambda *_: ("local", "there is no engine"))
    monkeypatch.setattr("harness.cluster.boot.find_runtime", lambda _: lambda _: LOCAL)
    progress = FakeProgress()
    prepare_run(plan_run(RunOptions("kafka-4.4", "stuck-lso")), progress)
    assert progress.stages == ["runtime local (there is no engine)"]
