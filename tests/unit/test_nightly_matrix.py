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
from harness.nightly.latest import newest_of, newest_patches
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
    return read_matrix(path, options, lambda _: None)


def after_json(written: Matrix) -> Matrix:
    return from_json(Matrix, json.loads(json.dumps(to_json(written))))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("target", "anomalies", "argument", "scenarios"),
    [
        ("kafka-3.9", ["all"], "all", (*PAYLOADS, *GROUPS)),
        ("kafka-3.9", ["groups"], "groups", GROUPS),
        ("kafka-3.9", ["groups", "stuck-lso"], "stuck-lso,groups", ("stuck-lso", *GROUPS)),
        ("kafka-3.9", ["stuck-lso", "committed-to-aborted"], "committed-to-aborted,stuck-lso",
         ("committed-to-aborted-value", "committed-to-aborted-delete", "stuck-lso")),
        ("sim-kafka", ["all"], "all", PAYLOADS),
    ],
)  # fmt: skip
def test_one_run_is_for_all_anomalies_of_a_target(
    target: str, anomalies: list[str], argument: str, scenarios: tuple[str, ...]
) -> None:
    (outage,) = matrix(targets=[target], anomalies=anomalies).outages
    assert (outage.client, outage.nemesis) == ("librdkafka", "kill")
    assert (outage.anomalies, outage.scenarios) == (argument, scenarios)


def test_a_simulated_target_has_no_cells_of_groups() -> None:
    with pytest.raises(UsageError, match=r"--anomaly groups: scenarios about consumer groups need a real Kafka"):
        matrix(targets=["sim-kafka"], anomalies=["groups"])


def test_protections_are_an_axis() -> None:
    night = matrix(targets=["kafka-4.4"], nemeses=["kill", "relay"], protections=["none", "gate", "guard"])
    options = [
        (outage.nemesis, options_of(outage, night).gate, options_of(outage, night).guard) for outage in night.outages
    ]
    assert options == [(n, *p) for n in ("kill", "relay") for p in ((False, False), (True, False), (False, True))]
    words = [command_of(outage, night, Path("results"), None) for outage in night.outages[:3]]
    assert [{"--gate", "--guard"} & set(command) for command in words] == [set(), {"--gate"}, {"--guard"}]
    assert str(night.outages[1]) == "kafka-4.4 librdkafka kill local, gate"
    verdicts = {
        (cell.nemesis, cell.protection): entry.verdict for cell, entry in expected(night.cells, STANDARD).items()
    }
    assert verdicts == {
        ("kill", "none"): "anomaly", ("kill", "gate"): "clean", ("kill", "guard"): "clean",
        ("relay", "none"): "anomaly", ("relay", "gate"): "clean", ("relay", "guard"): "anomaly",
    }  # fmt: skip
    assert after_json(night) == night
    with pytest.raises(UsageError, match=r"unknown protection 'gates'; did you mean gate"):
        matrix(targets=["kafka-4.4"], protections=["gates"])
    with pytest.raises(UsageError, match=r"--gate is for --runtime local"):
        matrix(targets=["kafka-4.4"], runtimes=["docker"], protections=["gate"])


def test_each_cell_is_asked_once_before_any_is_asked_again() -> None:
    asked = matrix(targets=["kafka-3.9", "kafka-4.4"], anomalies=["stuck-lso"], repeats=2)
    assert [(outage.target, outage.repeat) for outage in asked.outages] == [
        ("kafka-3.9", 0), ("kafka-4.4", 0), ("kafka-3.9", 1), ("kafka-4.4", 1),
    ]  # fmt: skip
    assert [cell.target for cell in asked.cells] == ["kafka-3.9", "kafka-4.4"]
    assert after_json(asked) == asked


def test_matrices_of_a_file_share_the_keys_above_them(tmp_path: Path) -> None:
    shared = (
        "targets = ['kafka-3.9']\nanomalies = ['stuck-lso']\ntimers = '10m'\nset = ['topic.delete.retention.ms=2500']"
    )
    java, other = "[[matrix]]\nnemeses = ['kill', 'none']\nclients = ['java']", "[[matrix]]\ntargets = ['kafka-4.4']"
    read = matrix(written(tmp_path, f"{shared}\n{java}\n{other}"))
    assert [(outage.target, outage.client, outage.nemesis) for outage in read.outages] == [
        ("kafka-3.9", "java", "kill"), ("kafka-3.9", "java", "none"), ("kafka-4.4", "librdkafka", "kill"),
    ]  # fmt: skip
    assert (read.timers, read.settings) == ("10m", ("topic.delete.retention.ms=2500",))


