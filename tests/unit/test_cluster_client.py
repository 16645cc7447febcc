"""Which broker is asked, how often a request is sent, and what an answer means."""

from dataclasses import dataclass, field
from typing import Any
from unittest.mock import MagicMock

import pytest
from fakes.clock import JumpingClock, TickingClock
from fakes.connections import AnsweringStream, FailingDial
from kafka.protocol.admin import DescribeLogDirsResponse, DescribeProducersResponse
from kafka.protocol.consumer import FetchResponse, OffsetCommitResponse
from kafka.protocol.metadata import MetadataResponse

from harness.errors import HarnessError
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import commit_offsets
from harness.kafka_api.connection import ONCE, SILENT_S, ClusterClient, Connection, RetryPolicy
from harness.kafka_api.fetch import ReplicaState, fetch
from harness.kafka_api.messages import RefusedError, Request, RetriableError, message, per_topic, raise_for_errors
from harness.kafka_api.metadata import describe_cluster
from harness.kafka_api.topics import LogDirs, describe_log_dirs, reassign
from harness.kafka_api.transactions import OpenTransaction, describe_producers, open_transactions

ADDRESSES = [Address("b", port) for port in (1, 2, 3)]
PATIENT = RetryPolicy(repeat_s=5.0)


REQUEST: Request[Any] = Request(describe_cluster([]).message, lambda answer: answer)


@dataclass
class Brokers:
    """Three brokers that answer with their ports; ``errors``: what a request to a broker raises, by port."""

    errors: dict[int, Exception] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def __call__(self, address: Address, *, timeout_s: float) -> AnsweringStream:
        assert timeout_s > 0
        return AnsweringStream(lambda _: self._answer(address.port))

    def _answer(self, port: int) -> int:
        self.asked.append(port)
        if port in self.errors:
            raise self.errors[port]
        return port

    def client(self, clock: JumpingClock | None = None) -> ClusterClient:
        return ClusterClient(lambda: ADDRESSES, clock=clock or JumpingClock(), dial=self)


def test_a_request_is_sent_once_and_over_new_connections_until_the_policy_gives_up() -> None:
    dial = FailingDial(failures=1)
    connection = Connection(ADDRESSES[0], ONCE, TickingClock(), dial)
    with pytest.raises(TimeoutError):
        connection.ask(REQUEST)
    assert connection.ask(REQUEST) == "answer", "over a new connection"
    assert dial.dials == 2
    dial = FailingDial(failures=2)
    assert Connection(ADDRESSES[0], PATIENT, TickingClock(), dial).ask(REQUEST) == "answer"
    assert dial.dials == 3
    with pytest.raises(ConnectionError, match="b:1 does not answer: it failed"):
        Connection(ADDRESSES[0], PATIENT, TickingClock(), FailingDial(failures=1000)).ask(REQUEST)


@pytest.mark.parametrize(("error", "answers_before", "repeats"), [
    (ConnectionResetError, 1, 1), (ConnectionResetError, 0, 0), (TimeoutError, 1, 0),
])  # fmt: skip
def test_a_request_is_sent_again_where_the_broker_closed_an_idle_connection(
    error: type[OSError], answers_before: int, repeats: int
) -> None:
    dial = FailingDial(0, error)
    client = ClusterClient(lambda: ADDRESSES[:1], clock=JumpingClock(), dial=dial, keeps_connections=True)
    for _ in range(answers_before):
        client.ask(ADDRESSES[0], REQUEST)
    dial.failures = 1
    if repeats:
        assert client.ask(ADDRESSES[0], REQUEST) == "answer"
    else:
        with pytest.raises(error):
            client.ask(ADDRESSES[0], REQUEST)
    assert dial.dials == 1 + repeats


def test_the_first_broker_that_answers_is_asked_first_from_then_on() -> None:
    brokers = Brokers({1: ConnectionRefusedError("refused")})
    client = brokers.client()
    assert [client.ask_any(REQUEST) for _ in range(2)] == [2, 2]
    assert (brokers.asked, client.requests) == ([1, 2, 2], 3)


def test_a_silent_broker_is_asked_last_for_a_while() -> None:
    brokers, clock = Brokers({1: TimeoutError("silent")}), JumpingClock()
    client = brokers.client(clock)
    client.ask_any(REQUEST)
    assert [address.port for address in client.addresses] == [2, 3, 1]
    brokers.errors = {2: ConnectionRefusedError("refused"), 3: ConnectionRefusedError("refused")}
    assert client.ask_any(REQUEST) == 1
    clock.now += SILENT_S
    assert not client.is_silent(ADDRESSES[0])


def test_where_no_broker_answers_each_error_is_named_and_a_refused_login_or_request_is_final() -> None:
    brokers = Brokers(dict.fromkeys((1, 2, 3), ConnectionRefusedError("refused")))
    client = brokers.client()
    with pytest.raises(ConnectionError, match=r"no broker answers \(b:1: refused; b:2: refused; b:3: refused\)"):
        client.ask_any(REQUEST)
    brokers.errors[2] = HarnessError("b:2 refuses the login")
    with pytest.raises(HarnessError, match="b:2 refuses the login"):
        client.ask_any(REQUEST)
    brokers = Brokers()
    with pytest.raises(RefusedError):
        brokers.client().ask_any(Request(REQUEST.message, MagicMock(side_effect=RefusedError("no"))))
    assert brokers.asked == [1]


def test_all_brokers_are_asked_at_once_and_one_that_is_not_registered_is_an_error() -> None:
    brokers = Brokers({2: ConnectionRefusedError("refused")})
    client = brokers.client()
    client.brokers = {1: ADDRESSES[0], 2: ADDRESSES[1]}
    answers, errors = client.ask_all([1, 2, 7], lambda _, caller: caller.ask(REQUEST))
    assert answers == {1: 1}
    assert [str(errors[n]) for n in (2, 7)] == ["refused", "it is not registered with the cluster"]


