"""The actions of each nemesis on the brokers, in order; every action is undone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.cluster import RecordedCluster, recorded_cluster
from fakes.observer import BALLAST_END, PAYLOAD_END

from harness.errors import HarnessError, UsageError, WaitTimeoutError
from harness.runtimes.base import Need, RuntimeRequest, raise_if_unmet
from harness.runtimes.namespaces import Reach
from harness.runtimes.power import Cut, LostRecords
from harness.schedules.placement import Placement, place
from harness.schedules.timers import TIMERS
from harness.targets import find_target
from nemesis import FAULTS, SCRIPTS, declared_in, find_script, topology
from nemesis.fault import FaultContext
from nemesis.script import Act, Script, nothing

PACE, WINDOW_S = 1000, 20
SCENARIOS = "aborted-to-committed, stuck-lso"


def performed(cluster: RecordedCluster, act: Callable[[Any], object], context: object) -> list[str]:
    cluster.actions.clear()
    act(context)
    return cluster.actions.copy()


def on_topics(value: str | None) -> str:
    rules = {f"{side}.replication.throttled.replicas": value for side in ("leader", "follower")}
    return f"topics {SCENARIOS}: {rules}"


def on_brokers(leader: str | None, follower: str | None) -> str:
    rates = {"leader.replication.throttled.rate": leader, "follower.replication.throttled.rate": follower}
    return f"brokers: {rates}"


def on_late_broker(backoff_ms: str | None) -> str:
    return f"broker 3: { {'log.cleaner.backoff.ms': backoff_ms} }"


def reassign(*replicas: int, to: Callable[[Sequence[int]], Sequence[int]] = list) -> str:
    return f"reassign { {(topic, 0): to(replicas) for topic in SCENARIOS.split(', ')} }"


FIVE = place(brokers=5, replication_factor=3, partitions=1, absent=2)
TWO_AWAY = place(brokers=5, replication_factor=4, partitions=3, absent=2)


def context_of(placement: Placement | None = None) -> tuple[RecordedCluster, FaultContext]:
    cluster = recorded_cluster(placement or Placement())
    return cluster, FaultContext(
        cluster, cluster.absent, PACE, WINDOW_S,
        note=lambda f, **fields: cluster.actions.append(f"note {f}: {fields}"),
        write_ballast=lambda: cluster.actions.append("ballast"),
        payload_ends=lambda: dict.fromkeys(cluster.exposed, PAYLOAD_END),
    )  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_script_has_its_name_and_words(script: Script) -> None:
    assert find_script(script.name) is script
    assert script.summary
    for act in filter(None, (script.leave, script.expose, script.rejoin)):
        assert "{" not in act.words.format(broker="2, 3")
        assert ("2, 3" in act.words.format(broker="2, 3")) == (script.name != "none")


def test_a_script_does_to_brokers_as_its_faults_do_and_what_is_lost_with_the_harness() -> None:
    outages = {name for name, script in SCRIPTS.items() if script.is_outage}
    assert SCRIPTS.keys() - outages == {"none", "clock-skew", "lossy", "slow"}
    running = {name for name, script in SCRIPTS.items() if script.keeps_processes}
    assert running == {"pause", "partition", "split", "one-way", "bridge", "ring"}
    assert SCRIPTS["relay"].broker_settings == SCRIPTS["join"].broker_settings == {"replica.fetch.max.bytes": "32768"}
    assert SCRIPTS["disk-full"].needs == {Need.DISK}
    kept = {Need.DISK, Need.SYNCS, Need.FILES}
    passing = {name for name, script in SCRIPTS.items() if script.needs - kept}
    assert {"partition", "split", "lossy", "slow", "clock-skew"} <= passing
    assert {name for name, script in SCRIPTS.items() if script.resume is None} == {"pause"} | passing


def test_a_module_declares_a_fault_or_a_script_once_and_soak_draws_it_or_says_why_not() -> None:
    fault, idle = FAULTS["kill"], Act("wait", nothing)
    script = Script(name="wait", summary="no fault", leave=idle, rejoin=idle, soak_excluded="no fault")
    modules = [SimpleNamespace(FAULT=fault), SimpleNamespace(SCRIPT=script), SimpleNamespace()]
    assert declared_in(modules) == ({"kill": fault}, {"wait": script})
    for module, error in (
        (SimpleNamespace(FAULT=replace(fault)), "two modules declare the fault kill"),
        (SimpleNamespace(SCRIPT=replace(script)), "two modules declare the script wait"),
        (SimpleNamespace(SCRIPT=replace(script, name="w", soak_excluded="")), "w: declare a FAULT, or the reason why"),
    ):
        with pytest.raises(ValueError, match=error):
            declared_in([*modules, module])


THROTTLE = [on_topics("*"), on_brokers(leader="2000", follower="2000")]
LIFT = [on_brokers(leader=None, follower=None), on_topics(None)]
COPIED = "wait for the new replicas to have copied the payload"
GONE, BACK = "wait for broker 2 to leave every ISR", "wait for broker 2 to rejoin every ISR"
REGISTERED = "wait for brokers [1, 2, 3] to register"
ASSIGNED = "wait for replicas to be assigned as asked"
SERVED = "wait for the restarted brokers to serve their replicas"
LED_BY = f"wait for broker {{}} to lead {SCENARIOS}"


@pytest.mark.parametrize(("name", "leave", "expose", "rejoin"), [
    ("none", [], [], []),
    ("clock-skew", ["skew 2 by 3600 s"], [], ["skew 2 by 0 s"]),
    ("disk-full", ["fill the disk of 2", "ballast", "wait for the brokers without disk space to end"], [],
     ["free the disk of 2", "start 2"]),
    ("rolling", ["stop 2"], [],
     ["start 2", BACK, "stop 1", "start 1", REGISTERED, BACK, "stop 3", "start 3", REGISTERED, BACK]),
    ("join", ["ballast", *THROTTLE, reassign(1, 3, 2, to=tuple), COPIED], [], LIFT),
    ("catch-up", ["kill 2", GONE, "ballast", *THROTTLE, "start 2", REGISTERED, SERVED], [], LIFT),
    ("relay", [on_late_broker("50000"), "wait for the cleaners of broker 3 to pause", "ballast"],
     [*THROTTLE, reassign(3, 1), LED_BY.format(3), reassign(1, 3, 2), COPIED, LED_BY.format(1)],
     [*LIFT, on_late_broker(None)]),
    ("reassigned", ["kill 2", GONE, reassign(1, 3), ASSIGNED], [reassign(1, 3, 2, to=tuple), ASSIGNED],
     ["start 2"]),
])  # fmt: skip
def test_the_acts_of_a_script(name: str, leave: list[str], expose: list[str], rejoin: list[str]) -> None:
    cluster, subject = context_of()
    script = find_script(name)
    assert performed(cluster, script.leave.perform, subject) == leave
    if name == "catch-up":
        assert cluster.clock.now_s() == 1, "a look from before the restart does not count"
    if name == "relay":
        assert cluster.late == {3}
        assert [cluster.cleaning(tp) for tp in cluster.replicas] == [[1, 2], [1, 2], [1]]
    if script.expose is not None:
        assert performed(cluster, script.expose.perform, subject) == expose
    if script.joins:
        assert set(cluster.observer.ends) == {2}, "only the new replicas are waited for"
        assert PAYLOAD_END <= cluster.observer.ends[2] < BALLAST_END, "and not until they have the ballast"
    assert performed(cluster, script.rejoin.perform, subject) == rejoin
    assert not cluster.late


@pytest.mark.parametrize(("name", "begin", "end"), [
    ("kill", "kill {}", ["start 2", "start 3"]),
    ("pause", "pause {}", ["resume 2", "resume 3"]),
    ("partition", "cut {}", ["heal 2", "heal 3"]),
    ("lossy", "lose 0.2 of {}", ["clear links"]),
    ("slow", "delay {} by 150 ms", ["clear links"]),
    ("clock-skew", "skew {} by 3600 s",
     ["kill 2", "kill 3", "skew 2 by 0 s", "skew 3 by 0 s", "start 2", "start 3"]),
])  # fmt: skip
def test_a_fault_is_on_each_of_its_brokers(name: str, begin: str, end: list[str]) -> None:
    cluster, subject = context_of(TWO_AWAY)
    assert performed(cluster, FAULTS[name].inject, subject) == [begin.format(broker) for broker in (2, 3)]
    assert performed(cluster, FAULTS[name].heal, subject) == end
    script = SCRIPTS[name]
    assert (script.leave.perform, script.expose) == (FAULTS[name].inject, None)
    assert (script.rejoin.perform is FAULTS[name].heal) == (name != "clock-skew")


def test_the_pace_of_the_throttle_is_for_all_partitions_of_exposed_topics() -> None:
    cluster, subject = context_of(TWO_AWAY)
    # Two topics of three partitions, to two followers.
    throttled = [on_topics("*"), on_brokers(leader="12000", follower="6000")]
    assert performed(cluster, FAULTS["throttle"].inject, subject) == throttled
    assert performed(cluster, FAULTS["throttle"].heal, subject) == LIFT


def test_the_controller_is_killed_while_the_broker_is_down_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = place(brokers=4, replication_factor=3, partitions=1, absent=1, quorum=3)
    assert placement.controllers == (1, 3, 4)
    cluster, subject = context_of(placement)
    actions = performed(cluster, find_script("controller-kill").leave.perform, subject)
    assert [value for value in actions if not value.startswith("who")] == [
        "kill 2", GONE, "wait for an active controller", "kill 1", "wait for another controller to be elected",
        "wait for controller 1 to be given up", "start 1", "wait for brokers [1, 3, 4] to register",
        "wait for brokers 1, 3, 4 to be in every ISR",
    ]  # fmt: skip
    cluster, subject = context_of(placement)
    registered = iter([set[int](), {1, 3}, {3, 4}, {1, 3, 4}])

    def asked() -> set[int]:
        cluster.actions.append("asked")
        return next(registered)

    # At first, nobody answers.
    monkeypatch.setattr(cluster, "registered", asked)
    find_script("controller-kill").leave.perform(subject)
    assert cluster.actions[: cluster.actions.index("start 1")].count("asked") == 3
    cluster, subject = context_of(placement)
    answers = iter([1, None])
    monkeypatch.setattr(cluster, "active_controller", lambda: next(answers))
    with pytest.raises(HarnessError, match="the active controller was not killed"):
        find_script("controller-kill").leave.perform(subject)


@pytest.mark.parametrize(("name", "lost"), [
    ("split", "1>2, 1>3, 2>1, 2>4, 2>5, 3>1, 3>4, 3>5, 4>2, 4>3, 5>2, 5>3"),
    ("one-way", "2>1, 2>3, 2>4, 2>5, 3>1, 3>2, 3>4, 3>5"),
    ("bridge", "1>2, 1>3, 2>1, 2>4, 3>1, 3>4, 4>2, 4>3"),
    ("ring", "1>2, 1>3, 2>1, 2>5, 3>1, 3>4, 4>3, 4>5, 5>2, 5>4"),
])  # fmt: skip
def test_a_topology_is_what_its_lost_links_leave(name: str, lost: str) -> None:
    cluster, subject = context_of(FIVE)
    script = find_script(name)
    assert script.why_unfit(FIVE) is None
    script.leave.perform(subject)
    script.rejoin.perform(subject)
    assert cluster.actions == [f"block {lost}", "clear links"]
    assert script.shape is not None
    links = set(script.shape(FIVE))
    assert not {f"{source}>{hearer}" for source, hearer in links} & set(lost.split(", "))
    reach = Reach(FIVE.controllers, FIVE.brokers)
    reach.blocked.update(topology.lost(links, FIVE.brokers))
    assert [broker for broker in FIVE.brokers if not reach.is_up(broker)] == list(FIVE.absent)
    leader = FIVE.replicas(0)[0]
    assert not [b for b in FIVE.absent if {(b, leader), (leader, b)} <= links], "who is absent hears no leader"


def test_a_runtime_refuses_needs_that_its_table_does_not_have() -> None:
    nothing: Any = None
    wanted = RuntimeRequest(find_target("kafka-4.4"), nothing, nothing, needs=frozenset({"a battery for each broker"}))
    with pytest.raises(UsageError, match="this run needs a battery for each broker: this runtime does not have"):
        raise_if_unmet(wanted, {Need.CLOCK: lambda: None})
    raise_if_unmet(wanted, {"a battery for each broker": lambda: None})


def lost(topic: str, first_offset: int) -> Cut:
    return Cut(f"{topic}-0/a.log", 500, 100, LostRecords(topic, 0, first_offset, first_offset + 3, 4))


def test_the_power_is_cut_once_the_payload_is_on_disk_or_the_run_ends() -> None:
    cluster, subject = context_of()
    tail = lost("stuck-lso", PAYLOAD_END)
    cluster.runtime.unsynced_files = [lost("stuck-lso", PAYLOAD_END - 1), tail, Cut("stuck-lso-0/a.snapshot", 9, 0)]
    script = find_script("power-failure")
    script.leave.perform(subject)
    flush = f"topics {SCENARIOS}: {{{{'flush.messages': {{}}}}}}"
    noted = {"broker": 2, "cut": [{"file": "stuck-lso-0/a.snapshot", "from_bytes": 9, "to_bytes": 0}]}
    assert cluster.actions == [
        flush.format("'1'"), "ballast", "wait for the payload to be synced to disk", flush.format(None), "ballast",
        "cut the power of 2", f"note power failure: {noted}",
    ]  # fmt: skip
    script.rejoin.perform(subject)
    assert cluster.actions[-1] == "start 2"
    cluster, subject = context_of()
    cluster.runtime.unsynced_files = [lost("stuck-lso", 0)] * 100
    with pytest.raises(WaitTimeoutError, match="the payload to be synced to disk"):
        find_script("power-failure").leave.perform(subject)
    assert "cut the power of 2" not in cluster.actions


def test_what_was_lost_is_noted_with_the_isr_that_the_partition_had_before() -> None:
    cluster, subject = context_of()
    cluster.runtime.unsynced_files = [lost("stuck-lso", 7), lost("unknown", 7)]
    FAULTS["power-failure"].inject(subject)
    (note,) = (action for action in cluster.actions if action.startswith("note"))
    for topic, isr in (("stuck-lso", [1, 2, 3]), ("unknown", None)):
        offsets = "'partition': 0, 'first_offset': 7, 'last_offset': 10, 'records': 4"
        assert f"'topic': '{topic}', {offsets}, 'isr': {isr}" in note


def test_a_broker_is_killed_in_mid_pass_while_ballast_is_written_or_the_run_ends() -> None:
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
    cluster, subject = context_of()
    script = find_script("crash-in-cleaning")
    with pytest.raises(WaitTimeoutError, match=r"\.cleaned or \.swap"):
        script.leave.perform(subject)
    script.rejoin.perform(subject)
    assert not {"kill 2", "start 2"} & set(cluster.actions)


def test_a_partition_ends_hung_fetches_soon_enough() -> None:
    for timers in TIMERS.values():
        assert int(find_script("partition").broker_settings["request.timeout.ms"]) < timers.settle_s * 1000


def test_each_of_the_joining_brokers_has_to_have_the_payload() -> None:
    cluster, subject = context_of(TWO_AWAY)
    cluster.observer.ends = {3: -1000}
    with pytest.raises(WaitTimeoutError, match="the new replicas to have copied the payload"):
        find_script("join").leave.perform(subject)


def test_the_first_leader_is_the_late_broker_in_every_partition() -> None:
    cluster, subject = context_of(place(brokers=3, replication_factor=3, partitions=2, absent=1))
    expose = find_script("relay").expose
    assert expose is not None
    expose.perform(subject)
    first, second = (action for action in cluster.actions if action.startswith("reassign"))
    assert first.count("[3, 1]") == second.count("[1, 3, 2]") == len(cluster.exposed) == 4


@pytest.mark.parametrize(("name", "actions"), [
    ("kill", []),
    ("join", ["start 2", REGISTERED]),
    ("catch-up", ["start 2", REGISTERED]),
    ("relay", ["start 2", REGISTERED, on_late_broker("50000"), "wait for the cleaners of broker 3 to pause"]),
    ("none", ["start 2", BACK]),
])  # fmt: skip
def test_a_resumed_run_whose_brokers_are_down_gets_the_fault_again(name: str, actions: list[str]) -> None:
    cluster, subject = context_of()
    cluster.runtime.down = {2}
    resume = find_script(name).resume
    assert resume is not None
    assert performed(cluster, resume, subject) == actions
    assert cluster.late == ({3} if name == "relay" else set())
