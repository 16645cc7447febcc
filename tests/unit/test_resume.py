"""Runs that continue or are repeated: one clear sentence for every other run, and the command that repeats a run."""

import json
import os
import random
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
from described import described
from fakes.progress import FakeProgress
from findings import verdict

from harness.cli import main as cli
from harness.cli.run import OPTIONS, command_line
from harness.cluster.boot import Equipment
from harness.errors import EXIT_USAGE, UsageError
from harness.host import engine, leftovers
from harness.host.cache import owned
from harness.host.nodes import Access, Node
from harness.play import resume, run_plan
from harness.play import run as play_run
from harness.play.begin import begin_manifest
from harness.play.options import RunOptions
from harness.play.run_plan import PreparedRun, plan_run, prepare_run, repeatable
from harness.run_folder import manifest, store
from harness.run_folder.manifest import HIDDEN
from harness.run_folder.store import RunFolder
from harness.runtimes import choose, docker
from harness.runtimes.base import Need, PreparedRuntime, RuntimeRequest
from harness.schedules.schedule import Schedule, in_order, write_schedule
from harness.schedules.timers import TIMERS
from harness.targets import TARGETS, WITH_JARS, find_target
from nemesis import SCRIPTS

RUN_ID = "2026-11-21T18-06-51Z-548a"
LOCAL = PreparedRuntime({"name": "local"}, lambda _: pytest.fail("no run is conducted"))


@pytest.fixture(autouse=True)
def _private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work directories go below the test's own folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class Continued(NamedTuple):
    """A run that is about to continue, and the requirements that its runtime was asked for."""

    run: PreparedRun
    folder: RunFolder
    begin: Callable[[], object]
    request: RuntimeRequest


class CutOff:
    """A run that was cut off in its window: its folder, and its work directory with an owner that is gone."""

    def __init__(self, top: Path, **options: Any) -> None:
        self.plan = plan_run(RunOptions("kafka-4.4", "stuck-lso", timers="10m", seed=7, **options))
        self.folder = RunFolder(top / "results" / RUN_ID)
        self.folder.path.mkdir(parents=True)
        self.folder.history_path.touch()
        java: Any = SimpleNamespace(version_text="17.0.9")
        jars: Any = SimpleNamespace(digests={}, pinned=True)
        begin_manifest(self.folder, PreparedRun(self.plan, Equipment(self.plan.target, java, "local", LOCAL, jars)))
        self.work_dir = leftovers.claim_work_dir(RUN_ID, self.folder.path)
        self.own(resumable=True, started_s=0.0, started=None)
        self.tell(owner={**self.manifest["owner"], "started_s": 0.0, "started": None})

    @property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.folder.manifest_path.read_text()))

    @property
    def own_process(self) -> dict[str, Any]:
        return dict(leftovers.owner_of_this_process(RUN_ID, self.folder.path))

    def tell(self, **changes: Any) -> None:
        """Change the manifest; None removes a field."""
        content = {name: value for name, value in {**self.manifest, **changes}.items() if value is not None}
        manifest.Manifest(self.folder, content).write()

    def own(self, **changes: Any) -> None:
        leftovers.change_owner(self.work_dir, **changes)

    def lose_data(self) -> None:
        """Do as a restart of the machine does."""
        (self.work_dir / "owner.json").unlink()
        self.work_dir.rmdir()


@pytest.fixture
def subject(tmp_path: Path) -> CutOff:
    return CutOff(tmp_path)


def refusal(path: Path, *more: str) -> str:
    with pytest.raises(UsageError) as refused:
        go_on(path, *more)
    assert refused.value.exit_code == EXIT_USAGE == 254
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Continued]:
    """Go as far as the first broker: the job is written down, and nothing is started."""
    continued: list[Continued] = []
    prepare = Mock(return_value=LOCAL)

    def conduct(run: PreparedRun, folder: RunFolder, begun: Any, *_: Any, is_resumed: bool) -> Any:
        assert is_resumed
        continued.append(Continued(run, folder, begun, prepare.call_args.args[0]))
        return SimpleNamespace(verdict=verdict(verdict="clean"), folder=folder, addresses={})

    monkeypatch.setattr(resume, "conduct", conduct)
    monkeypatch.setattr(run_plan, "find_java", lambda: None)
    monkeypatch.setattr(run_plan, "find_archive", lambda *_: None)
    monkeypatch.setattr("harness.cluster.boot.find_runtime", lambda _: prepare)
    return continued