def test_cells_of_two_matrices_that_differ_in_the_scenario_alone_share_a_run(tmp_path: Path) -> None:
    blocks = [f"[[matrix]]\nanomalies = ['{name}']" for name in ("stuck-lso", "tombstone-divergence")]
    (outage,) = matrix(written(tmp_path, "\n".join(["targets = ['kafka-3.9']", *blocks]))).outages
    assert outage.scenarios == ("tombstone-divergence", "stuck-lso")


def test_the_command_line_wins(tmp_path: Path) -> None:
    path = written(tmp_path, 'targets = ["kafka-3.9"]\n[[matrix]]\ntargets = ["kafka-4.0"]\n')
    assert [outage.target for outage in matrix(path, targets=["kafka-4.4"]).outages] == ["kafka-4.4"]


def test_newer_patches_are_columns_of_their_own() -> None:
    newest = {"kafka-4.1": "kafka-4.1.9"}.get
    assert [outage.target for outage in read_matrix(None, {"targets": ["kafka-4.1", "kafka-4.4"]}, newest).outages] == [
        "kafka-4.1", "kafka-4.1.9", "kafka-4.4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "released", "newest"),
    [
        ("4.1.2", ["4.1.0", "4.1.2", "4.1.10", "4.2.11"], "4.1.10"),
        ("4.1.2", ["4.1.0", "4.1.2"], None),
        ("4.1.2", ["4.1.1", "4.10.5"], None),
        ("4.1.2", [], None),
    ],
)
def test_newest_patch_of_a_line(version: str, released: list[str], newest: str | None) -> None:
    assert newest_of(version, released) == newest


METADATA = """
<metadata><versioning><versions>
  <version>4.4.0</version><version>4.4.8</version><version>4.4.9-rc1</version><version>3.9.99</version>
</versions></versioning></metadata>
"""
MAVEN_METADATA = "/org/apache/kafka/kafka_2.13/maven-metadata.xml"
TAGS = "/v2/namespaces/redpandadata/repositories/redpanda/tags?name=v26.2.&page_size=100&page="


def tags(*names: str, follows: bool = False) -> dict[str, Any]:
    return {"next": "more" if follows else None, "results": [{"name": name} for name in names]}


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Serve in place of Maven Central and of Docker Hub."""
    with served(1) as stand_ins:
        (place,) = stand_ins.values()
        for variable in ("MAVEN", "DOCKER_HUB"):
            monkeypatch.setenv(f"COMPACTION_HARNESS_{variable}_ROOT", f"http://127.0.0.1:{place.port}")
        yield place


def test_newest_patches_are_asked_of_those_who_publish_them(publisher: Any) -> None:
    publisher.answers = {
        MAVEN_METADATA: (200, METADATA.encode()),
        f"{TAGS}1": (200, tags("v26.2.10-rc1", "v26.2.9-arm64", "v26.2.7", follows=True)),
        f"{TAGS}2": (200, tags("v26.2.11", "latest")),
    }
    newest = newest_patches()
    names = ("kafka-3.9", "kafka-4.4", "kafka-4.3", "kafka-4.4.0", "redpanda-26.2")
    assert {name: newest(name) for name in names} == {
        "kafka-3.9": "kafka-3.9.99", "kafka-4.4": "kafka-4.4.8", "kafka-4.3": None, "kafka-4.4.0": None,
        "redpanda-26.2": "redpanda-26.2.11",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("target", "answer", "says"),
    [
        ("kafka-4.4", (503, {}), "Maven Central does not list the versions of kafka: 503"),
        ("kafka-4.4", (200, b"<metadata"), "Maven Central does not list the versions of kafka: "),
        ("redpanda-26.2", (404, {}), "Docker Hub does not list the versions of redpanda: 404"),
        ("redpanda-26.2", (200, {"errors": []}), "Docker Hub does not list the versions of redpanda: 'results'"),
        ("redpanda-26.2", (200, []), "Docker Hub does not list the versions of redpanda: "),
    ],
)
def test_places_that_do_not_tell(target: str, answer: tuple[int, Any], says: str, publisher: Any) -> None:
    publisher.answers = {MAVEN_METADATA: answer, f"{TAGS}1": answer}
    with pytest.raises(UsageError, match=re.escape(says)) as raised:
        newest_patches()(target)
    assert "leave it out" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("target = ['kafka-3.9']", "unknown key 'target'; did you mean targets"),
        ("targets = []", "names no targets"),
        ("targets = 'kafka-3.9'", "targets is 'kafka-3.9'; give a list of names"),
        ("targets = ['kafka-3.8']", "unknown target 'kafka-3.8'"),
        ("targets = ['kafka-3.9']\nanomalies = ['stuck']", "unknown anomaly 'stuck'"),
        ("targets = ['kafka-3.9']\nnemeses = ['bridge']", "kafka-3.9 librdkafka bridge local: --nemesis bridge"),
        ("targets = ['kafka-3.9']\nclients = ['go']", "'go'"),
        ("targets = ['kafka-3.9']\nruntimes = ['moon']", "moon"),
        ("targets = ['kafka-3.9']\nrepeats = 0", "repeats is 0"),
        ("targets = ['kafka-3.9']\nset = ['a=b']", "--set 'a=b'"),
        ("targets = ['kafka-3.9']\n[[matrix]]\nrepeats = 3", "[[matrix]] of"),
        ("targets = [", "is not TOML"),
        ("[[soak]]\nminutes = 3", "[[soak]] of"),
        ("targets = ['kafka-4.4']\n[[soak]]\nminute = 3", "unknown key 'minute'; did you mean minutes"),
        ("targets = ['kafka-4.4']\n[[soak]]\nminutes = 0", "minutes is 0; give a number above 0"),
        ("targets = ['kafka-4.4']\n[[soak]]\nseed = true", "seed is True"),
        (
            "targets = ['kafka-4.4']\n[[soak]]\nexpect = 'nowhere.toml'",
            "expect is 'nowhere.toml'; give an existing file",
        ),
        ("targets = ['redpanda-25.3']\n[[soak]]", "redpanda-25.3: soak is for Kafka and sim-kafka"),
        ("targets = ['kafka-4.4']\n[[soak]]\nprotections = ['guard']", "a soak has none or gate"),
        ("targets = ['sim-kafka']\n[[soak]]\nprotections = ['gate']", "sim-kafka has no broker processes on this host"),
        ("targets = ['kafka-4.4']\nsoak = 3", "give soaks as [[soak]] blocks"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported_before_anything_runs(text: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        matrix(path)
    assert says in str(raised.value)


SOAKS = """
targets = ["kafka-4.4"]
anomalies = ["stuck-lso"]

