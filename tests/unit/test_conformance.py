"""Schedules on the model, pictures and what differs between them, and how many go in lockstep; no broker runs here."""

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import MagicMock

import pytest
from described import described
from fakes.conformance import ModelBrokers
from kafka.protocol.consumer import OffsetFetchResponse

from harness.broker_files.segments.records import ABORT, COMMIT, Record
from harness.cli.develop import conform as command
from harness.errors import UsageError
from harness.judge.verdict import ANOMALY
from harness.kafka_api.client_requests import ProducerIdentity
from harness.kafka_api.connection import Connection
from harness.kafka_api.messages import Request, message
from harness.model_checking.conform import partition as partitions
from harness.model_checking.conform import picture as pictures
from harness.model_checking.conform import schedules as known
from harness.model_checking.conform.brokers import Brokers, fetch_offsets, read_folder
from harness.model_checking.conform.conform import Outcome, all_schedules, outcomes_json, run_schedules
from harness.model_checking.conform.partition import BrokerPartition, offset_request
from harness.model_checking.conform.schedules import FILLER, GROUP_WAYS, PUT, WAYS, at_random, partition_schedule
from harness.model_checking.explore.walk import OF_GROUPS
from harness.models.cluster.broker import write_replica
from harness.models.log.version_rules import rules_of
from harness.models.world.world import ABSENT, Rules
from harness.schedules import operations as ops
from harness.schedules.operations import Operation
from harness.schedules.schedule import NO_PLAN, RoundClient, RoundPlan, RoundTopic, Schedule, in_order, write_schedule

OLD, NEW = (Rules(version=rules_of(version)) for version in ("3.9.2", "4.4.0"))
BEGIN = "t writes K"
CLEAN, CLEAN_AND_KEEP = ops.CleanerPass((1, 2, 3)), ops.CleanerPass((1, 2, 3), keeps=True)
KILLED, PAUSED = (f"{fault} begins on broker 2" for fault in ("kill", "pause"))
RESTARTS = "u begins again, which aborts its transaction"


def taken(
    *steps: str | Operation, rules: Rules = OLD, version: int = 1, replicas: Any = (1, 3, 2), of_groups: bool = False
) -> pictures.Simulated:
    schedule = partition_schedule("t", described(*steps), replicas, of_groups=of_groups)
    model = pictures.Simulated(schedule, replace(rules, epoch_bump=version > 1))
    for step in schedule.operations:
        model.take(step)
    return model


def held(model: pictures.Simulated, broker: int) -> list[str]:
    return [re.match(r"(.*?)(, by|, ages|, leader)", text)[1] for text in model.pictures()[broker].batches]  # type: ignore[index]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", WAYS)
def test_written_schedules_lead_where_they_say(name: str, version: int) -> None:
    (schedule,) = (it for it in known.written() if it.case == name)
    by_broker = taken(*schedule.operations, rules=NEW, version=version).pictures()
    wrong, right = by_broker[ABSENT], by_broker[3]
    assert not any(re.match(f"[0-3]-. ({COMMIT}|{ABORT})", text) for text in right.batches), "the marker is gone"
    values, right_values = (re.findall(r"\d:(-?\w+)", "; ".join(picture.batches)) for picture in (wrong, right))
    if name == "committed-to-aborted-value":
        # A later value supersedes the record: once broker 2 has cleaned, too, only its `.txnindex` may still differ.
        returned = schedule.operations[: schedule.operations.index(known.RETURN) + 1]
        by_broker = taken(*returned, rules=NEW, version=version).pictures()
        assert [("t", 0) in by_broker[broker].listed_aborts for broker in (ABSENT, 3)] == [True, False]
    elif name == "stuck-lso":
        assert (wrong.last_stable_offset, right.last_stable_offset) == (0, right.high_watermark)
    else:
        assert set(values) != set(right_values)


NONE = ("none", "none")
HERE_AND_THERE = {
    "group-frozen": (("unstable", "2"), ("2", "2")), "group-skips": (("1", "1"), ("0", "0")),
    "group-begins-at-aborted": (("0", "0"), NONE), "deleted-offset-back": (("0", "0"), NONE),
    "offset-hidden-but-superseded": (("2", "2"), ("2", "2")), "offset-deleted-while-pending": (NONE, NONE),
}  # fmt: skip
"""Answers about K after the outage, stable and not: of broker 2, and of broker 3."""