def go_on(path: Path, *more: str) -> None:
    cli.cli.main(["run", "--resume", str(path), *more], standalone_mode=False)


@pytest.mark.parametrize("nemesis", ["kill", "join", "catch-up", "none"])
def test_a_run_goes_on_as_it_was(tmp_path: Path, runs: list[Continued], nemesis: str) -> None:
    shape = {"brokers": 5, "replication_factor": 4, "partitions": 3, "absent": 2}
    settings = {"topic_settings": {"segment.ms": "9000"}, "broker_settings": {"num.io.threads": "2"}}
    subject = CutOff(tmp_path, nemesis=nemesis, client="java", **shape, **settings)
    go_on(subject.folder.path)
    (continued,) = runs
    assert (continued.run.plan, continued.folder) == (subject.plan, subject.folder)
    assert continued.request.target.version == find_target("kafka-4.4").version


@pytest.mark.parametrize("image", [None, "registry.example/kafka:mine"])
def test_version_and_image_stay(subject: CutOff, runs: list[Continued], image: str | None) -> None:
    actual = {"image": {"reference": image, "id": "sha256:0", "digests": []}} if image else {}
    subject.tell(target={"name": "kafka-4.4", "version": "4.4.7", "note": ""}, runtime={"name": "docker", **actual})
    go_on(subject.folder.path)
    assert (runs[0].request.target.version, runs[0].request.image) == ("4.4.7", image)


def test_the_newest_run_can_be_given_by_its_link(subject: CutOff, runs: list[Continued]) -> None:
    latest = subject.folder.path.parent / "latest"
    latest.symlink_to(RUN_ID)
    go_on(latest)
    assert runs[0].folder.run_id == RUN_ID


@pytest.mark.parametrize("status", ["running", "failed", "interrupted", "time-limit"])
def test_the_manifest_tells_who_goes_on_and_since_when(subject: CutOff, runs: list[Continued], status: str) -> None:
    subject.tell(status=status, failure=status)
    for times in (1, 2):
        go_on(subject.folder.path)
        runs[-1].begin()
        assert (subject.manifest["status"], subject.manifest["failure"]) == ("running", None)
        assert subject.manifest["owner"]["pid"] == os.getpid()
        assert len(subject.manifest["resumed_at"]) == times
        subject.tell(owner={**subject.manifest["owner"], "started_s": 0.0, "started": None})


@pytest.mark.parametrize(
    ("content", "expected"), [('{"schema": 1, "run_', ": "), ("[1, 2]", " does not have ")], ids=["half", "a list"]
)
def test_a_damaged_run_folder(subject: CutOff, content: str, expected: str) -> None:
    subject.folder.manifest_path.write_text(content)
    damaged = f"the run folder is damaged: {subject.folder.manifest_path}"
    assert refusal(subject.folder.path).startswith(damaged + expected)


def just_started(subject: CutOff) -> None:
    """Its owner is in its manifest alone."""
    subject.tell(owner=subject.own_process)
    subject.lose_data()


CANNOT, DAMAGED = "{path} cannot be continued: ", "the run folder is damaged: {path}/manifest.json "
FIELDS = ("anomaly", "nemesis", "timers", "seed", "client", "brokers", "topic_settings", "target", "runtime")


