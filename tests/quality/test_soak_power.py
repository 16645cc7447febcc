"""Power of the judges of a soak: anomalies planted in rounds on simulated brokers, and how often they are found.

A few seeds of each fault unless asked for more::

    python -m pytest tests/quality/test_soak_power.py --quality-runs 40 -s

Planted: a reader that drops a record of a replica, a replica's log without one marker, and gates that say that they
hold and do not. What is planted in the log of a replica is planted in what its broker serves, too: else the two
contradict each other, which any judge would see.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

import pytest
from fakes.progress import FakeProgress
from findings import audited_verdict
from pyspark.sql import SparkSession
from soaked import play

from harness.broker_files.segments.batches import Batch, iter_batches, marker
from harness.broker_files.side_files.producer_state import encode_txnindex, iter_txnindex
from harness.judge.verdict import ANOMALY, CHECKERS, CLEAN, CLIENTS
from harness.protect.gate.events import HELD, RELEASED
from harness.run_folder.history import read_lines
from harness.run_folder.store import AFTER_REJOIN, BATCHES, RunFolder
from harness.soak.causes.cause import RoundEvidence
from harness.soak.draw.plan import Shape, draw_plan
from harness.soak.draw.workload import generator_of
from harness.soak.evidence.client_log import COMMITTED, client_log_of
from harness.soak.judge.gate_evidence import GateEvidence, ReplicaOutage, judge_gates, removable_of
from harness.soak.judge.judge_rounds import judge_rounds, replicas_of, truth_of
from harness.soak.judge.round_verdict import CheckedRound, JudgeResults, verdict_of
from harness.soak.play.rig import find_setup
from harness.soak.play.round import PlayedRound

pytestmark = pytest.mark.timeout(3600)

FEW: Final = 6
LEAST_FOUND: Final = 0.8
"""Of what is planted in a replica. The rest are keys that clients cannot vouch for, as a write of theirs was under way
while its topic was deleted and created again: 1 of 12 records; and markers whose loss shows as a contradiction alone,
which makes a round unknown: 1 of 12 (seeds 0 to 11)."""
BROKER: Final = 3


def seeds(config: pytest.Config) -> range:
    first = config.getoption("--quality-seed")
    return range(first, first + (config.getoption("--quality-runs") or FEW))


HEALTHY: Final = Shape(partitions=4, clients=6, play_s=15.0, rate_hz=30.0)
FAULTY: Final = Shape(partitions=6, clients=8, play_s=30.0, rate_hz=60.0)


def drawn(folder: Path, seed: int, shape: Shape, *, with_faults: bool) -> PlayedRound:
    setup = find_setup("sim-kafka", shape, FakeProgress())
    plan = draw_plan(seed, "soak-1", setup.shape)
    return play(folder, generator_of(plan, setup.shape, setup.faults if with_faults else {}), plan, seed)


def leave_out(folder: RunFolder, replica: str, is_left_out: Callable[[Batch], bool]) -> int:
    """Rewrite a replica, and what its broker served, without some batches; return how many its segments lose."""
    count = 0
    segments = sorted((folder.broker_snapshot(BROKER, AFTER_REJOIN) / replica).glob("*.log"))
    for path in (*segments, folder.fetched_snapshot(BROKER, AFTER_REJOIN) / replica / BATCHES):
        data, kept = path.read_bytes(), bytearray()
        for batch in iter_batches(data, source=path.name):
            if is_left_out(batch):
                count += path.suffix == ".log"
            else:
                kept += data[batch.position : batch.position + batch.size_bytes]
        path.write_bytes(kept)
    return count


def drop_record(folder: RunFolder, random: Random) -> None:
    """Drop the batch with the last value of a key, of a client outside of transactions."""
    log = client_log_of(read_lines(folder.history_path))
    ours = {tp: held for (broker, tp), held in replicas_of(folder).items() if broker == BROKER}
    last = {(tp, one.key): one for tp, held in ours.items() for one in held.records}
    candidates = [
        (tp, one.offset)
        for (tp, _), one in sorted(last.items())
        if not one.is_delete and log.outcome_of(log.writes[one.write]) == COMMITTED
    ]
    tp, offset = random.choice(candidates)
    dropped = leave_out(folder, f"{tp[0]}-{tp[1]}", lambda batch: batch.base_offset == batch.last_offset == offset)
    assert dropped == 1, "a batch of one record"


def drop_marker(folder: RunFolder, random: Random) -> None:
    """Leave out a marker that matters, with what the broker's ``.txnindex`` has of it.

    The log still has a record of its transaction, and the next marker of its producer, if any, says something else:
    where both agree, a replica without the first one is right by luck.
    """
    candidates = []
    for stored in sorted(folder.broker_snapshot(BROKER, AFTER_REJOIN).glob("*/")):
        batches = [b for log in sorted(stored.glob("*.log")) for b in iter_batches(log.read_bytes(), source=log.name)]
        kinds = {b.base_offset: one.type for b in batches if (one := marker(b, source=stored.name)) is not None}
        for end in (b for b in batches if b.base_offset in kinds):
            own = [b for b in batches if b.producer_id == end.producer_id]
            since = max((b.base_offset for b in own if b.is_control and b.base_offset < end.base_offset), default=-1)
            between = [b for b in own if since < b.base_offset < end.base_offset]
            has_record = any(not b.is_control and not b.is_empty for b in between)
            later = (kinds[b.base_offset] for b in own if b.base_offset in kinds and b.base_offset > end.base_offset)
            following = next(later, None)
            if has_record and following != kinds[end.base_offset]:
                candidates.append((stored.name, end.base_offset))
    replica, offset = random.choice(candidates)
    assert leave_out(folder, replica, lambda batch: batch.base_offset == offset and batch.is_control) == 1
    for index in (folder.broker_snapshot(BROKER, AFTER_REJOIN) / replica).glob("*.txnindex"):
        entries = [one for one in iter_txnindex(index.read_bytes(), source=index.name) if one.last_offset != offset]
        index.write_bytes(encode_txnindex(entries))


PLANTED: Final[dict[str, Callable[[RunFolder, Random], None]]] = {"record": drop_record, "marker": drop_marker}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_fault_in_what_a_replica_has_is_found(
    planted: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    rounds: dict[RunFolder, PlayedRound] = {}
    for seed in seeds(request.config):
        folder = RunFolder(tmp_path / f"{planted}-{seed}")
        rounds[folder] = drawn(folder.path, seed, HEALTHY, with_faults=False)
        assert not any(truth_of(folder, rounds[folder]).wrongs.values()), "nothing is wrong before"
        PLANTED[planted](folder, Random(f"{planted} {seed}"))  # noqa: S311
    verdicts = judge_rounds(spark, rounds)
    found: Counter[str] = Counter()
    for verdict in verdicts.values():
        own = [one for one in verdict.findings if one.broker == BROKER]
        nameless = [one for one in verdict.unexplained if one.broker == BROKER]
        found["not clean"] += verdict.verdict != CLEAN
        found["names the replica"] += bool(own or nameless)
        judges = {judge for one in own for judge in one.found_by} | {one.found_by for one in nameless}
        found.update(judges & {CLIENTS, CHECKERS})
    sys.stdout.write(f"{planted}: of {len(rounds)} {dict(found)}\n")
    assert min(found["not clean"], found["names the replica"]) >= LEAST_FOUND * len(rounds)


def told(evidence: GateEvidence, folder: RunFolder, played: PlayedRound) -> str:
    (clean,) = audited_verdict("t").scenarios
    places = played.plan.partitions
    scenarios = [replace(clean, scenario=f"{t}-{number}", topic=t, partition=number) for t, number in places]
    audited = replace(audited_verdict(), scenarios=tuple(scenarios))
    results = JudgeResults(RoundEvidence(truth_of(folder, played)), CheckedRound(), audited, gates=evidence)
    return verdict_of(played, results).verdict


def test_what_a_gate_says_never_makes_a_round_clean(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Gates that say that they hold everything and hold nothing, as simulated brokers have none; and silent gates."""
    found: Counter[str] = Counter()
    for seed in seeds(request.config):
        folder = RunFolder(tmp_path / f"gate-{seed}")
        played = drawn(folder.path, seed, FAULTY, with_faults=True)
        events = read_lines(folder.history_path)
        began_ms, ended_ms = events[0]["time_ms"], events[-1]["time_ms"]
        outages = [ReplicaOutage(tp, 1, began_ms, ended_ms, frozenset({2, 3})) for tp in played.plan.partitions]
        lies = [
            {"broker": broker, "event": event, "time_ms": ms, "topic": topic, "partition": partition}
            for broker in (2, 3)
            for topic, partition in played.plan.partitions
            for event, ms in ((HELD, began_ms), (RELEASED, ended_ms))
        ]
        lying, silent = (judge_gates(outages, removable_of(events), some) for some in (lies, []))
        assert lying.problem is None, "the answers have nothing missing"
        assert silent.problem is not None
        is_diverged = bool(truth_of(folder, played).diverged)
        found["diverged"] += is_diverged
        found["lies found"] += is_diverged and told(lying, folder, played) == ANOMALY
        found["silence found"] += told(silent, folder, played) != CLEAN
    sys.stdout.write(f"gates: of {len(seeds(request.config))} {dict(found)}\n")
    assert found["diverged"] > 0
    assert found["lies found"] == found["diverged"]
    assert found["silence found"] == len(seeds(request.config))
