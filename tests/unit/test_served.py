"""Systems that a TOML file describes, and runs that are judged by what clients are served."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from in_process import exit_code
from pyspark.sql import SparkSession
from simulated import simulate

from harness.errors import HarnessError, UsageError
from harness.host import leftovers
from harness.host.clock import RealClock
from harness.judge.check import check_folder, judge_run
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.run_folder.store import RunFolder
from harness.runtimes.base import ClusterSpec
from harness.runtimes.local import LocalRuntime
from harness.targets import YOUR_OWN, find_target
from harness.targets.own import Abilities, BrokerRecipe, SystemFile

OPEN = "open"
WRITES = (("K", "v1", 0), ("S", "older", 3), ("S", "newer", 4))
"""Key, value and offset; offset 1 is written in a transaction, 2 is its marker."""
EARLIER = (0, 3, 4)
HEALTHY = (0, 4)


def history(end: str | None, polls: tuple[tuple[int, ...], ...], *, key: str = "K", value: str | None = "v2") -> str:
    """Return the lines of a run in which ``t`` writes a key at offset 1, and each poll delivers these offsets."""
    keys = {1: key, **{offset: written for written, _, offset in WRITES}}
    events: list[dict[str, Any]] = []

    def add(f: str, *, kind: str = "ok", **more: Any) -> None:
        common = {"f": f, "op": len(events) // 2, "part": "payload", "topic": "T", "partition": 0, "process": "p"}
        events.extend({"type": at, **common, **more} for at in ("invoke", kind))

    def produce(written: str, content: str | None, offset: int, **more: Any) -> None:
        add("produce", key=written, tombstone=content is None, offset=offset, **more)
        del events[-2]["offset"]

    produce(*WRITES[0])
    produce(key, value, 1, transactional_id="t", txn=1)
    if end != OPEN:
        add(end or "abort", kind="ok" if end else "info", transactional_id="t", txn=1, topic=None, partition=None)
    for write in WRITES[1:]:
        produce(*write)
    for offsets in polls:
        records = [{"offset": offset, "key": keys.get(offset, "?"), "value": "v"} for offset in offsets]
        add("poll", broker=1, part="reader", records=records, position=5)
        del events[-2]["records"]
    lines = ({"index": n, "time_ms": n, **event} for n, event in enumerate(events))
    return "".join(json.dumps({name: v for name, v in line.items() if v is not None}) + "\n" for line in lines)


MANIFEST: dict[str, Any] = {
    "schema": 1, "run_id": "r", "status": "complete", "failure": None, "command": None, "nemesis": "none",
    "target": {"name": "own-x-00000000", "version": "1", "note": "", "status": "your own"},
    "absent_brokers": [], "takes_away": False, "control": "control", "timings_s": {"clean": 60.0},
    "topic_settings": {"max.compaction.lag.ms": "1", "delete.retention.ms": "1", "producer.id.expiration.ms": "1"},
    "scenarios": [
        {"name": "T", "anomaly": "served", "payload": "value", "topic": "T", "replicas": {"0": [1]},
         "critical": ["superseded record"]},
    ],
}  # fmt: skip

ABORTED, LOST = ("uncommitted-delivered", 1), ("committed-lost", 0)
CASES: dict[str, tuple[str, str, set[tuple[str, int]], str]] = {
    "a healthy system": (history("abort", (EARLIER, HEALTHY)), "clean", set(), "superseded record"),
    "an aborted record is delivered":
        (history("abort", (EARLIER, (0, 1, 4)), key="poison"), "anomaly", {ABORTED}, "t/1"),
    "an aborted record replaces a committed value":
        (history("abort", (EARLIER, (1, 4))), "anomaly", {ABORTED, LOST}, "ends with the record at offset 1"),
    "an aborted delete removes a committed value":
        (history("abort", (EARLIER, (4,)), value=None), "anomaly", {LOST}, "no record"),
    "a committed delete": (history("commit", (EARLIER, (1, 4)), value=None), "clean", set(), "superseded record"),
    "a committed value is lost":
        (history("commit", (EARLIER, (0, 4))), "anomaly", {("committed-lost", 1)}, "the record at offset 0"),
    "compaction was not seen": (history("abort", (EARLIER, EARLIER)), "unknown", set(), "compaction was not seen"),
    "an open transaction": (history(OPEN, (EARLIER, (0,))), "unknown", set(), "no replica shows it"),
    "a record of an open transaction is delivered":
        (history(OPEN, (EARLIER, (1, 4))), "anomaly", {ABORTED, LOST}, "of transaction t/1, which is open"),
    "an unknown outcome": (history(None, (EARLIER, (0, 1, 4)), key="x"), "unknown", set(), "no client knows"),
    "a record of nobody": (history("abort", (EARLIER, (0, 4, 7))), "unknown", set(), "no client is known to have"),
    "nothing is delivered":
        (history("abort", (EARLIER, ())), "anomaly", {LOST, ("committed-lost", 4)}, "ends with no record"),
    "no poll": (history("abort", ()), "unknown", set(), "nothing is known"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_clients_are_served_is_judged_by_their_history(name: str, spark: SparkSession, tmp_path: Path) -> None:
    lines, expected, findings, says = CASES[name]
    folder = RunFolder(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    folder.history_path.write_text(lines)
    verdict = judge_run(check_folder(spark, folder), folder, MANIFEST)
    assert (verdict.verdict, {(f.anomaly, f.offset) for f in verdict.findings}) == (expected, findings)
    assert says in " ".join([verdict.reason, *(finding.explanation for finding in verdict.findings)])
    assert verdict.notes == ("the target own-x-00000000 is your own",)


def test_a_run_on_simulated_brokers_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", "sim-kafka", "served")
    scenarios = [
        {"name": s.name, "anomaly": s.anomaly, "payload": s.payload, "topic": s.topic, "critical": [*s.critical],
         "replicas": {"0": [1]}}
        for s in run.plan.scenarios
    ]  # fmt: skip
    manifest = {**MANIFEST, "scenarios": scenarios, "control": scenarios[0]["name"]}
    run.folder.manifest_path.write_text(json.dumps(manifest))
    verdict = judge_run(check_folder(spark, run.folder), run.folder, manifest)
    assert [(s.scenario, s.verdict) for s in verdict.scenarios] == [(s.name, "clean") for s in run.plan.scenarios]
    assert len(verdict.scenarios) == 5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nemesis": "pause"}, "--nemesis pause"), ({"guard": True}, "--guard"),
        ({"application": "streams"}, "--application"), ({"anomaly": "served,stuck-lso"}, "a run of its own"),
    ],
)  # fmt: skip
def test_options_about_faults_contradict_a_run_without_one(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_run(RunOptions(**{"target": "kafka-4.4", "anomaly": "served", **options}))


def test_a_served_run_has_no_absent_broker_and_no_control() -> None:
    plan = plan_run(RunOptions("kafka-4.4", "served"))
    assert (plan.placement.absent, plan.nemesis.name) == ((), "none")
    assert {scenario.anomaly for scenario in plan.scenarios} == {"served"}


EXAMPLES = Path(__file__).parents[2] / "examples" / "systems"
Capture = pytest.CaptureFixture[str]
BOUND_S = 20.0
Make = Callable[[str], LocalRuntime]
MINIMAL = 'name = "x"\n[broker]\ncommand = ["run", "{id}"]\n[supports]\ntransactions = true\n'


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "cache"))


def stored(tmp_path: Path, text: str) -> SystemFile:
    (tmp_path / "system.toml").write_text(text)
    own = find_target(str(tmp_path / "system.toml")).own
    assert own is not None
    return own


@pytest.mark.parametrize("name", ["kafka", "tansu"])
def test_examples_are_targets_and_their_copies_are_the_same_targets(name: str) -> None:
    target = find_target(str(EXAMPLES / f"{name}.toml"))
    assert (target.own and target.own.name, target.status) == (name, YOUR_OWN)
    assert find_target(target.name) == target


def test_the_minimal_file_of_the_page_is_a_system(tmp_path: Path) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "extending" / "own-system.md").read_text()
    _, block = page.split("A minimal file:\n\n")
    lines = [line.strip() for line in block.split("\n\n")[0].splitlines()]
    assert stored(tmp_path, "\n".join(lines)).supports.transactions
    keys = [name for kind in (BrokerRecipe, Abilities) for name in kind.__dataclass_fields__]
    assert [key for key in keys if not re.search(rf"`(broker|supports)\.{key}`", page)] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name =", "nme ="), "unknown key 'nme'"),
        (("command", "comand"), "[broker]: unknown key 'comand'"),
        (('["run", "{id}"]', '"run"'), "broker.command is str"),
        (('["run", "{id}"]', "[]"), "broker.command is empty"),
        (("{id}", "{nid}"), "broker has the unknown placeholder {nid}"),
        (('name = "x"', 'name = "X/../y"'), "name is"),
        (("[supports]", 'stop = "SIGNOT"\n[supports]'), "broker.stop is"),
        (("[supports]", 'ready = "log:("\n[supports]'), "broker.ready is"),
        (("[supports]", "[supports]\nbrokers = 0"), "supports.brokers is 0"),
        (("[supports]\n", "[supports\n"), "is not TOML"),
    ],
)
def test_a_wrong_file_is_one_error_with_file_and_key(change: tuple[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        stored(tmp_path, MINIMAL.replace(*change))
    assert str(tmp_path / "system.toml") in str(error.value)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--anomaly", "stuck-lso"), "tansu supports 1 (supports.brokers)"),
        (("--anomaly", "served", "--gate"), "--gate is for Kafka's brokers only"),
        (("--anomaly", "served", "--runtime", "docker"), "does not run there; choose local"),
    ],
)
def test_what_a_system_does_not_support_is_rejected_before_anything_starts(
    options: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, "run", "--target", str(EXAMPLES / "tansu.toml"), *options) == 254
    assert says in capfd.readouterr().err
    assert not (tmp_path / "results").exists()


def test_each_missing_ability_is_named(tmp_path: Path) -> None:
    text = MINIMAL + 'brokers = 3\nadministration = true\ntimers = ["*.ms"]\n'
    stored(tmp_path, text)
    lacking = r"need: end_transactions, replica_fetch, kafka_logs, timers min.cleanable.dirty.ratio \("
    with pytest.raises(UsageError, match=lacking):
        plan_run(RunOptions(str(tmp_path / "system.toml"), "stuck-lso"))
    stored(tmp_path, text.replace("transactions = true", ""))
    with pytest.raises(UsageError, match=r"does not support transactions"):
        plan_run(RunOptions(str(tmp_path / "system.toml"), "served"))


SCRIPT = """name = "script"
[broker]
prepare = ["sh", "-c", "echo {cluster_id} >> {data_dir}/prepared"]
command = ["sh", "-c", "trap 'echo bye; exit' USR1; sleep 600 & echo up {id} $ONE {peers} {extra}; wait"]
config = "at {host}:{port}\\n{settings}\\nother: {id} { x: 1 }"
setting = "set {name} to {value}"
stop = "SIGUSR1"
ready = "log:^up {id}"
ports = ["extra"]
[broker.environment]
ONE = "of-{id}"
[broker.lists]
peers = "{id}@{extra}"
[supports]
brokers = 2
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Make:

    def make(text: str) -> LocalRuntime:
        spec = ClusterSpec("own-run", tmp_path / "work", tmp_path / "logs", {"a.b": "1"}, (1, 2))
        return LocalRuntime(spec, Path("java"), "", system=stored(tmp_path, text))

    return make


