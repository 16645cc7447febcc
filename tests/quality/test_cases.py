"""The generated cases are what they say: the model and its oracle agree, and the project's parser reads every file.

To see one again: ``python -m pytest tests/quality --quality-seed SEED --quality-runs 1``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from disk import Copy
from expected import STUCK_LSO
from generate import LEGAL, PLANTED, Case, generate
from truth import judge

from harness.broker_files.segments.batches import iter_batches, iter_records, marker, until_cut
from harness.broker_files.side_files.checkpoints import read_checkpoint
from harness.broker_files.side_files.producer_state import iter_txnindex, read_producer_snapshot
from harness.models.log.batch import encoded

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


def test_every_wrong_state_of_a_key_is_accounted_for(kind: str, seeds: range) -> None:
    for seed in seeds:
        case = generate(seed, kind)
        for copies in case.copies.values():
            for copy in copies:
                assert {*_wrong_keys(copy)} <= _accounted_for(case, copy), case.name


def _wrong_keys(copy: Copy) -> Iterator[bytes]:
    """Compare each key's last committed record on a replica with the true one below its log end."""
    judged = judge(copy.partition, [])
    here = judged.views[copy.replica.broker]
    open_here = {batch.txn for run in here.runs if run.marker is None for batch in run.batches}
    for key in judged.by_key:
        if not judged.is_settled(key, here.log_end):
            continue
        last = judged.last_committed(key)
        alive = here.final.get(key)
        if last is None or last.tombstone or last.offset < copy.replica.log_start:
            right = alive is None or alive[1]
        else:
            right = alive == (last.offset, False)
        if not right and not (last and last.txn is not None and last.txn in open_here):
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


def test_the_parser_reads_back_what_the_model_has(kind: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds[:30]:
        case = generate(seed, kind)
        for broker, log_dir in case.write(tmp_path).items():
            for copy in case.copies[broker]:
                _reads_back(copy, log_dir / copy.folder)
            for path in log_dir.glob("*-checkpoint"):
                read_checkpoint(path.read_bytes(), source=path.name)


def _reads_back(copy: Copy, folder: Path) -> None:
    replica = copy.replica
    assert [int(path.stem) for path in sorted(folder.glob("*.log"))] == [s.base_offset for s in replica.segments]
    for segment in replica.segments:
        path = folder / f"{segment.base_offset:020d}.log"
        batches = list(until_cut(iter_batches(path.read_bytes(), source=path.name)))
        assert [encoded(batch) for batch in segment.batches] == [
            path.read_bytes()[batch.position : batch.position + batch.size_bytes] for batch in batches
        ]
        for held, batch in zip(segment.batches, batches, strict=True):
            assert (batch.base_offset, batch.last_offset) == (held.base_offset, held.last_offset)
            assert [(r.offset, r.key, r.value) for r in iter_records(batch, source="log")] == [
                (r.offset, r.key, r.value) for r in held.records
            ]
            read = marker(batch, source="log")
            assert (read.type if read else None) == held.marker
        index = folder / f"{segment.base_offset:020d}.txnindex"
        assert (list(iter_txnindex(index.read_bytes(), source="i")) if index.exists() else []) == segment.aborted
    for at in replica.snapshots:
        entries = read_producer_snapshot((folder / f"{at:020d}.snapshot").read_bytes(), source="s")
        assert entries == list(replica.snapshots[at].values())
