"""The tests' verdict on a mutant: the first test that fails for it.

The literal histories of ``tests/unit`` and a few generated clusters are read once, and judged once by the code as is.
Of a mutant only those tables are computed whose plans it changes; then the tests are called on what came of all.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from itertools import chain, count, product
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any, Final

import networkx as nx
import pytest
import test_audit_checkers
import test_audit_reduced
import test_audit_spooled
import test_checkers
import test_guarantees
import test_reduction
from audit_cases import CASES as AUDIT_CASES
from checker_cases import CASES
from checker_cases.exposures import EXPOSURES
from copied import write_copies
from generate import Case
from literal import write_run
from matching import complaints
from mutants import Mutant, unchanged
from mutated import Code, in_place
from pyspark.sql import DataFrame, SparkSession
from test_audit import dealt, found_in, is_missed_marker, written_copies
from test_audit_checkers import Verdicts

import checkers.finding
import checkers.replay.truth
from checkers.anomalies import FINDERS
from checkers.evidence.tables import Evidence, load, load_copies
from checkers.reduction.reduce import Reduced
from checkers.replay.judged import Judged
from harness.audit.judge_copies import KEY_STATES
from harness.broker_files.copies.copies import Copies, find_copies
from harness.json_codec import to_json
from harness.judge.check import collected
from harness.run_folder.store import RunFolder

Rows = dict[str, list[dict[str, Any]]]
Trial = Callable[["Stand", Mutant, Code], str | None]
RUNS, COPIES = "runs", "copies"
REDUCING: Final = frozenset(
    f"checkers.reduction.{name}"
    for name in (
        "beliefs", "candidate_keys", "consistent_spans", "packed_spans", "reduce", "segments", "unsettled_spans",
    )
)  # fmt: skip
"""The modules that are used for big copies alone."""

UNITS: Final = {
    "checkers.attribution.blame": "test_blame", "checkers.attribution.coverage": "test_coverage",
    "checkers.consistency.side_files": "test_txnindex_disagreement", "checkers.replay.judged": "test_judged",
}  # fmt: skip
"""Modules with separate tests in ``tests/unit`` that need at most Spark."""

_THREADS = 2
_MOST_READINGS = 30  # by all trials of a mutant: more than the unchanged code needs


class Remembered:
    """What was made of DataFrames, by their plans, and what they hold: the same need not be computed again.

    ``is_full``: nothing more is to be kept. Mutants would fill the JVM's heap.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._made: dict[int, list[tuple[DataFrame, Any]]] = {}
        self._holding: dict[tuple[Any, ...], DataFrame] = {}

    def get(self, rows: DataFrame, make: Callable[[DataFrame], Any]) -> Any:
        number = rows.semanticHash()
        for plan, made in self._made.get(number, []):
            if plan.sameSemantics(rows):
                return made
        made = make(rows)
        if not self.is_full:
            self._made.setdefault(number, []).append((rows, made))
        return made

    def alike(self, rows: DataFrame) -> DataFrame:
        """Compute a small table; return the one that holds the same, so that what is planned from it is the same."""
        content = (*rows.dtypes, *sorted(map(repr, rows.collect())))
        if not self.is_full:
            self._holding.setdefault(content, rows)
        return self._holding.get(content, rows)


DERIVED: Final = {
    RUNS: frozenset({"checkers.replay.judged"}),
    COPIES: frozenset({"checkers.replay.judged", "checkers.replay.batch_outcomes", "checkers.consistency.side_files"}),
}
"""The modules that make of the evidence what checkers are given."""


@dataclass(frozen=True)
class Stand:
    """The input of the judges, and the findings of the unchanged code.

    ``judged`` and ``rows``: by runs and copies. ``users``: of a module all that import it, by whatever way.
    """

    top: Path
    cases: tuple[Case, ...]
    copies: tuple[Copies, ...]
    given: test_audit_reduced.Given
    evidence: Mapping[str, Evidence]
    remembered: Remembered
    judged: dict[str, Judged]
    rows: dict[str, Rows]
    users: dict[str, frozenset[str]]


def build(spark: SparkSession, top: Path, cases: Sequence[Case]) -> Stand:
    """Write and read all cases, and judge them by the code as it is."""
    (top / RUNS).mkdir()
    histories = [*(case.history for case in CASES), *EXPOSURES, *(case.history for case in test_guarantees.CASES)]
    folders = [write_run(top / RUNS, history) for history in histories]
    copies = []
    for literal in AUDIT_CASES:
        brokers = write_copies(top / literal.name, *literal.copies)
        literal.spoil(top / literal.name)
        copies.append(find_copies(brokers, ["t"], literal.name))
    for name, served in test_audit_spooled.CASES.items():
        copies.append(test_audit_spooled.spooled(name, served, RunFolder(top / name)))
    copies.extend(written_copies(case, top / COPIES) for case in cases)
    given = test_audit_reduced.given(top / "reduced")
    evidence = {RUNS: load(spark, folders), COPIES: load_copies(spark, copies)}
    with in_place(unchanged(checkers.replay.truth)) as code:
        stand = Stand(top, tuple(cases), tuple(copies), given, evidence, Remembered(), {}, {}, _users(code))
        _remember(stand, code)
        for kind, read in evidence.items():
            stand.judged[kind] = _judged(code, kind, read)
            stand.rows[kind] = _rows(stand, _tables(code, kind, stand.judged[kind]))
    stand.remembered.is_full = True
    return stand


