"""The audit against generated clusters: all that was planted is found, by its name and place, and nothing else.

All cases are judged in one job, once by all that they hold and once by what the reduction leaves of them, in chunks of
16 offsets: both must say the same. To see a case again:

    python -m pytest tests/quality --quality-seed SEED --quality-runs 1
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from diverged import Diverged
from generate import LEGAL, Case, generate
from matching import Found, complaints
from planted import SAME_OUTCOME
from pyspark.sql import SparkSession

from checkers.evidence.tables import load_copies
from checkers.finding import UNEXPLAINED_DIVERGENCE
from checkers.reduction.reduce import reduce_copies
from harness.audit.judge_copies import Rows, assemble, judge_reduced, judge_whole
from harness.broker_files.copies.copies import Copies, find_copies
from harness.json_codec import to_json
from harness.judge.finding import CheckerRow
from harness.judge.verdict import ANOMALY

Verdicts = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def cases(all_seeds: dict[str, range]) -> list[Case]:
    return [generate(seed, kind) for kind, seeds in all_seeds.items() for seed in seeds]


@pytest.fixture(scope="module")
def copies(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> list[Copies]:
    top = tmp_path_factory.mktemp("cases")
    return [written_copies(case, top) for case in cases]


def written_copies(case: Case | Diverged, top: Path) -> Copies:
    brokers = {broker: [folder] for broker, folder in case.write(top).items()}
    return find_copies(brokers, ["*"], case.name)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, copies: list[Copies]) -> Verdicts:
    return verdicts(copies, judge_whole(load_copies(spark, copies)))


@pytest.fixture(scope="module")
def reduced(spark: SparkSession, copies: list[Copies]) -> Verdicts:
    return verdicts(copies, judge_reduced(reduce_copies(spark, copies, tasks=2, chunk_offsets=16)))


def verdicts(copies: list[Copies], rows: dict[str, Rows]) -> Verdicts:
    assert rows["raised"] == []
    rows_of = dealt(copies, rows)
    return {one.run_id: to_json(assemble(one, rows_of[one.run_id], timings_s={})) for one in copies}


def dealt(copies: Sequence[Copies], rows: Mapping[str, Rows]) -> Mapping[str, Mapping[str, Rows]]:
    """Return the rows of each case: assembling thousands of verdicts, each would look at all of them."""
    rows_of: dict[str, dict[str, list[CheckerRow]]] = {
        one.run_id: {**{name: [] for name in rows}, "raised": list(rows["raised"])} for one in copies
    }
    for name, table in rows.items():
        for row in table:
            if "run" in row:
                rows_of[row["run"]][name].append(row)
    return rows_of


def found_in(verdict: dict[str, Any]) -> list[Found]:
    return [
        Found(
            **{name: finding[name] for name in ("anomaly", "topic", "partition", "offset", "effect")},
            candidates=frozenset(finding["candidates"]),
            brokers=frozenset(
                broker for group in finding["disagree"] if not finding["decided"] for broker in group["brokers"]
            )
            or frozenset({finding["broker"]}),
            key=key_of(finding["key"]),
        )
        for finding in verdict["findings"]
    ]


def key_of(content: dict[str, str] | None) -> bytes | None:
    if content is None:
        return None
    return content["text"].encode() if "text" in content else base64.b64decode(content["base64"])


def is_missed_marker(kind: str, found: Found) -> bool:
    """A marker was missed, and the next one agrees: the log alone shows the former, which may be reported."""
    return kind == SAME_OUTCOME and found.anomaly == UNEXPLAINED_DIVERGENCE and bool(found.candidates)


@pytest.mark.commit("sample-reduced")
@pytest.mark.parametrize("how", ["whole", "reduced"])
def test_planted_wrongs_are_found_alone(kind: str, how: str, cases: list[Case], request: pytest.FixtureRequest) -> None:
    judged: Verdicts = request.getfixturevalue(how)
    mine = [case for case in cases if case.name.rpartition("-")[0] == kind]
    wrong = [
        line
        for case in mine
        for line in complaints(case, [one for one in found_in(judged[case.name]) if not is_missed_marker(kind, one)])
    ]
    assert not wrong, "\n".join(wrong)
    if kind == LEGAL:
        assert not [case.name for case in mine if judged[case.name]["verdict"] == ANOMALY]


def test_nothing_contradicts_itself(whole: Verdicts) -> None:
    assert [(name, verdict["doubts"]) for name, verdict in whole.items() if verdict["doubts"]] == []


def test_the_reduction_leaves_what_the_checkers_need(whole: Verdicts, reduced: Verdicts) -> None:
    def answer(verdict: dict[str, Any]) -> list[tuple[Any, ...]]:
        return sorted(
            (f["topic"], f["partition"], f["broker"], f["offset"], f["anomaly"], f["candidates"], f["effect"])
            for f in verdict["findings"]
        )

    differ = [
        (name, answer(verdict), answer(reduced[name]))
        for name, verdict in whole.items()
        if (verdict["verdict"], answer(verdict)) != (reduced[name]["verdict"], answer(reduced[name]))
    ]
    assert differ == []