def test_brokers_are_prepared_configured_started_and_stopped_as_the_file_says(runtime: Make, tmp_path: Path) -> None:
    subject, wait = runtime(SCRIPT.replace("^up {id}", "^up")), partial(RealClock().wait_until, timeout_s=BOUND_S)
    own = subject.own
    assert own is not None
    with closing(subject):
        subject.start_cluster()
        wait(lambda: own.ready() == {1, 2}, description="both brokers")
        log = subject.spec.log_path(2)
        ports = [own.ports[broker]["extra"] for broker in (1, 2)]
        assert log.read_text() == f"up 2 of-2 1@{ports[0]},2@{ports[1]} {ports[1]}\n"
        wait(lambda: len(leftovers.processes_of("own-run")) == 4, description="each broker and its child")
        subject.stop(2)
        wait(lambda: log.read_text().endswith("bye\n"), description="the signal of the file")
        subject.start(2)
        wait(lambda: log.read_text().count("up 2") == 2, description="the second start")
    wait(lambda: not leftovers.processes_of("own-run"), description="the end of the children")
    home = tmp_path / "work" / "broker-2"
    assert (home / "data" / "prepared").read_text() == f"{own.cluster_id}\n"
    assert (home / "config").read_text() == f"at {subject.address(2)}\nset a.b to 1\nother: 2 {{ x: 1 }}"


def test_a_broker_that_ends_by_itself_is_an_error(runtime: Make) -> None:
    subject = runtime('name = "x"\n[broker]\ncommand = ["sh", "-c", "echo broken; exit 3"]\n[supports]\nbrokers = 2\n')
    with closing(subject):
        subject.start_cluster()
        for process in subject._processes.values():
            process.wait(BOUND_S)
        with pytest.raises(HarnessError, match=r"ended by itself \(exit code 3\)(.|\n)*broken"):
            subject.raise_if_died()
