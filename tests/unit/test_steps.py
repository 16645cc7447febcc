"""Schedules on a simulated cluster: what each word does, what cannot happen, and that the same gives the same."""

import hashlib

import pytest
from described import described

from harness.errors import UsageError
from harness.model_checking.explore.random_schedules import ADDS, NO_OUTAGE, OUTAGES, draw
from harness.models.log.batch import encoded
from harness.models.log.invariants import LOST_VALUE
from harness.models.world.steps import begin, play, take
from harness.models.world.world import BEGIN_MS, DAY_MS, HOUR_MS, STEP_MS, Rules, World
from harness.schedules.catalog import Anomaly
from harness.schedules.operations.administrators import AddReplica, Unassign
from harness.schedules.operations.clients import End, Restart, Write
from harness.schedules.operations.environment import JoinIsr, TimePasses
from harness.schedules.operations.faults import OUTAGE, Heal, Inject
from harness.schedules.operations.operation import Operation
from harness.schedules.operations.waits import TakeSnapshot

V1, V2 = Rules(), Rules(epoch_bump=True)
TOGETHER = Rules(coordinated=True)


def names(world: World) -> set[str]:
    return {name for _, name in world.violations()}


def shown(world: World, broker: int) -> list[str]:
    return [
        batch.marker or " ".join((record.key or b"").decode() for record in batch.records)
        for batch in world.replicas[broker].batches()
    ]


WAYS = {
    Anomaly.TOMBSTONE_DIVERGENCE: (V1, "p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"),
    Anomaly.STUCK_LSO: (V2, "t puts K; 2 leaves; t aborts; 1 cleans; 1 cleans; time passes; 1 cleans; 2 returns"),
    Anomaly.ABORTED_TO_COMMITTED: (
        V1,
        "t puts K; 2 leaves; t aborts; t puts K; t commits; 1 cleans; 1 cleans; time passes; 1 cleans; 2 returns",
    ),
    Anomaly.COMMITTED_TO_ABORTED: (
        V1,
        ("t puts K; p puts K; 2 leaves; t commits; t puts K; t aborts; 1 cleans; 1 cleans; time passes; 1 cleans; "
        "2 returns"),
    ),
    LOST_VALUE: (
        V2,
        ("t puts L; t commits; t deletes L; 2 lags; t aborts; 1 cleans; 1 cleans; time passes; 1 cleans; t puts K; "
        "t commits; 2 copies a batch; 2 copies a batch; 2 copies a batch; 2 cleans; time passes; 2 cleans; 2 returns"),
    ),
}  # fmt: skip


HANDED_OVER = {
    Anomaly.TOMBSTONE_DIVERGENCE: (
        "p puts K; p deletes K; 3 cleans; time passes; 3 cleans; 4 is added; 4 copies a batch; 3 leads; 4 joins"
    ),
    Anomaly.STUCK_LSO: (
        "t puts K; t aborts; time passes; 3 cleans; 3 cleans; time passes; 3 cleans; 4 is added; 4 copies a batch; "
        "3 leads; 4 joins"
    ),
}
"""Nothing is removed while the replica is added: another leader had removed it before."""


@pytest.mark.parametrize("name", HANDED_OVER)
def test_a_leader_change_in_mid_copy_is_enough(name: Anomaly) -> None:
    way = HANDED_OVER[name]
    assert (4, name) in play(V1, described(way)).violations()
    assert play(V1, described(way.replace("3 leads; ", ""))).violations() == []


REASSIGNED = (
    "p puts K; kill begins on broker 2; 2 is unassigned; p deletes K; 1 cleans; time passes; 1 cleans; "
    "2 is assigned again; 2 returns"
)


@pytest.mark.parametrize("outage", ["2 leaves", "kill begins on broker 2", "stop begins on broker 2"])
def test_a_replica_that_is_assigned_again_before_its_broker_returns_has_its_old_log(outage: str) -> None:
    world = play(V1, described(REASSIGNED.replace("kill begins on broker 2", outage)))
    assert (2, Anomaly.TOMBSTONE_DIVERGENCE) in world.violations()
    assert world.stray == {}


def test_a_broker_that_returns_unassigned_deletes_its_old_log() -> None:
    world = play(
        V1, described(REASSIGNED.replace("2 is assigned again; 2 returns", "2 returns; 2 is assigned again; 2 joins"))
    )
    assert world.violations() == []
    assert shown(world, 2) == shown(world, 1)


def test_with_coordination_an_old_log_is_one_too_many_all_the_same() -> None:
    """A tombstone waits only for replicas that are assigned."""
    world = play(TOGETHER, described("p puts K; kill begins on broker 2; 2 is unassigned; p deletes K"))
    assert world.protocol is not None
    assert set(world.protocol.views) == {1, 3}
    take(world, *described("2 is assigned again"))
    assert set(world.protocol.views) == {1, 2, 3}


