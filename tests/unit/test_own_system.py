"""Systems that a TOML file describes: what a file may say, and processes of such a system."""

import os
import re
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from harness.errors import HarnessError, UsageError
from harness.host import leftovers
from harness.host.clock import RealClock
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.runtimes.base import ClusterSpec
from harness.runtimes.local import LocalRuntime
from harness.targets import YOUR_OWN, find_target
from harness.targets.own import Abilities, BrokerRecipe, SystemFile

EXAMPLES = Path(__file__).parents[2] / "examples" / "systems"
Capture = pytest.CaptureFixture[str]
BOUND_S = 20.0
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


@pytest.mark.parametrize(("change", "says"), [
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
])  # fmt: skip
def test_a_wrong_file_is_one_error_with_file_and_key(change: tuple[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        stored(tmp_path, MINIMAL.replace(*change))
    assert str(tmp_path / "system.toml") in str(error.value)
    assert says in str(error.value)


def test_each_missing_ability_is_named(tmp_path: Path) -> None:
    text = MINIMAL + 'brokers = 3\nadministration = true\ntimers = ["*.ms"]\n'
    stored(tmp_path, text)
    lacking = r"need: end_transactions, replica_fetch, kafka_logs, timers min.cleanable.dirty.ratio \("
    with pytest.raises(UsageError, match=lacking):
        plan_run(RunOptions(str(tmp_path / "system.toml"), "stuck-lso"))
    stored(tmp_path, text.replace("transactions = true", ""))
    with pytest.raises(UsageError, match=r"does not support transactions"):
        plan_run(RunOptions(str(tmp_path / "system.toml"), "served"))


RUN = f"own-run-{os.getpid()}"
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


def runtime(folder: Path, text: str) -> LocalRuntime:
    spec = ClusterSpec(RUN, folder / "work", folder / "logs", {"a.b": "1"}, (1, 2))
    return LocalRuntime(spec, Path("java"), "", system=stored(folder, text))


def test_brokers_are_prepared_configured_started_and_stopped_as_the_file_says(tmp_path: Path) -> None:
    subject = runtime(tmp_path, SCRIPT.replace("^up {id}", "^up"))
    wait = partial(RealClock().wait_until, timeout_s=BOUND_S)
    own = subject.own
    assert own is not None
    with closing(subject):
        subject.start_cluster()
        wait(lambda: own.ready() == {1, 2}, description="both brokers")
        log = subject.spec.log_path(2)
        ports = [own.ports[broker]["extra"] for broker in (1, 2)]
        assert log.read_text() == f"up 2 of-2 1@{ports[0]},2@{ports[1]} {ports[1]}\n"
        wait(lambda: len(leftovers.processes_of(RUN)) == 4, description="each broker and its child")
        subject.stop(2)
        wait(lambda: log.read_text().endswith("bye\n"), description="the signal of the file")
        subject.start(2)
        wait(lambda: log.read_text().count("up 2") == 2, description="the second start")
        assert own.log_starts == {1: 0, 2: log.read_text().rindex("up 2")}
        own.log_starts[2] = log.stat().st_size
        assert own.ready() == {1}, "earlier lines are of an earlier start"
        # A child that is forked and does not run its program yet is not found by its environment.
        wait(lambda: len(leftovers.processes_of(RUN)) == 4, description="each broker and its child again")
    wait(lambda: not leftovers.processes_of(RUN), description="the end of the children")
    home = tmp_path / "work" / "broker-2"
    assert (home / "data" / "prepared").read_text() == f"{own.cluster_id}\n"
    assert (home / "config").read_text() == f"at {subject.address(2)}\nset a.b to 1\nother: 2 {{ x: 1 }}"


def test_a_broker_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    subject = runtime(
        tmp_path, 'name = "x"\n[broker]\ncommand = ["sh", "-c", "echo broken; exit 3"]\n[supports]\nbrokers = 2\n'
    )
    with closing(subject):
        subject.start_cluster()
        for process in subject._processes.values():
            process.wait(BOUND_S)
        with pytest.raises(HarnessError, match=r"ended by itself \(exit code 3\)(.|\n)*broken"):
            subject.raise_if_died()
