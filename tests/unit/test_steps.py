"""Schedules on a simulated cluster: what each word does, and what cannot happen."""

import pytest
from described import described, play

from harness.errors import UsageError
from harness.models.log.invariants import violations
from harness.models.world.world import BEGIN_MS, DAY_MS, HOUR_MS, STEP_MS, Rules, World, begin, take
from harness.schedules import operations as ops
from harness.schedules.catalog import Anomaly

V1, V2 = Rules(), Rules(epoch_bump=True)


def wrong(world: World) -> set[tuple[int, str]]:
    return {(b, name) for b in world.replication.in_sync for name in violations(world.replicas[b], world.truth)}


def shown(world: World, broker: int) -> list[str]:
    return [
        batch.marker or " ".join((record.key or b"").decode() for record in batch.records)
        for batch in world.replicas[broker].batches()
    ]


CLEANS = "1 cleans; 1 cleans; time passes; 1 cleans; 2 returns"
WAYS = {
    Anomaly.TOMBSTONE_DIVERGENCE: (V1, "p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"),
    Anomaly.STUCK_LSO: (V2, f"t puts K; 2 leaves; t aborts; {CLEANS}"),
    Anomaly.ABORTED_TO_COMMITTED: (V1, f"t puts K; 2 leaves; t aborts; t puts K; t commits; {CLEANS}"),
    Anomaly.COMMITTED_TO_ABORTED: (V1, f"t puts K; p puts K; 2 leaves; t commits; t puts K; t aborts; {CLEANS}"),
}


@pytest.mark.parametrize("name", WAYS)
def test_known_ways_lead_to_their_anomaly_and_without_the_outage_nothing_goes_wrong(name: Anomaly) -> None:
    rules, way = WAYS[name]
    assert (2, name) in wrong(play(rules, described(way)))
    stays = [step for step in described(way) if step not in described("2 leaves; 2 returns")]
    assert not wrong(play(rules, stays))


@pytest.mark.parametrize(
    "operation",
    [
        ops.TakeSnapshot("after"), ops.Write("q", "K"), ops.End("q", "commit"), ops.End("p", "commit"),
        ops.Restart("i"), ops.Inject("partition", 2), ops.Heal("lossy", 2), ops.AddReplica(4), ops.CopyBatch(2),
    ],
    ids=str,
)  # fmt: skip
def test_what_models_do_not_perform_is_refused(operation: ops.Operation) -> None:
    with pytest.raises(UsageError, match=f"{operation}|{operation.process} (is not a client|has no transactions)"):
        take(begin(V1), operation)


@pytest.mark.parametrize(
    ("before", "step"),
    [
        *(("time passes", step) for step in ("p deletes K", "t commits", "2 returns", "1 leads", "4 leads")),
        ("time passes", "4 cleans"),
        ("2 leaves", "2 leaves"),
        ("p puts K; 2 leaves", "2 cleans"),
        ("2 leaves", "2 leads"),
        ("2 leads", "2 leaves"),
    ],
)
def test_what_cannot_happen_is_skipped_and_takes_no_time(before: str, step: str) -> None:
    world = play(V1, described(before))
    now_ms = world.now_ms
    assert not take(world, *described(step))
    assert world.now_ms == now_ms


def test_time_goes_by_default_timers() -> None:
    world = play(V1, described("p puts K", "time passes"))
    assert world.now_ms == BEGIN_MS + STEP_MS + DAY_MS + HOUR_MS


def test_who_is_down_neither_copies_nor_cleans() -> None:
    down = play(V1, described("p puts K", "p puts K", "2 leaves", "p puts L", "2 cleans"))
    assert shown(down, 2) == ["K", "K"]
    assert shown(down, 3) == ["K", "K", "L"]


def test_markers_of_version_2_have_the_next_epoch() -> None:
    world = play(V2, described("t puts K", "t commits", "t puts K", "u puts K"))
    assert [batch.producer_epoch for batch in world.replicas[1].batches()] == [0, 1, 1, 0]
    assert [batch.producer_id for batch in world.replicas[1].batches()] == [7, 7, 7, 8]