def failed(stand: Stand, mutant: Mutant) -> str | None:
    """Return the name of the first test that fails for a mutant, or the raised error; None if all pass."""
    is_for_big = mutant.module in REDUCING
    with in_place(mutant) as code:
        if not is_for_big:
            _remember(stand, code)
        trials: list[Trial] = [] if is_for_big else [_failed_units, _failed_runs, _failed_copies]
        # Only a big partition has more findings than are listed.
        if is_for_big or mutant.module == checkers.finding.__name__:
            trials.append(_failed_reduced)
        for trial in trials:
            try:
                failure = trial(stand, mutant, code)
            except Exception as error:  # noqa: BLE001  (any error would be noticed)
                # Except for a JVM that has died: afterwards every mutant would raise.
                _spark(stand).range(1).count()
                return f"{trial.__name__}: {type(error).__name__}"
            if failure is not None:
                return failure
    return None


def _rows_of(stand: Stand, mutant: Mutant, code: Code, kind: str) -> Rows:
    """Return the findings of all checkers; checkers that do not use the mutant are not even planned."""
    users = stand.users[mutant.module]
    is_judged = users.isdisjoint(DERIVED[kind])
    judged = stand.judged[kind] if is_judged else _judged(code, kind, stand.evidence[kind])
    tables = _tables(code, kind, judged)
    changed = {name: table for name, table in tables.items() if not is_judged or table.module in users}
    rows = {**stand.rows[kind], **_rows(stand, changed)}
    return rows if kind == RUNS else {**rows, KEY_STATES: code.copies.key_state_rows(judged, rows)}


def _users(code: Code) -> dict[str, frozenset[str]]:
    uses: nx.DiGraph[str] = nx.DiGraph()
    uses.add_nodes_from(code.modules)
    uses.add_edges_from((name, used) for name, module in code.modules.items() for used in _imported(module))
    return {name: frozenset({name, *nx.ancestors(uses, name)}) for name in code.modules}


def _imported(module: ModuleType) -> set[str]:
    return {
        name
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    }


def _remember(stand: Stand, code: Code) -> None:
    """Let the code that is in place keep nothing twice: not what the unchanged code has kept."""
    keep = code.modules["checkers.evidence.tables"].checkpointed

    def checkpointed(rows: DataFrame) -> DataFrame:
        found: DataFrame = stand.remembered.get(rows, lambda plan: stand.remembered.alike(keep(plan)))
        return found

    for module in code.modules.values():
        if vars(module).get("checkpointed") is keep:
            vars(module)["checkpointed"] = checkpointed


@dataclass(frozen=True)
class _Table:
    module: str
    plan: Callable[[], DataFrame]


def _judged(code: Code, kind: str, known: Evidence) -> Judged:
    modules = code.modules
    parts = {one.name: getattr(known, one.name) for one in fields(known)}
    evidence = modules["checkers.evidence.tables"].Evidence(**parts)
    judged: Judged = (modules["checkers.replay.judged"].judge if kind == RUNS else code.copies.judge_copied)(evidence)
    return judged


def _tables(code: Code, kind: str, judged: Judged) -> dict[str, _Table]:
    """Return what `harness.judge.check.prepare` and `harness.audit.judge_copies.judge_whole` ask for."""
    checks = code.runs.CHECKERS if kind == RUNS else code.copies.CHECKERS
    return {name: _Table(check.__module__, partial(check, judged)) for name, check in checks.items()}


def _rows(stand: Stand, tables: Mapping[str, _Table]) -> Rows:
    with ThreadPoolExecutor(_THREADS) as pool:
        rows = pool.map(lambda table: stand.remembered.get(table.plan(), collected), tables.values())
        return dict(zip(tables, rows, strict=True))


def _failed_units(stand: Stand, mutant: Mutant, _: Code) -> str | None:
    """Call the module's own tests, loaded again so that they import the mutant."""
    name = UNITS.get(mutant.module)
    if name is None:
        return None
    kept = sys.modules.pop(name, None)
    try:
        module = import_module(name)
        spark, folder = _spark(stand), Path(mkdtemp(dir=stand.top))
        return _failing(module) or _failing(module, spark=spark) or _failing(module, spark=spark, tmp_path=folder)
    finally:
        del sys.modules[name]
        if kept is not None:
            sys.modules[name] = kept


def _failed_runs(stand: Stand, mutant: Mutant, code: Code) -> str | None:
    rows = _rows_of(stand, mutant, code, RUNS)
    by_run = test_checkers.by_run
    findings = [row for name in FINDERS for row in rows.get(name, [])]
    results = test_checkers.Results(by_run(findings), by_run(rows["doubts"]), by_run(rows["exposure"]))
    return _failing(test_checkers, results=results) or _failing(test_guarantees, guaranteed=by_run(rows["guarantees"]))


