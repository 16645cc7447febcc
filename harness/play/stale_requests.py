"""Requests that brokers must refuse: of a producer that was fenced, that lost a batch, or that has no transaction.

Client libraries do not send them, but a network delivers requests late. Sources: ``ProducerAppendInfo`` (sequences, and
epochs of batches and markers: KIP-98, KIP-360, KIP-1228), ``TransactionCoordinator``, and the verification of KIP-890.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import WriteTxnMarkersRequest

from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError, WaitTimeoutError
from harness.judge.run_verdict import LONGEST_SILENCE_S, STALLED_S
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import (
    ProducerIdentity,
    add_offsets,
    add_partition,
    commit_in_transaction,
    end_transaction,
    init_producer_id,
    produce,
)
from harness.kafka_api.connection import RetryPolicy, ask, retried
from harness.kafka_api.fetch import choose_version, list_high_watermarks, list_log_ends, list_log_starts
from harness.kafka_api.messages import RefusedError, Request, RetriableError
from harness.kafka_api.metadata import find_coordinator
from harness.kafka_api.topics import delete_records
from harness.kafka_api.transactions import STRICT, OpenTransaction, abort_transaction, describe_producers
from harness.play.failures import timed

TOPIC: Final = "stale-requests"
"""Also the name of the transactional id and of the group."""
PARTITION: Final = (TOPIC, 0)
LATEST, FENCED = 2**31 - 1, -1
"""Epochs of coordinators."""
TIMEOUT_MS: Final = 600_000
"""Of transactions: longer than the waits for valid requests, which are refused afterwards."""
ONE_ANSWER: Final = RetryPolicy(answer_s=5.0)

T = TypeVar("T")
Where = Callable[[], Address]


def accepted_stale_requests(cluster: Cluster, *, has_groups: bool) -> list[str]:
    """Send each stale request once, to the topic `TOPIC`, and return the accepted requests.

    ``has_groups``: whether a valid transaction also commits an offset of a group.

    Raises `RefusedError` where a broker refuses a valid request, else `HarnessError` and OSError where one fails.
    """
    cluster.admin.create_topics({PARTITION: cluster.brokers}, {})
    return [request for request, is_accepted in _answers(cluster, has_groups=has_groups) if is_accepted]


def _answers(cluster: Cluster, *, has_groups: bool) -> Iterator[tuple[str, bool]]:
    valid, leader, coordinator = partial(_valid, cluster), partial(_leader, cluster), partial(_coordinator, cluster)

    def write(producer: ProducerIdentity, sequence: int) -> Request[None]:
        batch = _batch(producer, sequence, cluster.clock.time_ms())
        return produce(PARTITION, batch, producer.transactional_id)

    def stale(request: str, where: Where, message: Request[T]) -> tuple[str, bool]:
        return request, _is_accepted(where(), message)

    def commit(producer: ProducerIdentity) -> None:
        """Commit a transaction, and wait for its marker."""
        end = valid(leader, list_log_ends([PARTITION]))
        valid(coordinator, end_transaction(producer, is_commit=True))
        cluster.wait(lambda: valid(leader, list_log_ends([PARTITION])) != end, "the marker of a transaction")

    def abort(producer: ProducerIdentity, coordinator_epoch: int, version: int = 1) -> Request[None]:
        transaction = OpenTransaction(producer.producer_id, producer.producer_epoch, 0)
        return abort_transaction(PARTITION, transaction, coordinator_epoch, version=version)

    plain = valid(leader, init_producer_id(None, TIMEOUT_MS))
    valid(leader, write(plain, 0))
    yield stale("a batch after a lost one", leader, write(plain, 5))
    end = valid(leader, list_log_ends([PARTITION]))
    valid(leader, write(plain, 0))
    yield "a batch for the second time", valid(leader, list_log_ends([PARTITION])) != end

    fenced = valid(coordinator, init_producer_id(TOPIC, TIMEOUT_MS))
    yield stale("a batch without a transaction", leader, write(fenced, 0))
    yield stale("the end of a transaction that did not begin", coordinator, end_transaction(fenced, is_commit=True))
    valid(coordinator, add_partition(fenced, PARTITION))
    valid(leader, write(fenced, 0))
    commit(fenced)
    yield stale("a batch after the end of its transaction", leader, write(fenced, 1))
    producer = valid(coordinator, init_producer_id(TOPIC, TIMEOUT_MS))
    valid(coordinator, add_partition(producer, PARTITION))
    valid(leader, write(producer, 0))
    yield stale("a batch of a fenced producer", leader, write(fenced, 1))
    yield stale("a partition for a fenced producer", coordinator, add_partition(fenced, PARTITION))
    yield stale("the end of a fenced producer", coordinator, end_transaction(fenced, is_commit=True))
    known = valid(leader, describe_producers([PARTITION]))[PARTITION]
    if isinstance(known, str):
        raise HarnessError(f"DescribeProducers of {TOPIC}-0: {known}")
    (epoch,) = (it.coordinator_epoch for it in known if it.producer_id == producer.producer_id)
    if valid(leader, choose_version(WriteTxnMarkersRequest, (STRICT, 1))) == STRICT:
        yield stale("a marker of the transaction before", leader, abort(producer, epoch, STRICT))
    yield stale("a marker of a fenced producer in a transaction", leader, abort(fenced, epoch))
    if has_groups:
        valid(coordinator, add_offsets(producer, TOPIC))
        of_group = partial(_coordinator, cluster, CoordinatorType.GROUP)
        valid(of_group, commit_in_transaction(producer, TOPIC, {PARTITION: 1}))
    commit(producer)
    yield stale("a marker of a fenced producer", leader, abort(fenced, LATEST))
    yield stale("a marker of a fenced coordinator", leader, abort(producer, FENCED))


def delete_records_of_requests(cluster: Cluster) -> None:
    """Delete the records. Raises `RefusedError` where a replica keeps them: followers follow the log start (KIP-107).

    Raises `HarnessError` instead where a broker took longer than `LONGEST_SILENCE_S` for an answer: it may be too slow.
    """
    before = _valid(cluster, partial(_leader, cluster), list_high_watermarks([PARTITION]))[PARTITION]
    if isinstance(before, str):
        raise HarnessError(f"the high watermark of {TOPIC}-0 is not known: {before}")
    starts: dict[int, int | str] = {}
    took_s = [0.0]

    def are_deleted() -> bool:
        for broker in cluster.brokers:
            with timed(cluster.clock, took_s):
                request = list_log_starts([PARTITION])
                starts[broker] = ask(cluster.runtime.address(broker), request, ONE_ANSWER)[PARTITION]
        return set(starts.values()) == {before}

    with suppress(RetriableError):  # The answer waits for every replica.
        ask(_leader(cluster), delete_records(PARTITION, before), RetryPolicy(answer_s=2 * ONE_ANSWER.answer_s))
    try:
        cluster.wait(are_deleted, f"every replica of {TOPIC}-0 to begin at {before}", STALLED_S)
    except WaitTimeoutError as error:
        raised = RefusedError if max(took_s) <= LONGEST_SILENCE_S else HarnessError
        raise raised(f"{error}; they begin at {starts}") from error


def _batch(producer: ProducerIdentity, sequence: int, time_ms: int) -> bytes:
    return encode_batch(
        base_offset=0,
        records=[Record(0, time_ms, b"K", b"V")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=producer.transactional_id is not None,
        leader_epoch=-1,
    )


def _leader(cluster: Cluster) -> Address:
    return cluster.runtime.address(cluster.brokers[0])


def _coordinator(cluster: Cluster, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> Address:
    return _valid(cluster, partial(_leader, cluster), find_coordinator(TOPIC, kind))


def _valid(cluster: Cluster, where: Where, request: Request[T]) -> T:
    """Send until there is an answer, as brokers may not know their leaders and coordinators at once."""
    return retried(lambda: ask(where(), request, ONE_ANSWER), cluster.clock, cluster.settle_s, (RetriableError,))


def _is_accepted(address: Address, request: Request[T]) -> bool:
    try:
        ask(address, request, ONE_ANSWER)
    except (RefusedError, RetriableError):
        return False
    return True