@pytest.mark.parametrize(("change", "expected"), [
    (lambda s: s.tell(status="complete"), "{path} went to its end; `harness check` judges it again"),
    (lambda s: s.own(**s.own_process), f"{{path}} is still in progress (process {os.getpid()})"),
    (just_started, f"{{path}} is still in progress (process {os.getpid()})"),
    (CutOff.lose_data, f"{CANNOT}its brokers' data no longer exist; run it again"),
    (lambda s: s.own(resumable=False), f"{CANNOT}it was interrupted before its window opened; run it again"),
    (lambda s: s.own(kept=True), f"{CANNOT}its cluster was kept; `harness clean {RUN_ID}` removes it"),
    (lambda s: s.tell(nemesis="pause"),
     f"{CANNOT}the fault of the nemesis pause ended with the harness; run it again"),
    (lambda s: s.tell(owner={"pid": 1, "nonsense": 2}), f"{DAMAGED}names no owner"),
    *((methodcaller("tell", **{field: None}), f"{DAMAGED}does not have {field}") for field in FIELDS),
], ids=["complete", "in progress", "just started", "no data", "early", "kept", "a fault", "no owner",
        *FIELDS])  # fmt: skip
def test_a_run_that_cannot_go_on(subject: CutOff, change: Callable[[CutOff], None], expected: str) -> None:
    change(subject)
    assert refusal(subject.folder.path) == expected.format(path=subject.folder.path)


def test_two_processes_do_not_continue_one_run(subject: CutOff, runs: list[Continued]) -> None:
    with owned(subject.folder.path):
        assert refusal(subject.folder.path) == f"{subject.folder.path} is still in progress in another process"
    assert runs == []


@pytest.mark.parametrize(("more", "expected"), [
    (("--target", "kafka-4.4"), "leave out --target"),
    (("--anomaly", "all", "--seed", "3"), "leave out --anomaly, --seed"),
    (("--set", "topic.segment.ms=1"), "leave out --set"),
    (("--nemesis", "kill"), "leave out --nemesis"),
    (("--partitions", "1", "--results", "here"), "leave out --partitions, --results"),
])  # fmt: skip
def test_what_the_run_folder_tells_is_not_repeated(subject: CutOff, more: tuple[str, ...], expected: str) -> None:
    assert refusal(subject.folder.path, *more) == f"--resume takes everything else from the run folder: {expected}"


def test_how_it_goes_on_can_be_reported(tmp_path: Path, runs: list[Continued], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.play.run_plan.free_ports", lambda count, base: [base + n for n in range(count)])
    subject = CutOff(tmp_path, partitions=3)
    go_on(subject.folder.path, "--time-limit", "60", "--keep", "--port-base", "20000", "--format", "json")
    assert runs[0].run.plan.options.keep
    assert runs[0].run.ports == [20_000, 20_001, 20_002, 20_003]


@pytest.mark.parametrize("change", [None, CutOff.lose_data, lambda subject: subject.own(resumable=False)])
def test_check_names_the_command_for_a_run_that_can_go_on(subject: CutOff, change: Any) -> None:
    path = subject.folder.path
    if change:
        change(subject)
    with pytest.raises(UsageError) as refused:
        manifest.open_run_folder(path)
    command = "" if change else f"; `harness run --resume {path}` continues it"
    assert str(refused.value) == f"{path} is half-written: its run was interrupted{command}"


@pytest.mark.parametrize("options", ["", "hold=markers"])
def test_brokers_go_on_with_the_gate_that_they_had(tmp_path: Path, options: str) -> None:
    content = CutOff(tmp_path).manifest
    assert not resume.options_of(content).gate
    gated = resume.options_of({**content, "gate": {"sha256": "0" * 64, "options": options}})
    assert (gated.gate, gated.gate_options) == (True, options or None)


STEPS = described("t puts K; 2 leaves; t commits; p puts K; 2 returns")
SCHEDULE = Schedule(in_order(*STEPS), "stuck-lso", "sim-kafka", "c")
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
        target=choice([*WITH_JARS, "kafka-4.1.1", *TARGETS]), schedule=schedule,
        anomaly="" if schedule else choice(["all", "stuck-lso", "stuck-lso,aborted-to-committed"]),
        schedule_path=folder / "the schedule.json" if schedule else None,
        nemesis=choice(list(SCRIPTS)), client=choice(["librdkafka", "java"]), timers=choice(list(TIMERS)),
        brokers=hosts if access else integer(3, 7), replication_factor=integer(2, 7), partitions=integer(1, 100),
        absent=integer(1, 6), seed=random_.randrange(2**62),
        topic_settings=choice(({}, {"segment.ms": "9", "x": choice(VALUES)})),
        broker_settings=choice(({}, {"listener.name.client.x": choice(VALUES)})),
        time_limit_s=maybe(random_.uniform(0.001, 1e6)), application=maybe("streams"), gate=choice((True, False)),
        guard=choice((True, False)), gate_options=maybe("hold=markers,topics=a*:b"),
        runtime=choice(["local", "docker", "ssh", "sim", "auto"]),
        image=maybe("registry.example:5000/kafka@sha256:0123"), access=access,
        command_config=maybe(folder / "key file"),
    )  # fmt: skip


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
    monkeypatch.setattr(play_run, "run", go)
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