def _failed_copies(stand: Stand, mutant: Mutant, code: Code) -> str | None:
    verdicts = _verdicts(stand, code, _rows_of(stand, mutant, code, COPIES))
    # Nothing is released, and nothing reduced by itself.
    return _complaint(stand, verdicts, test_audit_checkers.LET_GO, alone=verdicts)


def _failed_reduced(stand: Stand, _: Mutant, code: Code) -> str | None:
    """Judge all copies as if they were big."""

    def reduced(copies: Sequence[Copies], **more: int) -> Reduced:
        left: Reduced = code.modules["checkers.reduction.reduce"].reduce_copies(_spark(stand), copies, _THREADS, **more)
        return left

    _end_loops(code.modules["checkers.reduction.reduce"])
    judge, modules = code.copies.judge_reduced, code.modules
    for name, given in (
        ("cut_further", modules["checkers.reduction.reduce"].cut_further),
        ("differing_places", modules["checkers.reduction.beliefs"].differing_places),
        ("sorted_spans", modules["checkers.reduction.consistent_spans"].SortedSpans),
    ):
        if failure := _failing(test_reduction, **{name: given}):
            return failure
    every = reduced(stand.copies)
    let_go = {run for run, *_ in every.cleared} & {case.name for case in AUDIT_CASES}
    verdicts = _verdicts(stand, code, judge(every))
    failure = _complaint(stand, verdicts, let_go, alone=verdicts) or _failing(
        test_audit_reduced, results=test_audit_reduced.said_of(stand.given, lambda one: reduced([one]), judge)
    )
    if failure:
        return failure
    in_chunks = _verdicts(stand, code, judge(reduced(stand.copies, chunk_offsets=3)))
    if failure := _complaint(stand, in_chunks, let_go, alone=in_chunks):
        return failure
    # Last, as it takes longest.
    alone = test_audit_checkers.judged_alone(stand.copies, lambda one: judge(reduced([one])))
    return _complaint(stand, verdicts, let_go, alone=alone)


def _end_loops(module: Any) -> None:
    """Let a mutant that reads the same copies for ever fail."""
    read, numbers = module._read_beliefs, count()

    def read_beliefs(*given: Any, **more: Any) -> Any:
        if next(numbers) > _MOST_READINGS:
            raise RuntimeError("the copies are read for ever")
        return read(*given, **more)

    module._read_beliefs = read_beliefs


def _spark(stand: Stand) -> SparkSession:
    return stand.evidence[COPIES].entries.sparkSession


def _verdicts(stand: Stand, code: Code, rows: Rows) -> Verdicts:
    rows_of = dealt(stand.copies, {**code.copies.NO_ROWS, **rows})
    return {one.run_id: to_json(code.copies.assemble(one, rows_of[one.run_id], timings_s={})) for one in stand.copies}


def _complaint(stand: Stand, verdicts: Verdicts, let_go: set[str], *, alone: Verdicts) -> str | None:
    every_way = dict.fromkeys(test_audit_checkers.WAYS, verdicts)
    results = test_audit_checkers.Results(stand.top, every_way, let_go, alone)
    if failure := _failing(test_audit_checkers, results=results) or _failing(test_audit_spooled, verdicts=verdicts):
        return failure
    for case in stand.cases:
        kind = case.name.rpartition("-")[0]
        found = [one for one in found_in(verdicts[case.name]) if not is_missed_marker(kind, one)]
        for complaint in (*complaints(case, found), *verdicts[case.name]["doubts"]):
            return str(complaint)
    return None


def _failing(module: ModuleType, **given: Any) -> str | None:
    """Call the tests of a module that use only their input; return the first one that fails."""
    for name, test in vars(module).items():
        if not name.startswith("test_"):
            continue
        wanted = inspect.signature(test).parameters.keys() - given.keys()
        for arguments in _arguments(test):
            if given.keys() <= inspect.signature(test).parameters.keys() and arguments.keys() == wanted:
                try:
                    test(**given, **arguments)
                except (AssertionError, LookupError, ValueError, RuntimeError, pytest.fail.Exception):
                    return f"{module.__name__}.{name}: {', '.join(map(_name, arguments.values()))}"
    return None


def _name(argument: Any) -> str:
    return str(getattr(argument, "name", None) or getattr(getattr(argument, "history", None), "name", argument))


def _arguments(test: Any) -> Iterator[dict[str, Any]]:
    """Yield each set of arguments that a test is parametrized with."""
    marks = [mark.args for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for values in product(*(given for _, given in marks)):
        pairs = zip((names for names, _ in marks), values, strict=True)
        yield dict(chain.from_iterable(_named(names, value) for names, value in pairs))


def _named(names: str | Sequence[str], value: Any) -> Iterable[tuple[str, Any]]:
    """Pair the names of one mark with one of its values, bare or a `pytest.param`."""
    values = value.values if isinstance(value, type(pytest.param())) else [value] if isinstance(names, str) else value
    return zip([names] if isinstance(names, str) else names, values, strict=True)