@pytest.mark.parametrize("impossible", ["2 is unassigned", "2 leaves; 2 is assigned again"])
def test_only_replicas_of_brokers_that_are_down_are_unassigned_and_only_those_assigned_again(impossible: str) -> None:
    world = begin(V1)
    *first, last = described(impossible)
    for step in first:
        assert take(world, step) is not None
    assert take(world, last) is None


@pytest.mark.parametrize("name", WAYS)
def test_known_ways_lead_where_they_lead_in_every_interleaving(name: str) -> None:
    rules, way = WAYS[name]
    assert (2, name) in play(rules, described(way)).violations()


@pytest.mark.parametrize("name", WAYS)
def test_without_the_outage_nothing_goes_wrong(name: str) -> None:
    rules, way = WAYS[name]
    stays = [step for step in described(way) if step not in described("2 leaves; 2 lags; 2 returns")]
    assert not play(rules, stays).violations()


@pytest.mark.parametrize(
    "operation",
    [
        *(TakeSnapshot("after"), Write("q", "K"), End("q", "commit"), End("p", "commit"), Restart("i")),
        *(Inject("partition", 2), Heal("lossy", 2)),
    ],
    ids=str,
)
def test_what_models_do_not_perform_is_refused(operation: Operation) -> None:
    with pytest.raises(UsageError, match=f"{operation}|{operation.process} (is not a client|has no transactions)"):
        take(begin(V1), operation)


@pytest.mark.parametrize(
    ("before", "step"),
    [
        ("an hour passes", "p deletes K"),
        ("an hour passes", "t commits"),
        ("an hour passes", "2 returns"),
        ("an hour passes", "2 copies a batch"),
        ("2 leaves", "2 leaves"),
        ("2 leaves; 2 returns", "2 lags"),
        ("p puts K; 2 leaves", "2 cleans"),
        ("2 leaves", "2 leads"),
        ("2 leads", "2 leaves"),
        ("an hour passes", "1 leads"),
        ("an hour passes", "4 leads"),
        ("an hour passes", "4 cleans"),
        ("2 leaves", "4 is added"),
        ("an hour passes", "3 reports"),
        ("an hour passes", "messages arrive"),
        ("an hour passes", "message 1 arrives"),
    ],
)
def test_what_cannot_happen_is_skipped_and_takes_no_time(before: str, step: str) -> None:
    world = play(V1, described(before))
    now_ms = world.now_ms
    assert take(world, *described(step)) is None
    assert world.now_ms == now_ms


def test_time_goes_by_default_timers() -> None:
    world = play(V1, described("p puts K", "an hour passes", "time passes"))
    assert world.now_ms == BEGIN_MS + STEP_MS + HOUR_MS + DAY_MS + HOUR_MS


def test_who_is_down_neither_copies_nor_cleans_and_who_lags_cleans() -> None:
    down, lags = (
        play(V1, described("p puts K", "p puts K", f"2 {how}", "p puts L", "2 cleans")) for how in ("leaves", "lags")
    )
    assert shown(down, 2) == ["K", "K"]
    assert shown(lags, 2) == ["K"]
    assert shown(down, 3) == ["K", "K", "L"]


def test_a_replica_that_is_added_copies_batch_by_batch() -> None:
    world = play(V1, described("p puts K", "p puts L", "4 is added", "4 copies a batch"))
    assert shown(world, 4) == ["K"]
    assert world.replication.in_sync == [1, 2, 3]
    take(world, *described("4 joins"))
    assert shown(world, 4) == ["K", "L"]
    assert world.replication.in_sync == [1, 2, 3, 4]


def test_markers_of_version_2_have_the_next_epoch() -> None:
    world = play(V2, described("t puts K", "t commits", "t puts K", "u puts K"))
    assert [batch.producer_epoch for batch in world.replicas[1].batches()] == [0, 1, 1, 0]
    assert [batch.producer_id for batch in world.replicas[1].batches()] == [7, 7, 7, 8]


def test_messages_are_late_lost_and_reordered() -> None:
    world = play(TOGETHER, described("p puts K", "1 cleans", "2 cleans", "3 cleans", "2 reports", "3 reports"))
    assert [(message.broker, message.bounds) for message in world.in_flight()] == [(2, (1, 1)), (3, (1, 1))]
    assert take(world, *described("message 2 is lost")) is not None
    assert [message.broker for message in world.in_flight()] == [2]
    for step in described("message 1 arrives; 3 reports; messages arrive"):
        assert take(world, step) is not None
    assert not world.in_flight()
    assert {broker: world.protocol.bounds(broker).tombstones for broker in (1, 2, 3)} == dict.fromkeys((1, 2, 3), 1)  # type: ignore[union-attr]  # it is coordinated


