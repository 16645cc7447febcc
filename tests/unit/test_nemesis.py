"""The actions of each nemesis on the brokers, in order; every action is undone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from fakes.cluster import RecordedCluster, recorded_cluster
from fakes.observer import BALLAST_END, PAYLOAD_END

from harness.errors import UsageError, WaitTimeoutError
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.runtimes.base import Need, RuntimeRequest, raise_if_unmet
from harness.runtimes.namespaces import Reach
from harness.runtimes.power import Cut, LostRecords
from harness.schedules.placement import Placement, place
from harness.schedules.timers import TIMERS
from harness.targets import find_target
from nemesis import FAULTS, SCRIPTS, declared_in, find_script, topology
from nemesis.fault import Fault, FaultContext
from nemesis.script import Act, Script, ScriptContext, nothing

PACE, WINDOW_S = 1000, 20
FIVE = place(brokers=5, replication_factor=3, partitions=1, absent=2)
TWO_AWAY = place(brokers=5, replication_factor=4, partitions=3, absent=2)


def on_topics(value: str | None) -> str:
    """Return both throttles as set on the exposed topics."""
    rules = {f"{side}.replication.throttled.replicas": value for side in ("leader", "follower")}
    return f"topics aborted-to-committed, stuck-lso: {rules}"


def on_brokers(leader: str | None, follower: str | None) -> str:
    """Return both throttles as set on all brokers."""
    return (
        f"brokers: { {'leader.replication.throttled.rate': leader, 'follower.replication.throttled.rate': follower} }"
    )


def context_of(placement: Placement | None = None) -> tuple[RecordedCluster, ScriptContext]:
    cluster = recorded_cluster(placement or Placement())

    def note(f: str, **fields: Any) -> None:
        cluster.actions.append(f"note {f}: {fields}")

    return cluster, ScriptContext(
        FaultContext(cluster, cluster.absent, PACE, WINDOW_S, note),
        lambda: cluster.actions.append("ballast"),
        payload_ends=lambda: dict.fromkeys(cluster.exposed, PAYLOAD_END),
    )


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_script_has_its_name_and_words(script: Script) -> None:
    assert find_script(script.name) is script
    assert script.summary
    for act in filter(None, (script.leave, script.expose, script.rejoin)):
        assert "{" not in act.words.format(broker="2, 3")
        assert ("2, 3" in act.words.format(broker="2, 3")) == (script.name != "none")


def test_a_script_does_to_brokers_as_its_faults_do() -> None:
    outages = {name for name, script in SCRIPTS.items() if script.is_outage}
    assert SCRIPTS.keys() - outages == {"none", "clock-skew", "lossy", "slow"}
    running = {name for name, script in SCRIPTS.items() if script.keeps_processes}
    assert running == {"pause", "partition", "split", "one-way", "bridge", "ring"}
    assert SCRIPTS["relay"].broker_settings == SCRIPTS["join"].broker_settings == {"replica.fetch.max.bytes": "32768"}
    assert SCRIPTS["disk-full"].needs == {Need.DISK}


@dataclass
class Declares:
    """A module of a plug-in."""

    FAULT: Fault | None = None
    SCRIPT: Script | None = None


def test_a_module_declares_a_fault_or_a_script_once_and_soak_draws_it_or_says_why_not() -> None:
    fault, idle = FAULTS["kill"], Act("wait", nothing)
    script = Script(name="wait", summary="no fault", leave=idle, rejoin=idle, soak_excluded="no fault")
    faults, scripts = declared_in([Declares(fault), Declares(SCRIPT=script), Declares()])
    assert (faults, scripts) == ({"kill": fault}, {"wait": script})
    for modules, error in (
        ([Declares(fault), Declares(replace(fault))], "two modules declare the fault kill"),
        ([Declares(SCRIPT=script), Declares(SCRIPT=replace(script))], "two modules declare the script wait"),
        ([Declares(SCRIPT=replace(script, soak_excluded=""))], "wait: declare a FAULT, or the reason why soak cannot"),
    ):
        with pytest.raises(ValueError, match=error):
            declared_in(modules)


def test_an_unknown_name_is_reported_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown nemesis 'catchup'; did you mean catch-up.*\? \(known: bridge"):
        find_script("catchup")


@pytest.mark.parametrize(
    ("name", "away", "back"), [("kill", "kill", "start"), ("pause", "pause", "resume"), ("partition", "cut", "heal")]
)
@pytest.mark.parametrize("placement", [Placement(), TWO_AWAY], ids=["one", "two"])
def test_everybody_who_is_to_be_absent_goes_and_comes_back(
    name: str, away: str, back: str, placement: Placement
) -> None:
    cluster, subject = context_of(placement)
    script = find_script(name)
    script.leave.perform(subject)
    assert cluster.actions == [f"{away} {broker}" for broker in placement.absent]
    cluster.actions.clear()
    script.rejoin.perform(subject)
    assert cluster.actions == [f"{back} {broker}" for broker in placement.absent]


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("split", "1>2, 1>3, 2>1, 2>4, 2>5, 3>1, 3>4, 3>5, 4>2, 4>3, 5>2, 5>3"),
        ("one-way", "2>1, 2>3, 2>4, 2>5, 3>1, 3>2, 3>4, 3>5"),
        ("bridge", "1>2, 1>3, 2>1, 2>4, 3>1, 3>4, 4>2, 4>3"),
        ("ring", "1>2, 1>3, 2>1, 2>5, 3>1, 3>4, 4>3, 4>5, 5>2, 5>4"),
    ],
)
def test_a_topology_is_what_its_lost_links_leave(name: str, lost: str) -> None:
    cluster, subject = context_of(FIVE)
    script = find_script(name)
    assert script.why_unfit(FIVE) is None
    script.leave.perform(subject)
    script.rejoin.perform(subject)
    assert cluster.actions == [f"block {lost}", "clear links"]
    assert script.shape is not None
    assert not {f"{source}>{hearer}" for source, hearer in script.shape(FIVE).edges} & set(lost.split(", "))


@pytest.mark.parametrize("name", ["split", "one-way", "bridge", "ring"])
def test_who_is_absent_hears_no_leader_and_no_controller_that_hears_it(name: str) -> None:
    shape = find_script(name).shape
    assert shape is not None
    reach = Reach(FIVE.controllers)
    reach.blocked.update(topology.lost(shape(FIVE)))
    assert [broker for broker in FIVE.brokers if not reach.has(broker)] == list(FIVE.absent)
    leader = FIVE.replicas(0)[0]
    heard_by_both = [b for b in FIVE.absent if shape(FIVE).has_edge(b, leader) and shape(FIVE).has_edge(leader, b)]
    assert heard_by_both == []


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("split", {}, "give --absent 2 or more"),
        ("split", {"brokers": 4, "absent": 2}, "2 of 4 brokers are not a minority"),
        ("bridge", {"brokers": 4}, "give --brokers 5 or more"),
        ("bridge", {"brokers": 5, "absent": 2, "partitions": 3}, "give --partitions 2 or fewer"),
        ("ring", {"brokers": 5}, "give --brokers 5 --absent 2, say"),
        ("ring", {"brokers": 5, "absent": 2, "partitions": 2}, "give --partitions 1"),
        ("controller-kill", {}, "give --brokers 4 or more"),
        ("relay", {"brokers": 4}, "a replica has to be on broker 4, too: give --replication-factor 4"),
        ("relay", {"replication_factor": 2}, "a replica has to be on broker 3, too: give --replication-factor 3"),
        ("relay", {"absent": 2}, "two leaders have to stay: give --absent 1"),
    ],
)
def test_brokers_that_cannot_stand_so_are_refused(name: str, shape: dict[str, int], expected: str) -> None:
    options = RunOptions("kafka-3.9", "all", nemesis=name, **shape)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"--nemesis {name}: .*{expected}"):
        plan_run(options)


def test_a_runtime_refuses_needs_that_its_table_does_not_have() -> None:
    nothing: Any = None
    wanted = RuntimeRequest(find_target("kafka-4.4"), nothing, nothing, needs=frozenset({"a battery for each broker"}))
    with pytest.raises(UsageError, match="this nemesis needs a battery for each broker: this runtime does not have"):
        raise_if_unmet(wanted, {Need.CLOCK: lambda: None})
    raise_if_unmet(wanted, {"a battery for each broker": lambda: None})


def test_a_rolling_restart_gets_to_the_others_once_the_absent_are_back() -> None:
    cluster, subject = context_of()
    script = find_script("rolling")
    script.leave.perform(subject)
    assert cluster.actions == ["stop 2"]
    script.rejoin.perform(subject)
    back = "wait for broker 2 to rejoin every ISR"
    registered = "wait for brokers [1, 2, 3] to register"
    turns = [["stop 1", "start 1", registered, back], ["stop 3", "start 3", registered, back]]
    assert cluster.actions[1:] == ["start 2", back, *turns[0], *turns[1]]


def test_the_controller_is_killed_while_the_broker_is_away_and_comes_back_at_once() -> None:
    placement = place(brokers=4, replication_factor=3, partitions=1, absent=1, quorum=3)
    assert placement.controllers == (1, 3, 4)
    cluster, subject = context_of(placement)
    find_script("controller-kill").leave.perform(subject)
    assert [value for value in cluster.actions if not value.startswith("who")] == [
        "kill 2",
        "wait for broker 2 to leave every ISR",
        "wait for an active controller",
        "kill 1",
        "wait for another controller to be elected",
        "wait for the killed controller 1 to be given up",
        "start 1",
        "wait for brokers [1, 3, 4] to register",
        "wait for brokers 1, 3, 4 to be in every ISR",
    ]


def test_a_full_disk_is_written_to_until_the_broker_has_ended() -> None:
    cluster, subject = context_of()
    script = find_script("disk-full")
    script.leave.perform(subject)
    assert cluster.actions == ["fill the disk of 2", "ballast", "wait for the brokers without disk space to end"]
    cluster.actions.clear()
    script.rejoin.perform(subject)
    assert cluster.actions == ["free the disk of 2", "start 2"]


def lost(topic: str, first_offset: int) -> Cut:
    return Cut(f"{topic}-0/a.log", 500, 100, LostRecords(topic, 0, first_offset, first_offset + 3, 4))


def test_the_power_is_cut_once_the_payload_is_on_disk_and_not_all_that_follows() -> None:
    cluster, subject = context_of()
    tail = lost("stuck-lso", PAYLOAD_END)
    cluster.runtime.unsynced_files = [lost("stuck-lso", PAYLOAD_END - 1), tail, Cut("stuck-lso-0/a.snapshot", 9, 0)]
    script = find_script("power-failure")
    script.leave.perform(subject)
    flush = "topics aborted-to-committed, stuck-lso: {{'flush.messages': {}}}"
    noted = {"broker": 2, "cut": [{"file": "stuck-lso-0/a.snapshot", "from_bytes": 9, "to_bytes": 0}]}
    assert cluster.actions == [
        flush.format("'1'"),
        "ballast",
        "wait for the payload to be synced to disk",
        flush.format(None),
        "ballast",
        "cut the power of 2",
        f"note power failure: {noted}",
    ]
    script.rejoin.perform(subject)
    assert cluster.actions[-1] == "start 2"


def test_a_payload_that_is_never_on_disk_ends_the_run() -> None:
    cluster, subject = context_of()
    cluster.runtime.unsynced_files = [lost("stuck-lso", 0)] * 100
    with pytest.raises(WaitTimeoutError, match="the payload to be synced to disk"):
        find_script("power-failure").leave.perform(subject)
    assert "cut the power of 2" not in cluster.actions


def test_what_was_lost_is_noted_with_the_isr_that_the_partition_had_before() -> None:
    cluster, subject = context_of()
    cluster.runtime.unsynced_files = [lost("stuck-lso", 7), lost("unknown", 7)]
    FAULTS["power-failure"].inject(subject.absent)
    (note,) = (action for action in cluster.actions if action.startswith("note"))
    assert (
        "'topic': 'stuck-lso', 'partition': 0, 'first_offset': 7, 'last_offset': 10, 'records': 4, 'isr': [1, 2, 3]"
        in note
    )
    assert "'topic': 'unknown', 'partition': 0, 'first_offset': 7, 'last_offset': 10, 'records': 4, 'isr': None" in note


def test_a_broker_is_killed_in_mid_pass_while_ballast_is_written() -> None:
    cluster, subject = context_of()
    cluster.runtime.files = [{}, {}, {"t-0/b.log.cleaned": 7, "t-0/a.log.swap": 5}]
    script = find_script("crash-in-cleaning")
    script.leave.perform(subject)
    waited = "wait for a cleaner's files (.cleaned or .swap) on broker 2, to kill it in mid-pass"
    files = [{"file": "t-0/a.log.swap", "bytes": 5}, {"file": "t-0/b.log.cleaned", "bytes": 7}]
    noted = f"note crash in cleaning: { ({'broker': 2, 'files': files}) }"
    assert cluster.actions == ["ballast", "begin the ballast", waited, "kill 2", noted]
    script.rejoin.perform(subject)
    assert cluster.actions[-1] == "start 2"


def test_a_broker_whose_cleaner_is_never_in_mid_pass_lives_on_and_that_ends_the_run() -> None:
    cluster, subject = context_of()
    script = find_script("crash-in-cleaning")
    with pytest.raises(WaitTimeoutError, match=r"\.cleaned or \.swap"):
        script.leave.perform(subject)
    script.rejoin.perform(subject)
    assert not {"kill 2", "start 2"} & set(cluster.actions)


def test_a_clock_that_is_ahead_is_put_right() -> None:
    cluster, subject = context_of()
    script = find_script("clock-skew")
    assert not script.is_outage
    script.leave.perform(subject)
    script.rejoin.perform(subject)
    assert cluster.actions == ["skew 2 by 3600 s", "skew 2 by 0 s"]
    cluster.actions.clear()
    FAULTS["clock-skew"].heal(subject.absent)
    assert cluster.actions == ["kill 2", "skew 2 by 0 s", "start 2"], "a soak continues with that broker"


def test_poor_links_take_nobody_away() -> None:
    cluster, subject = context_of(TWO_AWAY)
    for name in ("lossy", "slow"):
        script = find_script(name)
        assert not script.is_outage
        script.leave.perform(subject)
        script.rejoin.perform(subject)
    lossy = ["lose 0.2 of 2", "lose 0.2 of 3", "clear links"]
    assert cluster.actions == [*lossy, "delay 2 by 150 ms", "delay 3 by 150 ms", "clear links"]


def test_a_partition_ends_hung_fetches_soon_enough() -> None:
    for timers in TIMERS.values():
        assert int(find_script("partition").broker_settings["request.timeout.ms"]) < timers.settle_s * 1000


def test_nothing_is_nothing() -> None:
    cluster, subject = context_of()
    script = find_script("none")
    script.leave.perform(subject)
    script.rejoin.perform(subject)
    assert cluster.actions == []


def test_the_throttle_is_on_exposed_topics_at_a_pace_for_all_their_partitions() -> None:
    cluster, subject = context_of(TWO_AWAY)
    FAULTS["throttle"].inject(subject.absent)
    assert cluster.actions == [
        on_topics("*"),
        on_brokers(leader="12000", follower="6000"),  # two topics of three partitions, to two followers
    ]


def test_lifting_takes_back_all_that_the_throttle_has_set() -> None:
    cluster, subject = context_of(TWO_AWAY)
    FAULTS["throttle"].heal(subject.absent)
    assert cluster.actions == [
        on_brokers(leader=None, follower=None),
        on_topics(None),
    ]


def test_joining_replicas_are_added_behind_the_ballast_and_have_the_payload_when_the_outage_begins() -> None:
    cluster, subject = context_of()
    find_script("join").leave.perform(subject)
    assert cluster.actions == [
        "ballast",
        on_topics("*"),
        on_brokers(leader="2000", follower="2000"),
        "reassign {('aborted-to-committed', 0): (1, 3, 2), ('stuck-lso', 0): (1, 3, 2)}",
        "wait for the new replicas to have copied the payload",
    ]
    ends = cluster.observer.ends
    assert set(ends) == {2}, "only the new replicas are waited for"
    assert PAYLOAD_END <= ends[2] < BALLAST_END, "and not until they have the ballast"


def test_each_of_the_joining_brokers_has_to_have_the_payload() -> None:
    cluster, subject = context_of(TWO_AWAY)
    cluster.observer.ends = {3: -1000}
    with pytest.raises(WaitTimeoutError, match="the new replicas to have copied the payload"):
        find_script("join").leave.perform(subject)


def test_leadership_moves_between_the_payload_and_the_ballast_from_a_late_cleaner_to_one_in_time() -> None:
    cluster, subject = context_of()
    script = find_script("relay")
    script.leave.perform(subject)
    assert cluster.actions == [
        "broker 3: {'log.cleaner.backoff.ms': '50000'}",
        "wait for the cleaners of broker 3 to pause",
        "ballast",
    ]
    assert cluster.late == {3}
    assert [cluster.cleaning(tp) for tp in cluster.replicas] == [[1, 2], [1, 2], [1]]
    cluster.actions.clear()
    assert script.expose is not None
    script.expose.perform(subject)
    assert cluster.actions == [
        on_topics("*"),
        on_brokers(leader="2000", follower="2000"),
        "reassign {('aborted-to-committed', 0): [3, 1], ('stuck-lso', 0): [3, 1]}",
        "wait for broker 3 to lead aborted-to-committed, stuck-lso",
        "reassign {('aborted-to-committed', 0): [1, 3, 2], ('stuck-lso', 0): [1, 3, 2]}",
        "wait for the new replicas to have copied the payload",
        "wait for broker 1 to lead aborted-to-committed, stuck-lso",
    ]
    assert PAYLOAD_END <= cluster.observer.ends[2] < BALLAST_END
    cluster.actions.clear()
    script.rejoin.perform(subject)
    assert cluster.actions == [
        on_brokers(leader=None, follower=None),
        on_topics(None),
        "broker 3: {'log.cleaner.backoff.ms': None}",
    ]
    assert not cluster.late


def test_the_first_leader_is_the_late_broker_in_every_partition() -> None:
    cluster, subject = context_of(place(brokers=3, replication_factor=3, partitions=2, absent=1))
    expose = find_script("relay").expose
    assert expose is not None
    expose.perform(subject)
    first, second = (action for action in cluster.actions if action.startswith("reassign"))
    assert first.count("[3, 1]") == second.count("[1, 3, 2]") == len(cluster.exposed) == 4


def test_dead_replicas_are_assigned_again_before_their_broker_starts() -> None:
    cluster, subject = context_of()
    script = find_script("reassigned")
    script.leave.perform(subject)
    assert cluster.actions == [
        "kill 2",
        "wait for broker 2 to leave every ISR",
        "reassign {('aborted-to-committed', 0): [1, 3], ('stuck-lso', 0): [1, 3]}",
        "wait for replicas to be assigned as asked",
    ]
    cluster.actions.clear()
    assert script.expose is not None
    script.expose.perform(subject)
    script.rejoin.perform(subject)
    assert cluster.actions == [
        "reassign {('aborted-to-committed', 0): (1, 3, 2), ('stuck-lso', 0): (1, 3, 2)}",
        "wait for replicas to be assigned as asked",
        "start 2",
    ]


def test_a_throttled_catch_up_begins_with_an_outage_that_leaves_the_broker_behind() -> None:
    cluster, subject = context_of()
    find_script("catch-up").leave.perform(subject)
    assert cluster.actions == [
        "kill 2",
        "wait for broker 2 to leave every ISR",
        "ballast",
        on_topics("*"),
        on_brokers(leader="2000", follower="2000"),
        "start 2",
        "wait for brokers [1, 2, 3] to register",
        "wait for the restarted brokers to serve their replicas",
    ]
    assert cluster.clock.now_s() == 1, "a look from before the restart does not count"


@pytest.mark.parametrize("name", ["join", "catch-up"])
def test_the_return_of_a_throttled_replica_is_the_end_of_the_throttle(name: str) -> None:
    cluster, subject = context_of()
    find_script(name).rejoin.perform(subject)
    lifted = cluster.actions.copy()
    cluster.actions.clear()
    FAULTS["throttle"].heal(subject.absent)
    assert lifted == cluster.actions


def again(name: str) -> RecordedCluster:
    """Take up a run whose absent brokers are all down."""
    cluster, subject = context_of(TWO_AWAY)
    cluster.runtime.down = set(TWO_AWAY.absent)
    resume = find_script(name).resume
    assert resume is not None
    resume(subject)
    return cluster


def test_who_was_killed_is_down_when_the_run_is_resumed() -> None:
    assert again("kill").actions == []


@pytest.mark.parametrize("name", ["join", "catch-up"])
def test_who_was_throttled_runs_when_the_run_is_resumed_and_the_throttle_stays(name: str) -> None:
    assert again(name).actions == ["start 2", "start 3", "wait for brokers [1, 2, 3, 4, 5] to register"]


def test_a_cleaner_is_late_again_when_the_run_is_resumed() -> None:
    placement = place(brokers=4, replication_factor=4, partitions=1, absent=1)
    cluster, subject = context_of(placement)
    cluster.runtime.down = set(placement.absent)
    resume = find_script("relay").resume
    assert resume is not None
    resume(subject)
    assert cluster.actions == [
        "start 2",
        "wait for brokers [1, 2, 3, 4] to register",
        "broker 4: {'log.cleaner.backoff.ms': '50000'}",
        "wait for the cleaners of broker 4 to pause",
    ]
    assert cluster.late == {4}


def test_where_nobody_was_away_everybody_is_back_when_the_run_is_resumed() -> None:
    assert again("none").actions == ["start 2", "start 3", "wait for brokers 2, 3 to rejoin every ISR"]


def test_what_a_process_or_a_link_was_set_to_is_lost_with_the_harness() -> None:
    kept = {Need.DISK, Need.SYNCS, Need.FILES}
    passing = {name for name, script in SCRIPTS.items() if script.needs - kept}
    assert {"partition", "split", "lossy", "slow", "clock-skew"} <= passing
    assert {name for name, script in SCRIPTS.items() if script.resume is None} == {"pause"} | passing
