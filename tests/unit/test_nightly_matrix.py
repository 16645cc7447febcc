"""The matrix of `harness nightly`, and the expectations of its cells."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.http_servers import served

from harness.errors import UsageError
from harness.json_codec import from_json, to_json
from harness.nightly.latest import newest_patches
from harness.nightly.matrix import Cell, Matrix, SoakCell, expected, options_of, read_expectations, read_matrix
from harness.nightly.night import command_of
from harness.soak.causes import NAMES, read_expected
from harness.targets import TARGETS

STANDARD = read_expectations(None)
PAYLOADS = (
    "tombstone-divergence", "aborted-to-committed", "aborted-to-committed-delete", "committed-to-aborted-value",
    "committed-to-aborted-delete", "stuck-lso",
)  # fmt: skip
GROUPS = (
    "group-stuck-lso", "group-aborted-to-committed", "group-committed-to-aborted", "group-deleted",
    "group-input-recreated", "group-expired",
)  # fmt: skip


def matrix(path: Path | None = None, **options: Any) -> Matrix:
    return read_matrix(path, options, {"kafka-4.1": "kafka-4.1.9"}.get)


def after_json(written: Matrix) -> Matrix:
    return from_json(Matrix, json.loads(json.dumps(to_json(written))))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("target", "anomalies", "argument", "scenarios"), [
    ("kafka-3.9", ["all"], "all", (*PAYLOADS, *GROUPS)),
    ("kafka-3.9", ["groups"], "groups", GROUPS),
    ("kafka-3.9", ["groups", "stuck-lso"], "stuck-lso,groups", ("stuck-lso", *GROUPS)),
    ("kafka-3.9", ["stuck-lso", "committed-to-aborted"], "committed-to-aborted,stuck-lso",
     ("committed-to-aborted-value", "committed-to-aborted-delete", "stuck-lso")),
    ("sim-kafka", ["all"], "all", PAYLOADS),
])  # fmt: skip
def test_one_run_per_target(target: str, anomalies: list[str], argument: str, scenarios: tuple[str, ...]) -> None:
    (outage,) = matrix(targets=[target], anomalies=anomalies).outages
    assert (outage.client, outage.nemesis) == ("librdkafka", "kill")
    assert (outage.anomalies, outage.scenarios) == (argument, scenarios)


def test_protections_are_an_axis() -> None:
    axes: dict[str, Any] = {"nemeses": ["kill", "relay"], "protections": ["none", "gate", "guard"]}
    night = matrix(targets=["kafka-4.4"], anomalies=["stuck-lso"], **axes)
    options = [options_of(outage, night) for outage in night.outages]
    words = [{"--gate", "--guard"} & set(command_of(outage, night, Path("r"), None)) for outage in night.outages]
    verdicts = [entry.verdict for entry in expected(night.cells, STANDARD).values()]
    assert list(zip(((o.nemesis, o.gate, o.guard) for o in options), words, verdicts, strict=True)) == [
        (("kill", False, False), set(), "anomaly"), (("kill", True, False), {"--gate"}, "clean"),
        (("kill", False, True), {"--guard"}, "clean"), (("relay", False, False), set(), "anomaly"),
        (("relay", True, False), {"--gate"}, "clean"), (("relay", False, True), {"--guard"}, "anomaly"),
    ]  # fmt: skip
    assert str(night.outages[1]) == "kafka-4.4 librdkafka kill local, gate"
    assert after_json(night) == night


KILL, SOAK = "librdkafka kill local", "soak of 10 minutes"
SHARED = "targets = ['kafka-3.9']\nanomalies = ['stuck-lso']\n"


@pytest.mark.parametrize(("text", "options", "runs"), [
    ("", {"targets": ["kafka-3.9", "kafka-4.4"], "repeats": 2},
     [f"kafka-{line} {KILL}{repeat}" for repeat in ("", ", repeat 1") for line in ("3.9", "4.4")]),
    ("targets = ['kafka-3.9']\n[[matrix]]\ntargets = ['kafka-4.0']", {"targets": ["kafka-4.4"]},
     [f"kafka-4.4 {KILL}"]),
    (f"{SHARED}[[matrix]]\nnemeses = ['kill', 'none']\nclients = ['java']\n[[matrix]]\ntargets = ['kafka-4.4']", {},
     ["kafka-3.9 java kill local", "kafka-3.9 java none local", f"kafka-4.4 {KILL}"]),
    ("", {"targets": ["kafka-4.1", "kafka-4.4"]}, [f"kafka-{line} {KILL}" for line in ("4.1", "4.1.9", "4.4")]),
    ("targets = ['kafka-4.1']\n[[soak]]", {}, [f"kafka-4.1 {SOAK}", f"kafka-4.1.9 {SOAK}"]),
    ("targets = ['kafka-4.*']\n[[matrix]]\n[[soak]]\ntargets = ['kafka-4.[34]']", {},
     [*(f"kafka-{line} {KILL}" for line in ("4.0", "4.1", "4.1.9", "4.2", "4.3", "4.4")),
      f"kafka-4.3 {SOAK}", f"kafka-4.4 {SOAK}"]),
    ("", {"targets": ["sim-kafka", "kafka-4.4"], "runtimes": ["local", "docker"]},
     ["sim-kafka librdkafka kill sim", f"kafka-4.4 {KILL}", "kafka-4.4 librdkafka kill docker"]),
], ids=["each cell once before any repeat", "the command line wins", "blocks share the keys above", "newer patches",
        "soaks alone", "patterns", "a simulated target has one runtime"])  # fmt: skip
def test_the_runs_of_a_matrix(tmp_path: Path, text: str, options: dict[str, Any], runs: list[str]) -> None:
    night = matrix(written(tmp_path, text), **options)
    assert list(map(str, night.outages)) == runs
    assert len(set(night.cells)) == len(night.cells)
    assert after_json(night) == night


def test_timers_and_settings_are_those_of_the_file(tmp_path: Path) -> None:
    read = matrix(written(tmp_path, f"{SHARED}timers = '10m'\nset = ['topic.delete.retention.ms=2500']"))
    assert (read.timers, read.settings) == ("10m", ("topic.delete.retention.ms=2500",))
    blocks = "[[matrix]]\n[[matrix]]\nanomalies = ['tombstone-divergence']"
    (outage,) = matrix(written(tmp_path, f"{SHARED}{blocks}")).outages
    assert outage.scenarios == ("tombstone-divergence", "stuck-lso"), "cells that differ in that alone share a run"


PUBLISHED = ("4.4.0", "4.4.8", "4.4.9-rc1", "4.40.9", "3.9.99", "3.9.100", TARGETS["kafka-4.2"].version)
METADATA = "".join(f"<version>{version}</version>" for version in PUBLISHED)
MAVEN_METADATA = "/org/apache/kafka/kafka_2.13/maven-metadata.xml"
TAGS = "/v2/namespaces/redpandadata/repositories/redpanda/tags?name=v26.2.&page_size=100&page="


def tags(*names: str, follows: bool = False) -> dict[str, Any]:
    return {"next": "more" if follows else None, "results": [{"name": name} for name in names]}


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with served(1) as stand_ins:
        (place,) = stand_ins.values()
        for variable in ("MAVEN", "DOCKER_HUB"):
            monkeypatch.setenv(f"COMPACTION_HARNESS_{variable}_ROOT", f"http://127.0.0.1:{place.port}")
        yield place


def test_newest_patches_are_asked_of_those_who_publish_them(publisher: Any) -> None:
    publisher.answers = {
        MAVEN_METADATA: (200, f"<versions>{METADATA}</versions>".encode()),
        f"{TAGS}1": (200, tags("v26.2.10-rc1", "v26.2.9-arm64", "v26.2.7", follows=True)),
        f"{TAGS}2": (200, tags("v26.2.11", "latest")),
    }
    newest = newest_patches()
    published = {"kafka-3.9": "kafka-3.9.100", "kafka-4.4": "kafka-4.4.8", "redpanda-26.2": "redpanda-26.2.11"}
    names = (*published, "kafka-4.3", "kafka-4.2", "kafka-4.4.0")
    assert {name: newest(name) for name in names} == dict.fromkeys(names) | published


@pytest.mark.parametrize(("target", "answer", "says"), [
    ("kafka-4.4", (503, {}), "Maven Central does not list the versions of kafka: 503"),
    ("kafka-4.4", (200, b"<metadata"), "Maven Central does not list the versions of kafka: "),
    ("redpanda-26.2", (404, {}), "Docker Hub does not list the versions of redpanda: 404"),
    ("redpanda-26.2", (200, {"errors": []}), "Docker Hub does not list the versions of redpanda: 'results'"),
    ("redpanda-26.2", (200, []), "Docker Hub does not list the versions of redpanda: "),
])  # fmt: skip
def test_places_that_do_not_tell(target: str, answer: tuple[int, Any], says: str, publisher: Any) -> None:
    publisher.answers = {MAVEN_METADATA: answer, f"{TAGS}1": answer}
    with pytest.raises(UsageError, match=re.escape(says)) as raised:
        newest_patches()(target)
    assert "leave it out" in str(raised.value)


@pytest.mark.parametrize(("text", "says"), [
    ("target = ['kafka-3.9']", "unknown key 'target'; did you mean targets"),
    ("targets = []", "names no targets"),
    ("targets = ['kafka-4.4']\nnemeses = []", "nemeses is empty"),
    ("[[soak]]\ntargets = ['kafka-4.4']\nprotections = []", "protections is empty"),
    ("targets = ['kafka-4.4']\nmatrix = [1]", "give the matrix as [[matrix]] blocks"),
    ("targets = ['kafka-4.4']\ntimers = 5", "timers is 5"),
    ("targets = 'kafka-3.9'", "targets is 'kafka-3.9'; give a list of names"),
    ("targets = ['kafka-3.8']", "unknown target 'kafka-3.8'"),
    ("targets = ['kafka-3.9']\nanomalies = ['stuck']", "unknown anomaly 'stuck'"),
    ("targets = ['kafka-3.9']\nnemeses = ['bridge']", "kafka-3.9 librdkafka bridge local: --nemesis bridge"),
    ("targets = ['kafka-3.9']\nclients = ['go']", "'go'"),
    ("targets = ['kafka-3.9']\nruntimes = ['moon']", "moon"),
    ("targets = ['kafka-3.9']\nrepeats = 0", "repeats is 0"),
    ("targets = ['kafka-3.9']\nset = ['a=b']", "--set 'a=b'"),
    ("targets = ['kafka-3.9']\n[[matrix]]\nrepeats = 3", "[[matrix]] of"),
    ("targets = ['sim-kafka']\nanomalies = ['groups']", "scenarios about consumer groups need a real Kafka"),
    ("targets = ['kafka-4.4']\nprotections = ['gates']", "unknown protection 'gates'; did you mean gate"),
    ("targets = ['kafka-4.4']\nruntimes = ['docker']\nprotections = ['gate']", "--gate is for --runtime local"),
    ("targets = [", "is not TOML"),
    ("[[soak]]\nminutes = 3", "[[soak]] of"),
    ("targets = ['kafka-4.4']\n[[soak]]\nminute = 3", "unknown key 'minute'; did you mean minutes"),
    ("targets = ['kafka-4.4']\n[[soak]]\nminutes = 0", "minutes is 0; give a number above 0"),
    ("targets = ['kafka-4.4']\n[[soak]]\nseed = true", "seed is True"),
    ("targets = ['kafka-4.4']\n[[soak]]\nexpect = 'nowhere.toml'", "'nowhere.toml'; give an existing file"),
    ("targets = ['redpanda-25.3']\n[[soak]]", "redpanda-25.3: soak is for Kafka and sim-kafka"),
    ("targets = ['kafka-4.4']\n[[soak]]\nprotections = ['guard']", "a soak has none or gate"),
    ("targets = ['sim-kafka']\n[[soak]]\nprotections = ['gate']", "sim-kafka has no broker processes on this host"),
    ("targets = ['kafka-4.4']\nsoak = 3", "give soaks as [[soak]] blocks"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_reported_before_anything_runs(text: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=re.escape(says)):
        matrix(path)


def test_soaks_come_last_and_the_second_one_of_a_cell_is_a_repeat(tmp_path: Path) -> None:
    shared = "targets = ['kafka-4.4']\nanomalies = ['stuck-lso']\n[[matrix]]"
    gated = "[[soak]]\nprotections = ['none', 'gate']\nminutes = 2.5"
    seeded = "[[soak]]\ntargets = ['kafka-4.4', 'sim-kafka']\nseed = 7"
    night = matrix(written(tmp_path, f"{shared}\n{gated}\n{seeded}"))
    run, *soaks = night.outages
    assert run.soak is None
    short, long = SoakCell(2.5, 1), SoakCell(10.0, 7)
    assert [(outage.target, outage.runtime, outage.protection, outage.soak, outage.repeat) for outage in soaks] == [
        ("kafka-4.4", "local", "none", short, 0), ("kafka-4.4", "local", "gate", short, 0),
        ("kafka-4.4", "local", "none", long, 1), ("sim-kafka", "sim", "none", long, 0),
    ]  # fmt: skip
    assert str(soaks[1]) == "kafka-4.4 soak of 2.5 minutes, gate"
    assert str(soaks[2]) == "kafka-4.4 soak of 10 minutes, repeat 1"
    cells = [(cell.anomaly, cell.payload, cell.protection) for cell in night.cells[1:]]
    assert cells == [("soak", "drawn", protection) for protection in ("none", "gate", "none")]
    assert {expected(night.cells, STANDARD)[cell].verdict for cell in night.cells[1:]} == {"as-expected"}
    assert after_json(night) == night


def test_a_soak_is_asked_for_its_minutes_and_what_it_tolerates(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.touch()
    soak = f"[[soak]]\nprotections = ['none', 'gate']\nexpect = '{own}'"
    night = matrix(written(tmp_path, f"targets = ['kafka-4.4']\n{soak}"))
    plain, gated = (command_of(outage, night, Path("results"), 100.0) for outage in night.outages)
    head = ["soak", "--target", "kafka-4.4", "--minutes", "10", "--seed", "1"]
    assert plain == [*head, "--expect", str(own), "--results", "results"]
    assert gated == [*head, "--gate", "--results", "results"]
    # By default it tolerates every finding whose cause is known.
    night = matrix(written(tmp_path, "targets = ['kafka-4.4']\n[[soak]]"))
    words = command_of(night.outages[0], night, Path("results"), None)
    assert read_expected(Path(words[words.index("--expect") + 1])).keys() == {*NAMES} - {"hanging-transaction"}


def test_the_soaks_of_the_workflow_can_be_read_and_a_missing_file_cannot(tmp_path: Path) -> None:
    night = matrix(Path(__file__).parents[2] / ".github" / "soak.toml")
    assert {outage.soak for outage in night.outages} == {SoakCell(30.0, 1)}
    expected(night.cells, STANDARD)
    with pytest.raises(UsageError, match="cannot be read"):
        matrix(tmp_path / "none.toml")


def cell(target: str = "kafka-3.9", nemesis: str = "kill", scenario: str = "stuck-lso") -> Cell:
    return Cell(target, "librdkafka", nemesis, "local", scenario)


@pytest.mark.parametrize(("verdict", "cells"), [
    ("anomaly", [cell(), cell("kafka-4.4"), cell("kafka-4.1.0"), cell("kafka-5.0"), cell("kafka-5.0", "relay")]),
    ("clean", [cell("kafka-4.4", "none"), cell("kafka-4.4", "clock-skew"), cell("kafka-5.0", "none")]),
    ("clean", [cell("redpanda-25.3")]),
])  # fmt: skip
def test_what_this_release_expects(verdict: str, cells: list[Cell]) -> None:
    assert {asked: entry.verdict for asked, entry in expected(cells, STANDARD).items()} == dict.fromkeys(cells, verdict)


def test_every_target_is_expected_to_say_something_and_the_one_that_may_go_either_way_is_named() -> None:
    actual = {name for name in TARGETS if any(entry.fits(cell(name)) for entry in STANDARD)}
    assert TARGETS.keys() - actual == {"redpanda-25.2"}
    with pytest.raises(UsageError, match=r"no expectation fits redpanda-25\.2 stuck-lso librdkafka kill local: add"):
        expected([cell("redpanda-25.2")], STANDARD)


def test_entries_of_a_file_precede_those_of_this_release(tmp_path: Path) -> None:
    text = "[[expect]]\ntargets = ['kafka-4.4']\nanomalies = ['stuck-lso']\nverdict = 'clean'\nwhy = 'it was fixed'"
    asked = [cell("kafka-4.4"), cell("kafka-4.4", scenario="aborted-to-committed"), cell("kafka-4.3")]
    by_cell = expected(asked, read_expectations(written(tmp_path, text)))
    assert [by_cell[asked_cell].verdict for asked_cell in asked] == ["clean", "anomaly", "anomaly"]
    assert by_cell[asked[0]].why == "it was fixed"


@pytest.mark.parametrize(("text", "says"), [
    ("[[expect]]\nverdict = 'unknown'", "entry 1: verdict is 'unknown'"),
    ("[[expect]]\nverdict = 'clean'\n" * 2 + "target = []", "entry 2: unknown key 'target'; did you mean targets"),
    ("[[expect]]\nverdict = 'clean'\ntargets = 'x'", "targets is 'x'"),
    ("expect = 1", "must consist of [[expect]] entries"),
    ("[expect", "is not TOML"),
])  # fmt: skip
def test_what_is_wrong_with_expectations_is_reported(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_expectations(written(tmp_path, text))
