"""`harness explore`: options, output and exit codes."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from click.testing import CliRunner
from documentation import ROOT

from harness.cli.develop import explore as command
from harness.errors import EXIT_ANOMALY, HarnessError
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.model_checking.explore.cases import COORDINATED, GATE, ClusterCase, cases
from harness.model_checking.explore.walk import WalkResult, summary, walk
from harness.models.log import redpanda
from harness.models.walk.exhaustive import Explored, explore
from harness.models.walk.state_space import ADD, Bound
from harness.models.world import coordination
from harness.models.world.groups import NEW, OLD
from harness.schedules.operations import Die, Operation
from harness.targets import SIM_KAFKA, SIM_REDPANDA

BOUND_S = 30
WRITES = Bound(writes=2, transactions=0)


STAY, ONE, TWO = map(Die, ("stay", "one", "two"))


def counting(state: int) -> list[tuple[Operation, int]]:
    """Lead from each number to the next ones, and nowhere from 7 on."""
    return [] if state >= 7 else [(STAY, state), (ONE, state + 1), (TWO, state + 2)]


def test_shortest_way_to_each_wrong_state_and_what_a_walk_says_that_ends_earlier() -> None:
    explored = explore(0, counting, lambda state: ["odd end"] if state == 7 else [], most_states=100)
    assert explored == Explored(states=9, transitions=14, depth=4, wrong={"odd end": (ONE, TWO, TWO, TWO)})
    explored = explore(0, counting, lambda _: [], most_states=3)
    assert (explored.states, explored.is_whole) == (3, False)
    explored = explore(0, counting, lambda state: ["two"] if state == 2 else [], most_states=100, first_only=True)
    assert (explored.wrong, explored.is_whole) == ({"two": (TWO,)}, False)


def clusters(
    target: str, with_: tuple[str, ...] = (), without: tuple[str, ...] = (), *, groups: bool = False
) -> list[ClusterCase]:
    every = cases(target, with_=with_, without=without, groups=groups)
    return [case for case in every if isinstance(case, ClusterCase)]


def test_cases_of_a_target_and_of_its_consumer_groups() -> None:
    alone = clusters(SIM_KAFKA)
    together = clusters(SIM_KAFKA, (COORDINATED,), ("late-rpc-ignored",))
    assert not any(case.coordinated for case in alone)
    assert all(case.coordinated and case.delayed for case in together)
    assert len({case.title for case in alone}) == len(alone)
    redpandas = clusters(SIM_REDPANDA, (), ("snapshot-first",))
    assert all(case.coordinated and not case.delayed for case in redpandas)
    assert [case.title for case in redpandas] == [case.title for case in clusters(SIM_REDPANDA)]
    gated = clusters(SIM_KAFKA, (GATE,))
    assert all(case.bound.gate and not case.coordinated for case in gated)
    assert gated[-1].title == "1 key, 1 plain write, 1 transaction, gate, change: unassign, then assign"
    assert all(case.bound.gate and case.coordinated for case in clusters(SIM_KAFKA, (COORDINATED, GATE)))
    assert together[2].title == "1 key, 2 plain writes, 0 transactions, change: add, no outage"
    assert ClusterCase(Bound(writes=1, transactions=2, change=ADD, epoch_bump=True)).title == (
        "1 key, 1 plain write, 2 transactions (v2), change: add"
    )
    chosen = clusters(SIM_KAFKA, groups=True)
    assert {case.bound.coordinator for case in chosen} == {OLD, NEW}
    assert len({case.title for case in chosen}) == len(chosen)
    assert chosen[0].title == "old coordinator, 1 key, 2 plain writes, 0 transactions, change: no change"
    together = clusters(SIM_KAFKA, (COORDINATED,), groups=True)
    assert {(case.coordinated, case.bound.coordinator) for case in together} == {(True, NEW)}


@pytest.mark.parametrize(("case", "most_states", "verdict"), [
    (ClusterCase(WRITES), 1000, ANOMALY),
    (ClusterCase(WRITES, coordinated=True), 10_000, CLEAN),
    (ClusterCase(WRITES, coordinated=True), 100, UNKNOWN),
    (ClusterCase(WRITES), 100, UNKNOWN),
])  # fmt: skip
def test_clean_only_where_all_was_seen(case: ClusterCase, most_states: int, verdict: str) -> None:
    messages: list[WalkResult] = []
    (walked,) = walk([case], processes=1, most_states=most_states, first_only=False, on_progress=messages.append)
    assert walked.verdict == verdict
    assert messages == [walked]
    assert summary(SIM_KAFKA, (), [walked])["verdict"] == verdict


class KilledCase(ClusterCase):
    """The kernel kills its process."""

    def walk(self, **_: object) -> Explored:
        os.kill(os.getpid(), signal.SIGKILL)
        return Explored()


def test_a_process_that_is_killed_ends_the_walk() -> None:
    with pytest.raises(HarnessError, match=r"explored '.+' was killed, as by a kernel"):
        walk([KilledCase(WRITES)] * 2, processes=2, most_states=1, first_only=False, on_progress=lambda _: None)


def explored_by_command(*options: str) -> str:
    """Return the output of the command for the first states of a cluster in which a value comes back."""
    words = ["--target", SIM_KAFKA, "--most-states", "300", *options]
    ran = CliRunner().invoke(command, words, standalone_mode=False)
    assert ran.return_value == EXIT_ANOMALY
    return ran.stdout


WAY = "in 7 steps: p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"


def test_the_command_tells_the_shortest_way_of_all_cases_also_as_json_and_for_groups() -> None:
    assert f"tombstone-divergence {WAY}" in explored_by_command()
    content = json.loads(explored_by_command("--format", "json"))
    first, second, *_ = content["cases"]
    assert (content["verdict"], first["states"], first["whole"], second["whole"]) == (ANOMALY, 274, True, False)
    shown = explored_by_command("--groups")
    assert f"deleted-offset-back {WAY}" in shown
    assert "deleted-offset-back-at-reload in 4 steps: p puts K; t puts K; p deletes K; t commits" in shown
    assert "tombstone-divergence" not in shown


def test_the_page_on_coordinated_compaction_has_each_rule_and_its_meaning() -> None:
    page = (ROOT / "docs/explanation/coordinated-compaction.md").read_text(encoding="utf-8")
    rules = {**redpanda.RULES, **coordination.RULES}
    for rule in (*coordination.RULES, "free-not-ended", "committed-is-plain"):
        assert f"| `{rule}` | {rules[rule]} |" in page


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_walks_on_alone(number: signal.Signals) -> None:
    """However the command ends, its workers end."""
    command = [sys.executable, "-m", "harness.cli.main", "explore", "--target", SIM_KAFKA, "--with", COORDINATED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "states" in process.stderr.readline()
        workers = psutil.Process(process.pid).children(recursive=True)
        assert workers
        process.send_signal(number)
        process.wait(BOUND_S)
        process.communicate(timeout=BOUND_S)
    _, alive = psutil.wait_procs(workers, timeout=BOUND_S)
    assert not alive
