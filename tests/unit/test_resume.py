"""``harness run --resume``: runs that can continue, and one clear sentence for every other run."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from findings import verdict

from harness.cli import main as cli
from harness.cluster.boot import Equipment
from harness.errors import EXIT_USAGE, UsageError
from harness.host import leftovers
from harness.play import resume, run_plan
from harness.play.begin import begin_manifest
from harness.play.options import RunOptions
from harness.play.run_plan import PreparedRun, RunPlan, plan_run
from harness.run_folder import manifest
from harness.run_folder.store import RunFolder
from harness.runtimes.base import PreparedRuntime, RuntimeRequest
from harness.targets import find_target

RUN_ID = "2026-11-21T18-06-51Z-548a"
WANTED: list[RuntimeRequest] = []
"""Requirements that runtimes were asked for, the newest last."""
LONG = {"timers": "10m", "seed": 7}


@pytest.fixture(autouse=True)
def _private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work directories go below the test's own folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def made(**options: Any) -> RunPlan:
    return plan_run(RunOptions("kafka-4.4", "stuck-lso", **{**LONG, **options}))


class GoingOn(NamedTuple):
    """A run that is about to continue."""

    run: PreparedRun
    folder: RunFolder
    begin: Callable[[], object]


class CutOff:
    """A run that was cut off in its window: its folder, and its work directory with an owner that is gone."""

    def __init__(self, top: Path, **options: Any) -> None:
        """Write both."""
        self.plan = made(**options)
        self.folder = RunFolder(top / "results" / RUN_ID)
        self.folder.path.mkdir(parents=True)
        self.folder.history_path.touch()
        java: Any = SimpleNamespace(version_text="17.0.9")
        jars: Any = SimpleNamespace(digests={}, pinned=True)
        ready = PreparedRuntime({"name": "local"}, lambda _: pytest.fail("no run is conducted"))
        begin_manifest(self.folder, PreparedRun(self.plan, Equipment(self.plan.target, java, "local", ready, jars)))
        self.work_dir = leftovers.claim_work_dir(RUN_ID, self.folder.path)
        self.own(resumable=True, started_s=0.0)
        self.tell(owner={**self.manifest["owner"], "started_s": 0.0})

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        content: dict[str, Any] = json.loads(self.folder.manifest_path.read_text())
        return content

    def tell(self, **changes: Any) -> None:
        """Change the manifest; None takes a field out."""
        content = {name: value for name, value in {**self.manifest, **changes}.items() if value is not None}
        manifest.Manifest(self.folder, content).write()

    def own(self, **changes: Any) -> None:
        """Change the fields of the owner."""
        leftovers.change_owner(self.work_dir, **changes)

    def lose_data(self) -> None:
        """Do as a restart of the machine does."""
        (self.work_dir / "owner.json").unlink()
        self.work_dir.rmdir()


@pytest.fixture
def subject(tmp_path: Path) -> CutOff:
    return CutOff(tmp_path)


def refusal(path: Path, *more: str) -> str:
    """Ask the command line to continue, and return its refusal."""
    with pytest.raises(UsageError) as refused:
        cli.cli.main(["run", "--resume", str(path), *more], standalone_mode=False)
    assert refused.value.exit_code == EXIT_USAGE == 254
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[GoingOn]:
    """Go as far as the first broker: the job is written down, and nothing is started."""
    found: list[GoingOn] = []

    def conduct(run: PreparedRun, folder: RunFolder, begun: Any, *_: Any, is_resumed: bool) -> Any:
        assert is_resumed
        found.append(GoingOn(run, folder, begun))
        return SimpleNamespace(verdict=verdict(verdict="clean"), folder=folder, addresses={})

    def prepare(wanted: RuntimeRequest) -> PreparedRuntime:
        WANTED.append(wanted)
        jars: Any = SimpleNamespace(classpath=wanted.target.version)
        return PreparedRuntime({"name": "local"}, lambda _: pytest.fail("no run is conducted"), jars)

    monkeypatch.setattr(resume, "conduct", conduct)
    monkeypatch.setattr(run_plan, "find_java", lambda: None)
    monkeypatch.setattr(run_plan, "find_archive", lambda *_: None)
    monkeypatch.setattr("harness.cluster.boot.find_runtime", lambda _: prepare)
    return found


def classpath(going_on: GoingOn) -> str:
    assert going_on.run.equipment.jars is not None
    return going_on.run.equipment.jars.classpath


def go_on(path: Path, *more: str) -> None:
    cli.cli.main(["run", "--resume", str(path), *more], standalone_mode=False)


@pytest.mark.parametrize("nemesis", ["kill", "join", "catch-up", "none"])
def test_a_run_goes_on_as_it_was(tmp_path: Path, runs: list[GoingOn], nemesis: str) -> None:
    shape = {"brokers": 5, "replication_factor": 4, "partitions": 3, "absent": 2}
    settings = {"topic_settings": {"segment.ms": "9000"}, "broker_settings": {"num.io.threads": "2"}}
    subject = CutOff(tmp_path, nemesis=nemesis, client="java", **shape, **settings)
    go_on(subject.folder.path)
    (going_on,) = runs
    run = going_on.run
    assert run.plan == subject.plan
    assert going_on.folder == subject.folder
    assert classpath(going_on) == find_target("kafka-4.4").version


def test_the_version_stays_the_one_that_was_tested(subject: CutOff, runs: list[GoingOn]) -> None:
    subject.tell(target={"name": "kafka-4.4", "version": "4.4.7", "note": ""})
    go_on(subject.folder.path)
    assert classpath(runs[0]) == "4.4.7"


@pytest.mark.parametrize("image", [None, "registry.example/kafka:mine"])
def test_the_image_stays_the_one_that_was_tested(subject: CutOff, image: str | None) -> None:
    actual = {"image": {"reference": image, "id": "sha256:0", "digests": []}} if image else {}
    subject.tell(runtime={"name": "docker", **actual})
    go_on(subject.folder.path)
    assert WANTED[-1].image == image


def test_the_newest_run_can_be_given_by_its_link(subject: CutOff, runs: list[GoingOn]) -> None:
    latest = subject.folder.path.parent / "latest"
    latest.symlink_to(RUN_ID)
    go_on(latest)
    assert runs[0].folder.run_id == RUN_ID


def test_the_manifest_tells_who_goes_on_and_since_when(subject: CutOff, runs: list[GoingOn]) -> None:
    subject.tell(status="interrupted", failure="interrupted")
    for times in (1, 2):
        go_on(subject.folder.path)
        runs[-1].begin()
        assert subject.manifest["status"] == "running"
        assert subject.manifest["failure"] is None
        assert subject.manifest["owner"]["pid"] == os.getpid()
        assert len(subject.manifest["resumed_at"]) == times
        subject.tell(owner={**subject.manifest["owner"], "started_s": 0.0})


@pytest.mark.parametrize("status", ["running", "failed", "interrupted", "time-limit"])
def test_however_it_was_cut_off_it_can_go_on(subject: CutOff, runs: list[GoingOn], status: str) -> None:
    subject.tell(status=status)
    go_on(subject.folder.path)
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("content", "expected"), [('{"schema": 1, "run_', ": "), ("[1, 2]", " does not have ")], ids=["half", "a list"]
)
def test_a_damaged_run_folder(subject: CutOff, content: str, expected: str) -> None:
    subject.folder.manifest_path.write_text(content)
    damaged = f"the run folder is damaged: {subject.folder.manifest_path}"
    assert refusal(subject.folder.path).startswith(damaged + expected)


@pytest.mark.parametrize(
    "field", ["anomaly", "nemesis", "timers", "seed", "client", "brokers", "topic_settings", "target", "runtime"]
)
def test_a_manifest_that_lacks_something(subject: CutOff, field: str) -> None:
    subject.tell(**{field: None})
    message = refusal(subject.folder.path)
    assert message == f"the run folder is damaged: {subject.folder.manifest_path} does not have {field}"


def own_process(subject: CutOff) -> dict[str, Any]:
    return dict(leftovers.owner_of_this_process(RUN_ID, subject.folder.path))


def just_started(subject: CutOff) -> None:
    """Its owner is in its manifest alone."""
    subject.lose_data()
    subject.tell(owner=own_process(subject))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s.tell(status="complete"), "{path} went to its end; `harness check` judges it again"),
        (lambda s: s.own(**own_process(s)), f"{{path}} is still in progress (process {os.getpid()})"),
        (just_started, f"{{path}} is still in progress (process {os.getpid()})"),
        (CutOff.lose_data, "{path} cannot be continued: its brokers' data no longer exist; run it again"),
        (
            lambda s: s.own(resumable=False),
            "{path} cannot be continued: it was interrupted before its window opened; run it again",
        ),
        (
            lambda s: s.own(kept=True),
            f"{{path}} cannot be continued: its cluster was kept; `harness clean {RUN_ID}` removes it",
        ),
        (
            lambda s: s.tell(owner={"pid": 1, "nonsense": 2}),
            "the run folder is damaged: {path}/manifest.json names no owner",
        ),
    ],
    ids=["complete", "in progress", "just started", "no data", "before its window", "kept", "no owner"],
)
def test_a_run_that_cannot_go_on(subject: CutOff, change: Callable[[CutOff], None], expected: str) -> None:
    change(subject)
    assert refusal(subject.folder.path) == expected.format(path=subject.folder.path)


@pytest.mark.parametrize("nemesis", ["pause", "partition"])
def test_a_fault_that_ended_with_the_harness(tmp_path: Path, nemesis: str) -> None:
    subject = CutOff(tmp_path, nemesis=nemesis)
    message = refusal(subject.folder.path)
    assert message == (
        f"{subject.folder.path} cannot be continued: the fault of the nemesis {nemesis} ended with the"
        " harness; run it again"
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--target", "kafka-4.4"), "leave out --target"),
        (("--anomaly", "all", "--seed", "3"), "leave out --anomaly, --seed"),
        (("--set", "topic.segment.ms=1"), "leave out --set"),
        (("--nemesis", "kill"), "leave out --nemesis"),
        (("--partitions", "1", "--results", "here"), "leave out --partitions, --results"),
    ],
)
def test_what_the_run_folder_tells_is_not_repeated(subject: CutOff, more: tuple[str, ...], expected: str) -> None:
    assert refusal(subject.folder.path, *more) == f"--resume takes everything else from the run folder: {expected}"


def test_how_it_goes_on_can_be_reported(tmp_path: Path, runs: list[GoingOn], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.play.run_plan.free_ports", lambda count, base: [base + n for n in range(count)])
    subject = CutOff(tmp_path, partitions=3)
    options = ("--time-limit", "60", "--keep", "--port-base", "20000", "--format", "json")
    go_on(subject.folder.path, *options)
    run = runs[0].run
    assert run.plan.options.keep
    assert run.ports == [20_000, 20_001, 20_002, 20_003]


def test_check_of_a_run_that_can_go_on_names_the_command(subject: CutOff) -> None:
    path = subject.folder.path
    with pytest.raises(UsageError) as refused:
        manifest.open_run_folder(path)
    assert str(refused.value) == (
        f"{path} is half-written: its run was interrupted; `harness run --resume {path}` continues it"
    )


@pytest.mark.parametrize("lose", [CutOff.lose_data, lambda subject: subject.own(resumable=False)])
def test_check_of_a_run_that_cannot_go_on_names_no_command(subject: CutOff, lose: Callable[[CutOff], None]) -> None:
    lose(subject)
    with pytest.raises(UsageError, match=r"its run was interrupted$"):
        manifest.open_run_folder(subject.folder.path)


@pytest.mark.parametrize("options", ["", "hold=markers"])
def test_brokers_go_on_with_the_gate_that_they_had(tmp_path: Path, options: str) -> None:
    content = CutOff(tmp_path).manifest
    assert not resume.options_of(content).gate
    gated = resume.options_of({**content, "gate": {"sha256": "0" * 64, "options": options}})
    assert (gated.gate, gated.gate_options) == (True, options or None)