[[matrix]]

[[soak]]
protections = ["none", "gate"]
minutes = 2.5

[[soak]]
targets = ["kafka-4.4", "sim-kafka"]
seed = 7
"""


def test_soaks_come_last_and_the_second_one_of_a_cell_is_a_repeat(tmp_path: Path) -> None:
    night = matrix(written(tmp_path, SOAKS))
    run, *soaks = night.outages
    assert run.soak is None
    assert [(outage.target, outage.runtime, outage.protection, outage.soak, outage.repeat) for outage in soaks] == [
        ("kafka-4.4", "local", "none", SoakCell(2.5, 1), 0),
        ("kafka-4.4", "local", "gate", SoakCell(2.5, 1), 0),
        ("kafka-4.4", "local", "none", SoakCell(10.0, 7), 1),
        ("sim-kafka", "sim", "none", SoakCell(10.0, 7), 0),
    ]
    assert [str(outage) for outage in soaks[1:3]] == [
        "kafka-4.4 soak of 2.5 minutes, gate", "kafka-4.4 soak of 10 minutes, repeat 1",
    ]  # fmt: skip
    assert [(outage.anomaly, outage.payload, outage.protection) for outage in night.cells[1:]] == [
        ("soak", "drawn", "none"), ("soak", "drawn", "gate"), ("soak", "drawn", "none"),
    ]  # fmt: skip
    expectations = expected(night.cells, STANDARD)
    assert {row.verdict for cell, row in expectations.items() if cell.anomaly == "soak"} == {"as-expected"}
    assert after_json(night) == night


def test_a_pattern_stands_for_every_line(tmp_path: Path) -> None:
    every = [f"kafka-{line}" for line in ("3.9", "4.0", "4.1", "4.2", "4.3", "4.4")]
    path = written(tmp_path, 'targets = ["kafka-*"]\n[[matrix]]\n[[soak]]\ntargets = ["kafka-4.[34]"]')
    assert [outage.target for outage in matrix(path).outages] == [*every, "kafka-4.3", "kafka-4.4"]


def test_a_file_may_have_nothing_but_soaks_and_a_newer_patch_is_soaked_too(tmp_path: Path) -> None:
    path = written(tmp_path, "targets = ['kafka-4.1']\n[[soak]]")
    night = read_matrix(path, {}, lambda name: f"{name}.9" if name == "kafka-4.1" else None)
    assert [outage.target for outage in night.outages if outage.soak is not None] == ["kafka-4.1", "kafka-4.1.9"]
    assert len(night.outages) == 2


def test_a_soak_is_asked_for_its_minutes_and_what_it_tolerates(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("")
    path = written(
        tmp_path, f"targets = ['kafka-4.4']\n[[soak]]\nprotections = ['none', 'gate']\nexpect = '{tmp_path}/own.toml'"
    )
    night = matrix(path)
    plain, gated = (command_of(outage, night, Path("results"), 100.0) for outage in night.outages)
    head = ["soak", "--target", "kafka-4.4", "--minutes", "10", "--seed", "1"]
    assert plain == [*head, "--expect", f"{tmp_path}/own.toml", "--results", "results"]
    assert gated == [*head, "--gate", "--results", "results"]


def test_what_a_night_tolerates_by_default_is_every_finding_whose_cause_is_known(tmp_path: Path) -> None:
    night = matrix(written(tmp_path, "targets = ['kafka-4.4']\n[[soak]]"))
    words = command_of(night.outages[0], night, Path("results"), None)
    tolerated = read_expected(Path(words[words.index("--expect") + 1]))
    assert tolerated.keys() == {*NAMES} - {"hanging-transaction"}


def test_the_soaks_of_the_workflow_can_be_read() -> None:
    night = matrix(Path(__file__).parents[2] / ".github" / "soak.toml")
    assert {outage.soak for outage in night.outages} == {SoakCell(30.0, 1)}
    expected(night.cells, STANDARD)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        matrix(tmp_path / "none.toml")


def cell(target: str = "kafka-3.9", nemesis: str = "kill", scenario: str = "stuck-lso") -> Cell:
    return Cell(target, "librdkafka", nemesis, "local", scenario)


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (cell(), "anomaly"),
        (cell("kafka-4.4"), "anomaly"),
        (cell("kafka-4.1.0"), "anomaly"),
        (cell("kafka-4.4", "none"), "clean"),
        (cell("kafka-4.4", "clock-skew"), "clean"),
        (cell("kafka-5.0"), "anomaly"),
        (cell("kafka-5.0", "none"), "clean"),
        (cell("kafka-5.0", "relay"), "anomaly"),
        (cell("redpanda-25.3"), "clean"),
    ],
)
def test_what_this_release_expects(asked: Cell, verdict: str) -> None:
    assert expected([asked], STANDARD)[asked].verdict == verdict


def test_every_target_is_expected_to_say_something_but_the_one_that_may_go_either_way() -> None:
    actual = {name for name in TARGETS if any(entry.fits(cell(name)) for entry in STANDARD)}
    assert TARGETS.keys() - actual == {"redpanda-25.2"}


def test_entries_of_a_file_precede_those_of_this_release(tmp_path: Path) -> None:
    text = "[[expect]]\ntargets = ['kafka-4.4']\nanomalies = ['stuck-lso']\nverdict = 'clean'\nwhy = 'it was fixed'"
    asked = [cell("kafka-4.4"), cell("kafka-4.4", scenario="aborted-to-committed"), cell("kafka-4.3")]
    by_cell = expected(asked, read_expectations(written(tmp_path, text)))
    assert [by_cell[asked_cell].verdict for asked_cell in asked] == ["clean", "anomaly", "anomaly"]
    assert by_cell[asked[0]].why == "it was fixed"


def test_a_cell_of_which_nothing_is_reported_is_named() -> None:
    with pytest.raises(UsageError, match=r"no expectation fits redpanda-25\.2 stuck-lso librdkafka kill local: add"):
        expected([cell("redpanda-25.2")], STANDARD)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[expect]]\nverdict = 'unknown'", "entry 1: verdict is 'unknown'"),
        (
            "[[expect]]\nverdict = 'clean'\n[[expect]]\nverdict = 'clean'\ntarget = ['x']",
            "entry 2: unknown key 'target'; did you mean targets",
        ),
        ("[[expect]]\nverdict = 'clean'\ntargets = 'x'", "targets is 'x'"),
        ("expect = 1", "must consist of [[expect]] entries"),
        ("[expect", "is not TOML"),
    ],
)
def test_what_is_wrong_with_expectations_is_reported(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        read_expectations(written(tmp_path, text))
    assert says in str(raised.value)


def test_simulated_targets_live_in_no_other_runtime() -> None:
    outages = matrix(targets=["sim-kafka", "kafka-4.4"], runtimes=["local", "docker"]).outages
    assert [(outage.target, outage.runtime) for outage in outages] == [
        ("sim-kafka", "sim"), ("kafka-4.4", "local"), ("kafka-4.4", "docker"),
    ]  # fmt: skip