def test_messages_to_a_broker_that_is_down_wait() -> None:
    world = play(
        TOGETHER, described("p puts K", "1 cleans", "2 cleans", "3 cleans", "2 reports", "3 reports", "2 leaves")
    )
    take(world, *described("messages arrive"))
    assert [message.broker for message in world.in_flight()] == [2]
    assert take(world, *described("message 1 arrives")) is None


def test_an_added_replica_misses_a_marker_with_coordination_too() -> None:
    world = play(
        TOGETHER,
        described(
            "t puts K; t aborts; 2 reports; 3 reports; messages arrive; 4 is added; 4 copies a batch; time passes; "
            "1 cleans; 1 cleans; time passes; 1 cleans; 4 joins"
        ),
    )
    assert world.violations() == [(4, Anomaly.STUCK_LSO)]


GATED, PROTECTED = Rules(gate=True), Rules(gate=True, fresh_copies=True)


def test_a_gate_keeps_cleaners_waiting_while_a_replica_is_away() -> None:
    world = play(Rules(gate=True), described("p puts K; 2 leaves; p deletes K"))
    assert take(world, *described("1 cleans")) is None
    assert take(world, *described("2 returns")) is not None
    assert take(world, *described("1 cleans")) is not None


@pytest.mark.parametrize("way", [REASSIGNED, *HANDED_OVER.values()])
def test_a_gate_protects_replicas_that_move_where_their_copies_begin_anew(way: str) -> None:
    for fresh_copies in (False, True):
        world = play(Rules(gate=True, fresh_copies=fresh_copies), described(way))
        assert bool(world.violations()) is not fresh_copies


def test_an_added_replica_keeps_its_copy_while_its_leader_stays() -> None:
    world = play(Rules(fresh_copies=True), described("p puts K; p puts L; p puts M; 4 is added; 4 copies a batch"))
    assert world.replicas[4].log_end == 1
    take(world, *described("4 copies a batch"))
    assert world.replicas[4].log_end == 2
    take(world, *described("2 leads"))
    take(world, *described("4 copies a batch"))
    assert world.replicas[4].log_end == 1


@pytest.mark.parametrize(("rules", "has_hole"), [(GATED, True), (PROTECTED, False)], ids=["gate", "fresh copies, too"])
def test_random_outages_with_a_gate(rules: Rules, has_hole: bool) -> None:  # noqa: FBT001
    schedules = [draw(seed, rules) for seed in range(300)]
    wrong = [drawn for drawn in schedules if play(drawn.rules, drawn.steps).violations()]
    assert bool(wrong) is has_hole
    assert all(Unassign(2) in drawn.steps for drawn in wrong)
    assert sum(Unassign(2) in drawn.steps for drawn in schedules) > 20


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_seed_gives_one_outage_of_two_days_at_least(outage: str) -> None:
    for seed in range(50):
        drawn = draw(seed, Rules(), outage)
        at = next(n for n, step in enumerate(drawn.steps) if str(step).endswith(outage))
        assert drawn.steps[at:].count(TimePasses()) >= 2
        assert sum(isinstance(step, Heal | JoinIsr) for step in drawn.steps) == 1
        assert play(drawn.rules, drawn.steps).replication.away == set()


def test_every_step_that_was_drawn_was_taken() -> None:
    for seed in range(50):
        drawn = draw(seed, Rules(coordinated=True))
        world = begin(drawn.rules)
        assert all(take(world, step) is not None for step in drawn.steps)


def test_no_outage_no_wrong() -> None:
    for seed in range(300):
        drawn = draw(seed, Rules(), NO_OUTAGE)
        assert not play(drawn.rules, drawn.steps).violations()


@pytest.mark.parametrize(
    ("rules", "outage", "digest"),
    [
        (Rules(), None, "f139abff03c056e1"),
        (Rules(coordinated=True), None, "a2160475835d41a6"),
        (Rules(), ADDS, "c2d0b6005c8035f7"),
    ],
    ids=["alone", "together", "added"],
)
def test_the_same_seed_gives_the_same_bytes_everywhere(rules: Rules, outage: str | None, digest: str) -> None:
    digested = hashlib.sha256()
    for seed in range(100):
        drawn = draw(seed, rules, outage)
        digested.update("; ".join(map(str, drawn.steps)).encode())
        world = play(drawn.rules, drawn.steps)
        for broker in sorted(world.replicas):
            for batch in world.replicas[broker].batches():
                digested.update(encoded(batch))
    assert digested.hexdigest()[:16] == digest


def test_most_brokers_go_away_and_some_are_added() -> None:
    ways = [
        next(step for step in draw(seed, Rules()).steps if isinstance(step, Inject | AddReplica)) for seed in range(200)
    ]
    assert ways.count(Inject(OUTAGE, 2)) > ways.count(AddReplica(4)) > 10
