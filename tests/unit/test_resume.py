"""``harness run --resume``: runs that can continue, and one clear sentence for every other run."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
from findings import verdict

from harness.cli import main as cli
from harness.cluster.boot import Equipment
from harness.errors import EXIT_USAGE, UsageError
from harness.host import leftovers
from harness.play import resume, run_plan
from harness.play.begin import begin_manifest
from harness.play.options import RunOptions
from harness.play.run_plan import PreparedRun, plan_run
from harness.run_folder import manifest
from harness.run_folder.store import RunFolder
from harness.runtimes.base import PreparedRuntime, RuntimeRequest
from harness.targets import find_target

RUN_ID = "2026-11-21T18-06-51Z-548a"


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
        ready = PreparedRuntime({"name": "local"}, lambda _: pytest.fail("no run is conducted"))
        begin_manifest(self.folder, PreparedRun(self.plan, Equipment(self.plan.target, java, "local", ready, jars)))
        self.work_dir = leftovers.claim_work_dir(RUN_ID, self.folder.path)
        self.own(resumable=True, started_s=0.0)
        self.tell(owner={**self.manifest["owner"], "started_s": 0.0})

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
    prepare = Mock(return_value=PreparedRuntime({"name": "local"}, lambda _: pytest.fail("no run is conducted")))

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
def test_version_and_image_stay_those_that_were_tested(
    subject: CutOff, runs: list[Continued], image: str | None
) -> None:
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
        subject.tell(owner={**subject.manifest["owner"], "started_s": 0.0})


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


def just_started(subject: CutOff) -> None:
    """Its owner is in its manifest alone."""
    subject.tell(owner=subject.own_process)
    subject.lose_data()


CANNOT = "{path} cannot be continued: "


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s.tell(status="complete"), "{path} went to its end; `harness check` judges it again"),
        (lambda s: s.own(**s.own_process), f"{{path}} is still in progress (process {os.getpid()})"),
        (just_started, f"{{path}} is still in progress (process {os.getpid()})"),
        (CutOff.lose_data, f"{CANNOT}its brokers' data no longer exist; run it again"),
        (lambda s: s.own(resumable=False), f"{CANNOT}it was interrupted before its window opened; run it again"),
        (lambda s: s.own(kept=True), f"{CANNOT}its cluster was kept; `harness clean {RUN_ID}` removes it"),
        (
            lambda s: s.tell(nemesis="pause"),
            f"{CANNOT}the fault of the nemesis pause ended with the harness; run it again",
        ),
        (
            lambda s: s.tell(owner={"pid": 1, "nonsense": 2}),
            "the run folder is damaged: {path}/manifest.json names no owner",
        ),
    ],
    ids=["complete", "in progress", "just started", "no data", "before its window", "kept", "a fault", "no owner"],
)
def test_a_run_that_cannot_go_on(subject: CutOff, change: Callable[[CutOff], None], expected: str) -> None:
    change(subject)
    assert refusal(subject.folder.path) == expected.format(path=subject.folder.path)


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


def test_how_it_goes_on_can_be_reported(tmp_path: Path, runs: list[Continued], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.play.run_plan.free_ports", lambda count, base: [base + n for n in range(count)])
    subject = CutOff(tmp_path, partitions=3)
    go_on(subject.folder.path, "--time-limit", "60", "--keep", "--port-base", "20000", "--format", "json")
    assert runs[0].run.plan.options.keep
    assert runs[0].run.ports == [20_000, 20_001, 20_002, 20_003]


@pytest.mark.parametrize("change", [None, CutOff.lose_data, lambda subject: subject.own(resumable=False)])
def test_check_names_the_command_for_a_run_that_can_go_on(
    subject: CutOff, change: Callable[[CutOff], None] | None
) -> None:
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