@pytest.mark.parametrize("rules", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("name", GROUP_WAYS)
def test_written_schedules_of_groups_lead_where_they_say(name: str, rules: Rules) -> None:
    (schedule,) = (it for it in known.written(of_groups=True) if it.case == name)
    leads = schedule.operations.index(ops.ElectLeader(2))
    absent, right = HERE_AND_THERE[name]
    model = taken(*schedule.operations[: leads + 1], rules=rules, of_groups=True)
    assert answers(model)["K"] == absent
    model.take(ops.ElectLeader(3))
    assert answers(model)["K"] == right


def answers(model: pictures.Simulated) -> dict[str, tuple[str, str]]:
    leader, shown = model.world.replication.leader_id, model.pictures()
    assert all(not it.offsets for broker, it in shown.items() if broker != leader)
    return {key: (stable, current) for key, stable, current in shown[leader].offsets}


def test_a_broker_that_was_killed_knows_what_its_log_tells() -> None:
    steps = (BEGIN, "t aborts", FILLER, CLEAN)
    killed, paused = (taken(*steps, how, "2 returns").pictures()[ABSENT] for how in (KILLED, PAUSED))
    listed = ("t 0-1 in segment 0, last stable offset 2",)
    assert killed.txnindex == paused.txnindex == listed, "an empty batch of the transaction is left"
    more = (*steps, "producers expire", FILLER, CLEAN)
    killed, paused = (taken(*more, how, "2 returns").pictures()[ABSENT] for how in (KILLED, PAUSED))
    assert ([text[:3] for text in paused.txnindex], killed.txnindex) == (["t 0"], ())


def test_a_schedule_decides_what_is_kept_and_which_brokers_clean() -> None:
    for passes, keeps in ((CLEAN_AND_KEEP,), True), ((CLEAN_AND_KEEP, "time passes"), False), ((CLEAN,), False):
        log = held(taken(PUT, "p writes -K", FILLER, *passes, FILLER, CLEAN), 1)
        assert ("1-1 data, 1:-K" in log) is keeps
    model = taken(PUT, PUT, FILLER, ops.CleanerPass((3,)))
    assert [model.pictures()[broker].cleaned_to for broker in (1, 2, 3)] == [None, None, 2]


def test_a_follower_copies_a_leaders_segment_into_one_of_its_own() -> None:
    by_broker = taken(PUT, KILLED, PUT, "p writes L", FILLER, CLEAN, "2 returns").pictures()
    assert (by_broker[1].segments, by_broker[ABSENT].segments) == ((0, 3), (0, 1, 3))


def test_a_replica_joins() -> None:
    model = taken(PUT, PAUSED, "2 returns", "2 joins", replicas=(1, 3))
    assert (sorted(model.world.up), held(model, ABSENT)) == ([1, 2, 3], ["0-0 data, 0:K"])
    for steps in ([PAUSED, "2 joins"], ["4 joins"]):
        with pytest.raises(ValueError, match="joins' is impossible in the model now"):
            taken(*steps, replicas=(1, 3))


@pytest.mark.parametrize(("steps", "version"), [
    (("t commits",), 1), ((BEGIN, "t aborts, having written nothing here"), 1), ((RESTARTS,), 1), (("2 joins",), 1),
    (("t aborts, having written nothing here",), 2), (("2 leads", KILLED), 1), ((KILLED, "2 leads"), 1),
])  # fmt: skip
def test_what_cannot_be(steps: tuple[str | Operation, ...], version: int) -> None:
    with pytest.raises(ValueError, match=f"'{steps[-1]}' is impossible in the model now"):
        taken(*steps, version=version)


def test_what_a_leader_refuses_and_a_client_without_transactions_cannot_do() -> None:
    """A producer has expired, and a lone marker brings back its epoch without its sequence."""
    model = taken(BEGIN, "t commits", "producers expire")
    assert model.can_write("t")
    model.take(ops.EndElsewhere("t", COMMIT))
    assert [model.can_write(name) for name in "tp"] == [False, True]
    with pytest.raises(UsageError, match="i has no transactions in models"):
        taken(ops.End("i", COMMIT))


@pytest.mark.parametrize("version", [1, 2])
def test_a_leader_without_the_records_of_an_open_transaction(version: int) -> None:
    steps = (BEGIN, ops.DeleteRecords(0), "2 joins", "2 leads")
    assert taken(*steps, version=version, replicas=(1, 3)).can_write("t") is (version == 1)


def test_versions_differ() -> None:
    aborted = (BEGIN, BEGIN, "u writes L", "t aborts", CLEAN)
    assert "1-1 data" in held(taken(*aborted[:3], "producers expire", *aborted[3:], rules=OLD), 1)
    below = ("p writes K L M", BEGIN, "p writes K L M", ops.DeleteRecords(2))
    assert [taken(*below, rules=rules).pictures()[1].last_stable_offset for rules in (OLD, NEW)] == [5, 4]


def test_random_schedules_are_the_same_for_a_seed_and_have_in_common_what_befalls_all() -> None:
    first, same, other = (at_random(seed, 4, OLD) for seed in ("a", "a", "b"))
    assert first == same != other
    for steps in zip(*(schedule.operations for schedule in first), strict=True):
        assert len(set(steps)) == 1 or not any(isinstance(step, known.CLUSTER_WIDE) for step in steps)
    assert len({schedule.operations for schedule in first}) == len(first)


KINDS = {
    "writes", r"t (commits|aborts)$", ", having written nothing here", "begins again", "leads", "are deleted", "joins",
    "(kill|stop|pause) begins", "2 returns", "cleans?$", "cleans? and keep", "time passes", "producers expire",
}  # fmt: skip


def kinds(steps: set[Operation]) -> set[str]:
    return {kind for step in steps for kind in KINDS if re.search(kind, str(step))}


@pytest.mark.parametrize("version", [1, 2])
def test_random_schedules_can_be_gone_through(version: int) -> None:
    steps = set[Operation]()
    for seed in range(6):
        for schedule in at_random(str(seed), 3, replace(NEW, epoch_bump=version > 1)):
            taken(*schedule.operations, rules=NEW, version=version, replicas=schedule.plan.brokers)
            steps |= set(schedule.operations)
    assert kinds(steps) == (KINDS if version == 1 else KINDS - {", having written nothing here"})


@pytest.mark.parametrize("rules", [OLD, NEW], ids=["old", "new"])
def test_random_schedules_of_groups_can_be_gone_through(rules: Rules) -> None:
    steps = set[Operation]()
    for seed in range(6):
        for schedule in at_random(str(seed), 3, rules, of_groups=True):
            taken(*schedule.operations, rules=rules, of_groups=True)
            steps |= set(schedule.operations)
    assert kinds(steps) == KINDS - {"are deleted", "joins"}
    assert ops.WriteBatch("p", ("K",), (0,)) in steps
    assert not any(step.process == "i" or re.search("(t|u) writes -", str(step)) for step in steps)


STEPS_WITH_ALL = (BEGIN, "t aborts", "p writes L -L", FILLER, CLEAN, "u writes M")


def a_picture() -> pictures.ReplicaPicture:
    return taken(*STEPS_WITH_ALL, "3 leads").pictures()[1]


def test_a_picture_is_shown_and_a_difference_in_any_field_but_times_is_reported() -> None:
    picture = a_picture()
    assert picture.horizons_ms
    for name in (field.name for field in fields(picture)):
        another: Any = {name: ("another",)}
        reported = pictures.differences(picture, replace(picture, **another))
        assert [text.split(" model has ")[0] for text in reported] == [f"{name}: the"] * (name != "horizons_ms")
    text = "\n".join(pictures.shown(picture))
    first = "0-0 data, by t epoch 0 sequence 0, transactional, leader epoch 0"
    for part in (first, "2-3 data, 3:-L, ages, leader epoch 0", "log start: 0"):
        assert f"  {part}" in text


CHANGES: dict[str, Any] = {
    "base_offset": 1, "last_offset": 5, "records": (Record(0, 0, b"K", b"v"),), "leader_epoch": 3,
    "producer_id": 8, "producer_epoch": 4, "base_sequence": 9, "transactional": False, "delete_horizon_ms": 5,
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_difference_in_any_field_of_a_batch_is_reported(name: str) -> None:
    model = taken("t writes K L", "p writes L")
    replica, named = model.world.replicas[1], {7: "t"}
    batches = replica.segments[0].batches
    batches[0] = replace(batches[0], records=())
    picture = pictures.picture_of(replica, named)
    batches[0] = replace(batches[0], **{name: CHANGES[name]})
    differing, *_ = pictures.differences(picture, pictures.picture_of(replica, named))
    assert differing.startswith("batches: ")
    assert picture.batches[1] not in differing, "entries of both are omitted"


def test_what_is_on_disk_is_what_the_model_has(tmp_path: Path) -> None:
    model = taken(*STEPS_WITH_ALL)
    replica = model.world.replicas[1]
    write_replica(tmp_path, replica)
    named = {it.producer_id: name for name, it in model.world.clients.items()}
    read = read_folder(tmp_path, named, replica.cleaned_to)
    expected = pictures.picture_of(replica, named)
    assert read == {name: getattr(expected, name) for name in read}


STEPS = described(PUT, FILLER, CLEAN_AND_KEEP, "time passes", FILLER, CLEAN)
TWO = [partition_schedule("one", STEPS), partition_schedule("two", (PUT, ops.Rest(), *STEPS[2:]))]


def gone(cluster: ModelBrokers, schedules: Sequence[Schedule] = tuple(TWO)) -> list[Outcome]:
    outcomes: list[Outcome] = []
    brokers: Any = cluster  # another class, with all that `run_schedules` uses
    run_schedules(brokers, schedules, OLD, lambda _: None, outcomes.append)
    return outcomes


def test_schedules_that_agree_go_to_their_end_and_have_in_common_what_befalls_their_cluster() -> None:
    cluster = ModelBrokers()
    assert [(it.schedule.case, it.agreed, it.disagreements) for it in gone(cluster)] == [("one", 6, ()), ("two", 6, ())]
    assert cluster.aged == [True, False, False], "only before time passes"
    with pytest.raises(ValueError, match="the whole cluster: 1, 2, 3 clean; rest"):
        gone(ModelBrokers(), [partition_schedule("one", (CLEAN,)), partition_schedule("two", (ops.Rest(),))])


def test_a_disagreement_ends_its_schedule_alone_and_is_reported_as_json() -> None:
    result = outcomes_json(ANOMALY, "kafka-3.9", gone(ModelBrokers(wrong={("two", 3): 2})), None)
    first, second = result["schedules"]
    assert (result["verdict"], result["reason"]) == (ANOMALY, None)
    assert (first["agreed"], first["steps"][:2]) == (1, ["p writes K", "rest"])
    difference = "log_start: the model has 0, the broker 99"
    assert first["disagreements"] == [{"step": 2, "broker": 3, "differences": [difference]}]
    assert (second["agreed"], second["disagreements"]) == (6, [])


def test_what_the_model_does_and_a_broker_refuses_is_a_disagreement() -> None:
    first, _ = gone(ModelBrokers(refuses={"one": FILLER}))
    (it,) = first.disagreements
    refused = "a batch is refused with OutOfOrderSequenceNumberError"
    assert (it.number, it.broker, it.differences) == (2, 1, [refused])


TAKEN = {
    "t writes K -L": [("write", [(b"K", b"v"), (b"L", None)], 7)], RESTARTS: [("restart",)],
    "t commits": [("end", COMMIT)], "t aborts": [("end", ABORT)],
    # A lone marker is of a transaction that registered the partition.
    "t aborts, having written nothing here": [("register",), ("end", ABORT)],
}  # fmt: skip


@pytest.fixture
def on_brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr(partitions, "RequestProducer", lambda *_, **__: MagicMock())
    brokers = Brokers(MagicMock(), MagicMock(), OLD)
    brokers.cluster.clock.time_ms = lambda: 7  # type: ignore[method-assign]
    monkeypatch.setattr(BrokerPartition, "ask", lambda *_: None)
    return brokers


def calls_of(partition: BrokerPartition, producer: str) -> Any:
    fake: Any = partition._producers[producer]
    return [(name, *arguments) for name, arguments, _ in fake.method_calls]


@pytest.mark.parametrize("step", TAKEN)
def test_what_a_producer_is_asked_for(step: str, on_brokers: Brokers) -> None:
    partition = BrokerPartition(on_brokers, partition_schedule("t"), ("t", 0))
    partition.take(*described(step))
    assert calls_of(partition, step[0]) == TAKEN[step]


def test_brokers_know_every_step_of_schedules(on_brokers: Brokers) -> None:
    schedules = [it for seed in range(6) for it in (*at_random(str(seed), 3, NEW), *known.written())]
    for step in {step for schedule in schedules for step in schedule.operations}:
        if isinstance(step, known.CLUSTER_WIDE):
            with on_brokers.during(step), pytest.raises(ValueError, match="is not an operation of a partition"):
                BrokerPartition(on_brokers, partition_schedule("t"), ("t", 0)).take(step)
        else:
            BrokerPartition(on_brokers, partition_schedule("t"), ("t", 0)).take(step)
    with pytest.raises(ValueError, match="is not an operation of a cluster"), on_brokers.during(ops.Rest()):
        pass


@pytest.mark.parametrize(("fault", "actions"), [
    ("kill", ["kill", "start"]), ("stop", ["stop", "start"]), ("pause", ["pause", "resume"]),
    (ops.OUTAGE, ["pause", "resume"]),
])  # fmt: skip
def test_how_a_broker_goes_down_and_comes_back(fault: str, actions: list[str], on_brokers: Brokers) -> None:
    for it in (ops.Inject(fault, 2), ops.Heal(fault, 2)):
        with on_brokers.during(it):
            pass
    assert [name for name, *_ in on_brokers.cluster.runtime.method_calls] == actions  # type: ignore[attr-defined]


def test_time_passes_no_horizon_of_schedules_that_are_over(on_brokers: Brokers) -> None:
    on_brokers.kept_until_ms.add(10**15)
    on_brokers.create([partition_schedule("t")])
    assert on_brokers.kept_until_ms == set()


def test_the_schedule_of_a_file_is_the_only_one() -> None:
    with pytest.raises(UsageError, match="--schedule is the only schedule: leave out --seed"):
        command.main(["--target", "kafka-4.4", "--schedule", __file__, "--seed", "3"], standalone_mode=False)


SHRUNK: Final = RoundPlan(
    topics=(RoundTopic("first", 1, {}), RoundTopic("soak-1", 2, {})),
    clients=(RoundClient("t3", "java", "id"), RoundClient("plain-0", "java")),
)


def stored(folder: Path, *steps: str | Operation, plan: RoundPlan = NO_PLAN) -> Path:
    path = folder / "schedule.json"
    write_schedule(path, Schedule(in_order(*described(*steps)), "stuck-lso", "sim-kafka", plan=plan))
    return path


def test_a_schedule_of_explore_is_read(tmp_path: Path) -> None:
    steps = ("t puts K", "2 leaves", "t commits", "1 cleans", "time passes", "2 returns")
    schedule = known.read_for_conform(stored(tmp_path, *steps), NEW)
    assert [str(step) for step in schedule.operations] == [*steps[:3], "p writes filler", *steps[3:]]
    assert not pictures.is_of_groups(schedule)
    assert pictures.is_of_groups(known.read_for_conform(stored(tmp_path, "t puts K", plan=OF_GROUPS), NEW))


def test_a_shrunk_round_is_read_with_the_clients_and_brokers_of_the_model(tmp_path: Path) -> None:
    write = ops.Write("t3", "k", topic="soak-1", partition=1)
    steps = (write, ops.Inject("kill", 1), replace(write, process="plain-0", deletes=True), ops.CleanerPass((2, 3)))
    schedule = known.read_for_conform(stored(tmp_path, *steps, plan=SHRUNK), OLD)
    expected = ["t puts k", "kill begins on broker 2", "p deletes k", "p writes filler", "1, 3 clean"]
    assert [str(step) for step in schedule.operations] == expected
    assert schedule.plan.brokers == (3, 2, 1)


@pytest.mark.parametrize(("steps", "plan", "reason"), [
    (["t puts K", "2 lags"], NO_PLAN, "step 2, '2 lags', is not supported by harness conform"),
    (["1 reports"], NO_PLAN, "step 1, '1 reports', is not supported by harness conform"),
    (["t commits"], NO_PLAN, "'t commits' is impossible in the model now"),
    ([ops.Write("t3", "k", topic="first"), ops.Write("t3", "k", topic="soak-1")], SHRUNK, "it needs one partition"),
    ([ops.Inject("kill", 1), ops.Heal("kill", 1), ops.Inject("kill", 3)], SHRUNK, "faults of one broker"),
    (["4 cleans"], NO_PLAN, "passes of the brokers 1, 2, 3 only"),
    *(([], replace(NO_PLAN, brokers=brokers), "of the brokers 1, 2, 3 only") for brokers in ((), (1, 2, 3, 4))),
])  # fmt: skip
def test_rejected_schedules(tmp_path: Path, steps: list[str | Operation], plan: RoundPlan, reason: str) -> None:
    path = stored(tmp_path, *steps, plan=plan)
    with pytest.raises(UsageError, match=f"^{path}: conform cannot play this schedule: .*{reason}"):
        command.main(["--target", "kafka-4.4", "--schedule", str(path)], standalone_mode=False)


def test_groups_of_schedules() -> None:
    lists = list(all_schedules(45, 21, 0, OLD))
    assert [len(some) for some in lists] == [len(WAYS), 20, 20, 5, len(GROUP_WAYS), 20, 1]
    assert [pictures.is_of_groups(some[0]) for some in lists] == [False] * 4 + [True] * 3
    names = [schedule.case for some in lists[:2] + lists[4:6] for schedule in some]
    assert len(set(names)) == len(names)


T = TypeVar("T")


class Coordinator(Connection):
    """Answers about groups as a broker that coordinates group ``g`` and loads ``later``."""

    def __init__(self) -> None:
        """Connect to no broker."""

    def ask(self, request: Request[T]) -> T:
        asked: Any = request.message
        partition = {"partition_index": 0, "error_code": 0, "committed_offset": -1}
        topics = [{"name": key, "partitions": [partition]} for key in pictures.ALL_KEYS if key != "K"]
        of_k = {**partition, "error_code": 88 if asked.require_stable else 0, "committed_offset": 0}
        topics.append({"name": "K", "partitions": [of_k]})
        codes = {it.group_id: 14 * (it.group_id == "later") for it in asked.groups}
        groups = [{"group_id": name, "error_code": code, "topics": topics} for name, code in codes.items()]
        return request.decode(message(OffsetFetchResponse, 8, groups=groups))


def test_what_a_coordinator_answers() -> None:
    answered = fetch_offsets(Coordinator(), ["g", "later"])
    assert list(answered) == ["g"]
    others = [(key, "none", "none") for key in ("L", "M", "G", "filler")]
    assert set(answered["g"]) == {("K", pictures.UNSTABLE, "0"), *others}


@pytest.mark.parametrize(("transactional_id", "value", "name"), [
    (None, b"7", "OffsetCommitRequest"), ("tx", b"7", "TxnOffsetCommitRequest"), (None, None, "OffsetDeleteRequest"),
])  # fmt: skip
def test_requests_that_write_records_of_groups(transactional_id: str | None, value: bytes | None, name: str) -> None:
    request: Any = offset_request(ProducerIdentity(transactional_id, 5, 2), "g", 1, [(b"K", value)]).message
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (type(request).__name__.split("_")[0], request.group_id, topic.name) == (name, "g", "K")
    assert value is None or partition.committed_offset == 7


def test_a_partition_with_fewer_records_than_a_deletion_keeps_is_left_as_it_is(
    on_brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, asked = BrokerPartition(on_brokers, partition_schedule("t"), ("t", 0)), list[Any]()
    monkeypatch.setattr(partition, "ask", lambda _, request: asked.append(request.message))
    for step in described("p writes K", ops.DeleteRecords(2)):
        partition.take(step)
    assert [it.partitions[0].offset for it in asked[0].topics] == [0]


def test_a_group_commits_the_offset_of_the_record_that_it_writes(on_brokers: Brokers) -> None:
    partition = BrokerPartition(on_brokers, partition_schedule("s", of_groups=True), ("__consumer_offsets", 3), "g")
    for step in described("p writes K", "t writes K", "t commits", "p writes -K", "p writes L"):
        partition.take(step)
    records = [(b"K", b"0"), (b"K", None), (b"L", b"4")]
    assert calls_of(partition, "p") == [("write", [record], 7) for record in records]
    assert calls_of(partition, "t") == [("write", [(b"K", b"1")], 7), ("end", COMMIT)]
