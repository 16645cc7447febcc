"""The generated cases are what they say: the model and its oracle agree."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from disk import Copy
from expected import STUCK_LSO
from generate import LEGAL, PLANTED, Case, generate
from truth import judge

pytestmark = pytest.mark.commit


def test_what_is_legal_leaves_nothing_to_find_and_what_is_planted_does(kind: str, seeds: range) -> None:
    cases = [generate(seed, kind) for seed in seeds]
    found = [case for case in cases if case.expected]
    if kind not in PLANTED:
        assert [case.name for case in found] == []
    else:
        assert len(found) > len(cases) * 0.6
    if kind == LEGAL:
        assert [case.name for case in cases if case.tolerated] == []
    for case in cases:
        for copy in (copy for copies in case.copies.values() for copy in copies):
            assert {*_wrong_keys(copy)} <= _accounted_for(case, copy), f"{case.name}: a wrong key is not accounted for"


def _wrong_keys(copy: Copy) -> Iterator[bytes]:
    judged = judge(copy.partition, [])
    here = judged.views[copy.replica.broker]
    open_here = {batch.txn for run in here.runs if run.marker is None for batch in run.batches}
    for key in judged.by_key:
        last = judged.last_committed(key)
        is_open = last is not None and last.txn is not None and last.txn in open_here
        if judged.is_wrong(here, key) and not is_open:
            yield key


def _accounted_for(case: Case, copy: Copy) -> set[bytes | None]:
    here = (copy.replica.broker, copy.partition.topic, copy.partition.number)
    return {
        key
        for wrong in (*case.expected, *case.tolerated)
        if (wrong.broker, wrong.topic, wrong.partition) == here and wrong.anomaly != STUCK_LSO
        for key in wrong.keys
    }


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        generate(5, "two").write(tmp_path / name)
    assert _contents(tmp_path / "one") == _contents(tmp_path / "two")


def _contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}
