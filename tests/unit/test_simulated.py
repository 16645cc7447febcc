"""Simulated targets go through everything that real ones go through, in no time, and the same way each time."""

import json
from pathlib import Path
from typing import Any

import pytest
from simulated import Simulated, digest, simulate

from harness.broker_files.segments.batches import iter_batches, iter_records
from harness.clients import ClientError, TransactionStep
from harness.clients.recorded import OperationFailedError
from harness.clients.simulated import SimulatedProducer
from harness.play.run_player import RunPlayer
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.systems.simulated import UNSUPPORTED_NEMESES
from harness.targets import SIMULATED
from nemesis import SCRIPTS

HOUR_S = 3600.0
REFUSED = "UNKNOWN_SERVER_ERROR"
CLOSED = "the window does not open"
DIGESTS = {
    "sim-kafka": "c4c589ef9c6cab6843d3c9e9ffd87b39e50d4f86c2f1ce1791fc2d62d0c2185a",
    "sim-redpanda": "e56165c338318753588c20ede505d5da098799127d2fb15695cb758d694282d7",
}
"""Of a run of all anomalies with seed 1."""


def payload(run: Simulated, broker: int, snapshot: str = AFTER_REJOIN) -> set[str]:
    """Return the keys of the payload that a broker serves."""
    data = (run.folder.fetched_snapshot(broker, snapshot) / "tombstone-divergence-0" / "batches.bin").read_bytes()
    return {
        f"{(record.key or b'').decode()}{'' if record.value else ' deleted'}"
        for batch in iter_batches(data, source="a test")
        if not batch.is_control
        for record in iter_records(batch, source="a test")
        if not (record.key or b"").startswith(b"filler")
    }


@pytest.mark.parametrize("target", SIMULATED)
def test_the_same_seed_gives_the_same_bytes_everywhere_and_another_seed_others(target: str, tmp_path: Path) -> None:
    assert digest(simulate(tmp_path / "run", target).folder.path) == DIGESTS[target]
    assert digest(simulate(tmp_path / "other", target, seed=2).folder.path) != DIGESTS[target]


@pytest.mark.parametrize(
    ("nemesis", "step", "error"),
    [("none", "commit", REFUSED), ("kill", "begin", REFUSED), ("kill", "commit", None)],
    ids=["no fault", "before the fault", "during the fault"],
)
def test_what_a_broker_refuses_without_a_fault_is_known_afterwards(
    nemesis: str, step: str, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = SimulatedProducer.transact

    def refuse(producer: SimulatedProducer, asked: TransactionStep) -> None:
        if asked == step and not str(producer.transactional_id).startswith("filler"):
            raise ClientError("no", refusal=REFUSED)
        transact(producer, asked)

    monkeypatch.setattr(SimulatedProducer, "transact", refuse)
    players: list[RunPlayer] = []
    with pytest.raises(OperationFailedError, match="no"):
        simulate(tmp_path / "run", "sim-kafka", "stuck-lso", nemesis=nemesis, see=players.append)
    (player,) = players
    refusal: Any = player.failure.get("refusal", {})
    assert (refusal.get("error"), refusal.get("process")) == (error, error and "stuck-lso.tx")


@pytest.mark.parametrize("nemesis", sorted(SCRIPTS.keys() - UNSUPPORTED_NEMESES))
def test_every_fault_goes_to_its_end(nemesis: str, tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", "sim-kafka", "stuck-lso", nemesis=nemesis)
    assert not any(CLOSED in stage for stage in run.stages)
    lso = [json.loads((run.folder.fetched_snapshot(b, AFTER_REJOIN) / "stuck-lso-0" / "state.json").read_text())
           for b in (1, 2, 3)]  # fmt: skip
    stuck = [state["last_stable_offset"] < state["high_watermark"] for state in lso]
    assert stuck == [False, run.plan.nemesis.is_outage, False]


def test_two_days_of_kafkas_own_timers_pass(tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", "sim-kafka", "tombstone-divergence", timers="default")
    assert 48 * HOUR_S < run.took_s < 96 * HOUR_S
    assert not any(CLOSED in stage for stage in run.stages)
    assert [payload(run, broker) for broker in (1, 2, 3)] == [set(), {"K"}, set()]


def test_replicas_that_compact_together_keep_what_one_of_them_lacks(tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", "sim-redpanda", "tombstone-divergence")
    assert any(CLOSED in stage for stage in run.stages)
    assert [payload(run, broker, BEFORE_RETURN) for broker in (1, 3)] == [{"K deleted"}] * 2
    assert [payload(run, broker) for broker in (1, 2, 3)] == [set()] * 3


def test_transactions_of_the_java_client_raise_the_epoch(tmp_path: Path) -> None:
    epochs = {}
    for client in ("librdkafka", "java"):
        run = simulate(tmp_path / client, "sim-kafka", "aborted-to-committed", client=client)
        log = run.folder.broker_snapshot(2, AFTER_REJOIN) / "aborted-to-committed-0"
        batches = [batch for path in log.glob("*.log") for batch in iter_batches(path.read_bytes(), source=str(path))]
        first = min(batch.producer_id for batch in batches if batch.producer_id > 0)
        epochs[client] = max(batch.producer_epoch for batch in batches if batch.producer_id == first)
    assert epochs["librdkafka"] == 0
    assert epochs["java"] > 1
