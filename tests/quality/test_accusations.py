"""Accusations in generated diverged partitions, against the clients' writes: none is wrong, and most are decided.

A few partitions of each payload unless asked for more; all of them, 3,600::

    python -m pytest tests/quality/test_accusations.py --quality-runs 600 -s

The same findings are attributed once with the metadata log, and once without one. One in six partitions has rough
`diverged.Weather`: every replica is out of the ISR now and then, and who is wrong often cannot be decided.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, product
from pathlib import Path
from typing import Any, Final

import pytest
from diverged import CALM, PAYLOADS, ROUGH, Diverged, Weather, diverge
from pyspark.sql import SparkSession
from test_audit import dealt, key_of, written_copies
from truth import Wrongs, wrongs_by_broker

from checkers.evidence.tables import load_copies
from harness.audit.judge_copies import Rows, assemble, judge_whole
from harness.broker_files.copies.copies import Copies
from harness.json_codec import to_json

pytestmark = pytest.mark.timeout(3600)

_FEW: Final = 12
_ROUGH_SHARE: Final = 6
"""One partition in so many."""
_JOB_CASES: Final = 600
LEAST_DECIDED: Final = 0.9
LEAST_DECIDED_OF_FEW: Final = 0.8
"""Of less than `_MANY`, where chance decides more."""
_MANY: Final = 1000
WITH, WITHOUT = "with the metadata log", "without it"


@dataclass(frozen=True)
class Judged:
    """A diverged partition: the errors of each replica, and the findings by the available evidence."""

    case: Diverged
    wrongs: dict[int, Wrongs]
    findings: dict[str, list[dict[str, Any]]]

    def is_decided(self, knowing: str) -> bool:
        return all(finding["decided"] for finding in self.findings[knowing])


@pytest.fixture(scope="module")
def judged(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> list[Judged]:
    first, runs = request.config.getoption("--quality-seed"), request.config.getoption("--quality-runs") or _FEW
    counts = {CALM: runs - runs // _ROUGH_SHARE, ROUGH: runs // _ROUGH_SHARE}
    cases = [
        case
        for payload in PAYLOADS
        for weather, many in counts.items()
        for case in islice(_diverged(payload, weather, first), many)
    ]
    top = tmp_path_factory.mktemp("diverged")
    found = []
    for start in range(0, len(cases), _JOB_CASES):
        found += _judge(spark, top, cases[start : start + _JOB_CASES])
    return found


def _diverged(payload: str, weather: Weather, first_seed: int) -> Iterator[tuple[Diverged, dict[int, Wrongs]]]:
    """Yield the cases of a payload in which a replica is wrong."""
    for seed in count(first_seed):
        case = diverge(seed, payload, weather)
        wrongs = wrongs_by_broker(case.partition)
        if any(wrongs.values()):
            yield case, wrongs


def _judge(spark: SparkSession, top: Path, cases: Sequence[tuple[Diverged, dict[int, Wrongs]]]) -> list[Judged]:
    copies = [written_copies(case, top) for case, _ in cases]
    rows = judge_whole(load_copies(spark, copies))
    assert rows["raised"] == []
    rows_of = dealt(copies, rows)
    return [
        Judged(case, wrongs, {knowing: _findings(one, rows_of[one.run_id], knowing) for knowing in (WITH, WITHOUT)})
        for (case, wrongs), one in zip(cases, copies, strict=True)
    ]


def _findings(one: Copies, rows: Mapping[str, Rows], knowing: str) -> list[dict[str, Any]]:
    assert one.metadata is not None
    known = one if knowing == WITH else replace(one, metadata=None)
    verdict = assemble(known, rows, timings_s={})
    return [to_json(finding) for finding in verdict.findings]


def _described(one: Judged, finding: dict[str, Any]) -> str:
    names = ("anomaly", "candidates", "broker", "offset", "key", "decided_by", "right", "disagree", "assumptions")
    shown = {name: finding.get(name) for name in names}
    return f"{one.case.name} ({', '.join(sorted(one.case.traits))}): {shown}; wrong are {one.wrongs}"


def _is_accused_rightly(one: Judged, finding: dict[str, Any]) -> bool:
    if not finding["decided"]:
        return True
    return one.wrongs[finding["broker"]].includes(key_of(finding["key"]), finding["producer_id"])


def _is_acquitted_rightly(one: Judged, finding: dict[str, Any]) -> bool:
    key = key_of(finding["key"])
    return key is None or not any(key in one.wrongs[broker].keys for broker in finding["right"])


@pytest.mark.parametrize("knowing", [WITH, WITHOUT])
@pytest.mark.parametrize("is_right", [_is_accused_rightly, _is_acquitted_rightly])
def test_nobody_is_judged_wrongly(
    judged: list[Judged], knowing: str, is_right: Callable[[Judged, dict[str, Any]], bool]
) -> None:
    findings = [(one, finding) for one in judged for finding in one.findings[knowing]]
    wrongly = [_described(one, finding) for one, finding in findings if not is_right(one, finding)]
    assert not wrongly, f"{len(wrongly)} are wrong\n" + "\n".join(wrongly)


def test_most_are_decided_with_the_metadata_log(judged: list[Judged], capsys: pytest.CaptureFixture[str]) -> None:
    _skip_if_few(judged)
    found = [one for one in judged if any(one.findings.values())]
    groups: dict[str, list[Judged]] = {weather.name: [] for weather in (CALM, ROUGH)}
    for one in found:
        groups[one.case.weather.name].append(one)
        wrong = sum(map(bool, one.wrongs.values()))
        groups.setdefault(f"{one.case.weather.name}, {wrong} wrong", []).append(one)
        groups.setdefault(f"{one.case.weather.name}, {one.case.payload}", []).append(one)
    lines = [
        f"{len(judged)} diverged partitions, {len(found)} with findings; decided with the metadata log, without it:",
        *(f"{_share(one, WITH):8.1%} {_share(one, WITHOUT):8.1%}  {name} ({len(one)})" for name, one in groups.items()),
    ]
    with capsys.disabled():
        print("\n" + "\n".join(lines))  # noqa: T201
    least = LEAST_DECIDED if len(groups[CALM.name]) >= _MANY else LEAST_DECIDED_OF_FEW
    assert _share(groups[CALM.name], WITH) >= least


def _skip_if_few(judged: list[Judged]) -> None:
    if len(judged) < _FEW * len(PAYLOADS):
        pytest.skip(f"{len(judged)} partitions are too few: --quality-runs {_FEW} or more")


def _share(found: Sequence[Judged], knowing: str) -> float:
    return sum(one.is_decided(knowing) for one in found) / max(len(found), 1)


def test_the_cases_are_of_every_kind(judged: list[Judged]) -> None:
    _skip_if_few(judged)
    traits = Counter(trait for one in judged for trait in one.case.traits)
    assert set(traits) >= {"leader-change", "leader-died", "joined", "lagged"}
    assert {(one.case.payload, one.case.weather) for one in judged} == set(product(PAYLOADS, (CALM, ROUGH)))
    assert {one.case.partition.settings.epoch_bump for one in judged} == {False, True}
    # Of three replicas one or two are wrong, so that in each case somebody could be accused wrongly.
    assert {sum(map(bool, one.wrongs.values())) for one in judged} == {1, 2}