def test_connections_are_kept_only_where_asked_and_are_closed_in_the_end() -> None:
    dial = FailingDial(0)
    for keeps in (False, True):
        client = ClusterClient(lambda: ADDRESSES[:1], clock=JumpingClock(), dial=dial, keeps_connections=keeps)
        for _ in range(3):
            client.ask_any(REQUEST)
        client.close()
    assert dial.dials == 3 + 1


def test_errors_are_retriable_or_final_and_an_answer_without_a_partition_acknowledges_nothing() -> None:
    def answer(*codes: int) -> Any:
        partitions = [{"partition_index": n, "error_code": code} for n, code in enumerate(codes)]
        return message(OffsetCommitResponse, 7, throttle_time_ms=0, topics=[{"name": "t", "partitions": partitions}])

    raise_for_errors(answer(0, 0), "it")
    raise_for_errors(answer(0, 46), "it", accepted=46)
    with pytest.raises(RetriableError, match="it: NotCoordinatorError"):
        raise_for_errors(answer(0, 16), "it")
    with pytest.raises(RefusedError, match="it: TopicAuthorizationFailedError"):
        raise_for_errors(answer(16, 29), "it")
    request = commit_offsets("g", {("t", 0): 5, ("t", 1): 5})
    topics = per_topic((("t", n), {"partition_index": n, "error_code": 0}) for n in range(2))
    request.decode(message(OffsetCommitResponse, 7, throttle_time_ms=0, topics=topics))
    topics[0]["partitions"].pop()
    with pytest.raises(RefusedError, match="the answer has 1 of 2 partitions"):
        request.decode(message(OffsetCommitResponse, 7, throttle_time_ms=0, topics=topics))


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(KeyError, match="node"):
        message(MetadataResponse, 8, brokers=[{"node": 1}])


def test_partitions_are_grouped_by_topic() -> None:
    asked: Any = reassign({("a", 0): (1, 2), ("b", 0): (3,), ("a", 1): (2, 1)}).message
    assert [(t.name, [(p.partition_index, p.replicas) for p in t.partitions]) for t in asked.topics] == [
        ("a", [(0, [1, 2]), (1, [2, 1])]), ("b", [(0, [3])]),
    ]  # fmt: skip
    fetched: Any = fetch({("a", 0): 5}, max_bytes=7).message
    ((partition,),) = [topic.partitions for topic in fetched.topics]
    assert (partition.fetch_offset, partition.partition_max_bytes, fetched.max_bytes) == (5, 7, 7)


def test_metadata_have_addresses_and_partitions_in_order_and_errors_by_name() -> None:
    partition = {"leader_id": 1, "leader_epoch": 4, "replica_nodes": [3, 1], "isr_nodes": [3, 1]}
    answer = message(
        MetadataResponse, 8,
        cluster_id="c", brokers=[{"node_id": 2, "host": "h", "port": 5}, {"node_id": 1, "host": "h", "port": 4}],
        topics=[
            {"name": "t", "error_code": 0, "partitions": [{**partition, "partition_index": n} for n in (1, 0)]},
            {"name": "gone", "error_code": 3, "partitions": []},
        ],
    )  # fmt: skip
    state = describe_cluster(None).decode(answer)
    assert list(state.brokers.items()) == [(1, Address("h", 4)), (2, Address("h", 5))]
    assert list(state.partitions) == [("t", 0), ("t", 1)]
    assert (state.partitions["t", 0].replicas, state.partitions["t", 0].isr) == ((3, 1), (1, 3))
    assert state.topics["gone"].error == "UnknownTopicOrPartitionError"


def test_a_leader_that_refers_consumers_to_another_replica_has_not_shown_its_records() -> None:
    referred, own = (
        {"partition_index": n, "preferred_read_replica": to, "records": b""} for n, to in ((0, 3), (1, -1))
    )
    answer = message(FetchResponse, 11, responses=[{"topic": "t", "partitions": [referred, own]}])
    decoded = fetch({("t", 0): 0}).decode(answer)
    assert decoded["t", 0] == "its replica selector refers consumers to broker 3"
    assert isinstance(decoded["t", 1], ReplicaState)


def test_only_producers_with_a_transaction_have_one_open() -> None:
    producers = [
        {"producer_id": n, "producer_epoch": 1, "last_sequence": 0, "current_txn_start_offset": offset}
        for n, offset in ((5, 10), (6, -1))
    ]
    partitions = [
        {"partition_index": 0, "error_code": 0, "active_producers": producers},
        {"partition_index": 1, "error_code": 6, "active_producers": []},
    ]
    answer = message(DescribeProducersResponse, 0, topics=[{"name": "t", "partitions": partitions}])
    decoded = describe_producers([]).decode(answer)
    assert open_transactions(decoded["t", 0]) == (OpenTransaction(5, 1, 10),)
    assert (decoded["t", 1], open_transactions(decoded["t", 1])) == ("NotLeaderForPartitionError", None)


@pytest.mark.parametrize(("results", "expected"), [
    ([], LogDirs({}, None, "it lists no log directory")),
    ([{"error_code": 31, "topics": []}], LogDirs({}, None, "ClusterAuthorizationFailedError")),
    ([{"error_code": 0, "topics": [], "usable_bytes": n} for n in (5, 3)], LogDirs({}, 3)),
])  # fmt: skip
def test_a_broker_that_lists_no_directory_may_have_replicas(results: list[dict[str, Any]], expected: LogDirs) -> None:
    assert describe_log_dirs([]).decode(message(DescribeLogDirsResponse, 4, results=results)) == expected