def test_the_manifest_has_the_command_without_secrets(tmp_path: Path) -> None:
    java: Any = SimpleNamespace(version_text="17")
    made = assembled(RunOptions("kafka-4.4", "stuck-lso"), java=java)
    assert begin_manifest(RunFolder(tmp_path), made, "harness run …").content["command"] == "harness run …"
    secrets = ("ssl.keystore.password", "listener.name.client.sasl.jaas.config")
    settings = {**dict.fromkeys(secrets, "hush"), "num.io.threads": "3"}
    made = assembled(RunOptions("kafka-4.4", "all", broker_settings=settings))
    command = command_line(repeatable(made, RunFolder(tmp_path)))
    assert "hush" not in command
    for part in (*(f"'broker.{name}={HIDDEN}'" for name in secrets), "broker.num.io.threads=3"):
        assert part in command


def requested(target: str = "kafka-4.4", **more: Any) -> RuntimeRequest:
    return RuntimeRequest(find_target(target), NOTHING, NOTHING, **more)


HOSTS = Access((Node("n1", 22, "me"),))


@pytest.mark.parametrize(("request_", "engine", "name", "reason"), [
    (requested("sim-kafka"), None, "sim", "sim-kafka is simulated"),
    (requested(access=HOSTS), None, "ssh", "hosts are given"),
    (requested("redpanda-26.2"), None, "docker", "redpanda-26.2 comes as an image only"),
    (requested(image="x:1"), "there is none", "docker", "an image is given"),
    (requested(), None, "docker", "the container engine has an image of kafka-4.4"),
    (requested(), "no engine answers", "local", "no engine answers"),
])  # fmt: skip
def test_auto_says_what_it_chose_and_why(
    monkeypatch: pytest.MonkeyPatch, request_: RuntimeRequest, engine: str | None, name: str, reason: str
) -> None:
    monkeypatch.setattr("harness.runtimes.may_have_engine", lambda: True)
    monkeypatch.setattr(docker, "why_unavailable", lambda _: engine)
    assert choose("auto", request_) == (name, reason)
    assert choose("local", request_) == ("local", None)


def test_auto_chooses_processes_for_a_clock_for_each_broker_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runtimes.may_have_engine", lambda: True)
    monkeypatch.setattr(engine, "connect", lambda: pytest.fail("the needs are checked first"))
    name, reason = choose("auto", requested(needs=frozenset({Need.CLOCK})))
    assert name == "local"
    assert str(reason).startswith("this run needs a separate clock for each broker: containers share the clock")
    monkeypatch.setattr(run_plan, "choose", lambda *_: ("local", "there is no engine"))
    monkeypatch.setattr("harness.cluster.boot.find_runtime", lambda _: lambda _: LOCAL)
    progress = FakeProgress()
    prepare_run(plan_run(RunOptions("kafka-4.4", "stuck-lso")), progress)
    assert progress.stages == ["runtime local (there is no engine)"]
