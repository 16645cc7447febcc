"""Requests that brokers must refuse: of a producer that was fenced, that lost a batch, or that has no transaction.

Client libraries do not send them, but a network delivers requests late. Sources: ``ProducerAppendInfo`` (sequences, and
epochs of batches and markers: KIP-98, KIP-360, KIP-1228), ``TransactionCoordinator``, and the verification of KIP-890.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import EndTxnRequest, WriteTxnMarkersRequest

from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError, WaitTimeoutError
from harness.judge.run_verdict import LONGEST_SILENCE_S, STALLED_S
from harness.kafka_api import TopicPartition, client_requests
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import END, ProducerIdentity, add_partition, end_transaction, init_producer_id
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
PUT_OFF_S: Final = 2.0
"""A stale request is repeated for this long while brokers answer that it may succeed later."""
ONE_ANSWER: Final = RetryPolicy(answer_s=5.0)
END_VERSION: Final = choose_version(EndTxnRequest, (END[2], END[1]))

T = TypeVar("T")
Where = Callable[[], Address]


def accepted_stale_requests(cluster: Cluster, *, has_groups: bool) -> Iterator[str]:
    """Send each stale request once, to the topic `TOPIC`, and yield the accepted requests.

    ``has_groups``: whether a valid transaction also commits an offset of a group.

    Raises `RefusedError` where a broker refuses a valid request, else `HarnessError` and OSError where one fails.
    """
    cluster.admin.create_topics({PARTITION: cluster.brokers}, {})
    requests = _Requests(cluster)
    answers = chain(
        requests.of_plain_producer(),
        requests.of_transactions(has_groups=has_groups),
        requests.of_next_version(),
        requests.at_next_coordinator(),
    )
    return (request for request, is_accepted in answers if is_accepted)


@dataclass(frozen=True)
class _Requests:
    """Requests of producers, and whether the brokers of ``cluster`` accept them."""

    cluster: Cluster

    def of_plain_producer(self) -> Iterator[tuple[str, bool]]:
        plain = self.valid(self.leader, init_producer_id(None, TIMEOUT_MS))
        self.write(plain, 0)
        yield self.stale("a batch after a lost one", self.leader, self.batch(plain, 5))
        end = self.end()
        self.write(plain, 0)
        yield "a batch for the second time", self.end() != end

    def of_transactions(self, *, has_groups: bool) -> Iterator[tuple[str, bool]]:
        stale, leader, coordinator = self.stale, self.leader, self.coordinator
        fenced = self.valid(coordinator, init_producer_id(TOPIC, TIMEOUT_MS))
        yield stale("a batch without a transaction", leader, self.batch(fenced, 0))
        yield stale("the end of a transaction that did not begin", coordinator, end_transaction(fenced, is_commit=True))
        self.begin(fenced)
        self.write(fenced, 0)
        self.complete(fenced)
        yield stale("a batch after the end of its transaction", leader, self.batch(fenced, 1))
        producer = self.valid(coordinator, init_producer_id(TOPIC, TIMEOUT_MS))
        self.begin(producer)
        self.write(producer, 0)
        yield stale("a batch of a fenced producer", leader, self.batch(fenced, 1))
        yield stale("a partition for a fenced producer", coordinator, add_partition(fenced, PARTITION))
        yield stale("the end of a fenced producer", coordinator, end_transaction(fenced, is_commit=True))
        known = self.valid(leader, describe_producers([PARTITION]))[PARTITION]
        if isinstance(known, str):
            raise HarnessError(f"DescribeProducers of {TOPIC}-0: {known}")
        (epoch,) = (it.coordinator_epoch for it in known if it.producer_id == producer.producer_id)
        if self.valid(leader, choose_version(WriteTxnMarkersRequest, (STRICT, 1))) == STRICT:
            yield stale("a marker of the transaction before", leader, _abort(producer, epoch, STRICT))
        yield stale("a marker of a fenced producer in a transaction", leader, _abort(fenced, epoch))
        of_group = partial(self.coordinator, CoordinatorType.GROUP)
        if has_groups:
            self.valid(coordinator, client_requests.add_offsets(producer, TOPIC))
            self.valid(of_group, client_requests.commit_in_transaction(producer, TOPIC, {PARTITION: 1}))
        self.complete(producer)
        if has_groups:
            self.wait_offsets(of_group, {PARTITION: 1})
            self.valid(of_group, client_requests.delete_offset(TOPIC, PARTITION))
            self.wait_offsets(of_group, {})
        yield stale("a marker of a fenced producer", leader, _abort(fenced, LATEST))
        yield stale("a marker of a fenced coordinator", leader, _abort(producer, FENCED))

    def of_next_version(self) -> Iterator[tuple[str, bool]]:
        """Transactions of KIP-890: a batch begins them, and their end gives the producer its next epoch."""
        if self.valid(self.coordinator, END_VERSION) != END[2]:
            return
        ended = self.valid(self.coordinator, init_producer_id(TOPIC, TIMEOUT_MS))
        self.write(ended, 0, version=2)
        producer = self.complete(ended, version=2)
        if self.valid(self.coordinator, end_transaction(ended, is_commit=True, transaction_version=2)) != producer:
            raise RefusedError("the end of a transaction, for the second time: another producer is answered")
        abort = end_transaction(ended, is_commit=False, transaction_version=2)
        yield self.stale("the abort of a committed transaction", self.coordinator, abort)
        yield self.stale("a batch of the epoch before", self.leader, self.batch(ended, 1, version=2))
        self.write(producer, 0, version=2)
        self.complete(producer, version=2)

    def at_next_coordinator(self) -> Iterator[tuple[str, bool]]:
        """Producers that take each other's place, and a coordinator that must load the transaction of the last."""
        fenced = self.valid(self.coordinator, init_producer_id(TOPIC, TIMEOUT_MS))
        self.begin(fenced)
        producer = self.valid(self.coordinator, init_producer_id(TOPIC, TIMEOUT_MS))
        self.begin(producer)
        self.complete(producer, is_commit=False)
        again = init_producer_id(TOPIC, TIMEOUT_MS, fenced)
        yield self.stale("the next epoch for a fenced producer", self.coordinator, again)
        fenced, producer = producer, self.valid(self.coordinator, init_producer_id(TOPIC, TIMEOUT_MS, producer))
        self.begin(producer)
        self.write(producer, 0)
        first, *others = self.cluster.brokers
        self.cluster.coordinate_on([*others, first])
        self.begin(producer)
        end = end_transaction(fenced, is_commit=True)
        yield self.stale("the end of a fenced producer, at the next coordinator", self.coordinator, end)
        self.complete(producer)

    def batch(self, producer: ProducerIdentity, sequence: int, version: int = 1) -> Request[None]:
        batch = _batch(producer, sequence, self.cluster.clock.time_ms())
        return client_requests.produce(PARTITION, batch, producer.transactional_id, version)

    def write(self, producer: ProducerIdentity, sequence: int, version: int = 1) -> None:
        self.valid(self.leader, self.batch(producer, sequence, version))

    def begin(self, producer: ProducerIdentity) -> None:
        self.valid(self.coordinator, add_partition(producer, PARTITION))

    def complete(self, producer: ProducerIdentity, version: int = 1, *, is_commit: bool = True) -> ProducerIdentity:
        """End a transaction, and wait for its marker. Return the producer's next identity."""
        end, request = self.end(), end_transaction(producer, is_commit=is_commit, transaction_version=version)
        later = self.valid(self.coordinator, request)
        _wait(self.cluster, lambda: "" if self.end() != end else f"{TOPIC}-0 ends at {end}", "a transaction's marker")
        return later

    def wait_offsets(self, of_group: Where, offsets: Mapping[TopicPartition, int]) -> None:
        def lacks() -> str:
            requests = [
                client_requests.fetch_offsets(TOPIC, partitions, require_stable=True)
                for partitions in (None, [PARTITION])
            ]
            answers = [self.valid(of_group, request) for request in requests]
            return "" if all(answer.offsets == offsets for answer in answers) else f"the answers are {answers}"

        _wait(self.cluster, lacks, f"group {TOPIC} to have the offsets {offsets}")

    def end(self) -> int | str:
        return self.valid(self.leader, list_log_ends([PARTITION]))[PARTITION]

    def leader(self) -> Address:
        return self.cluster.runtime.address(self.cluster.brokers[0])

    def coordinator(self, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> Address:
        return self.cluster.runtime.address(self.valid(self.leader, find_coordinator(TOPIC, kind)))

    def valid(self, where: Where, request: Request[T]) -> T:
        """Send until it is accepted, as brokers may not know their leaders and coordinators at once.

        Raises `RefusedError` for a broker that does not accept it, although it answers another request at once.
        """
        clock, bound_s, took_s = self.cluster.clock, self.cluster.settle_s, [0.0]

        def answer() -> T:
            try:
                return ask(where(), request, ONE_ANSWER)
            except OSError:
                with timed(clock, took_s):
                    ask(where(), END_VERSION, ONE_ANSWER)
                raise

        try:
            return retried(answer, clock, bound_s)
        except OSError as error:
            if max(took_s) > LONGEST_SILENCE_S:
                raise
            raise RefusedError(f"{error}, for {bound_s:g} s") from error

    def stale(self, request: str, where: Where, message: Request[T]) -> tuple[str, bool]:
        """Return the request, and whether a broker accepts it. It is repeated while the last transaction is ending."""
        try:
            retried(lambda: ask(where(), message, ONE_ANSWER), self.cluster.clock, PUT_OFF_S, (RetriableError,))
        except (RefusedError, RetriableError):
            return request, False
        return request, True


def delete_records_of_requests(cluster: Cluster) -> None:
    """Delete the records. Raises `RefusedError` where a replica keeps them: followers follow the log start (KIP-107).

    Raises `HarnessError` instead where a broker took longer than `LONGEST_SILENCE_S` for an answer: it may be too slow.
    """
    requests = _Requests(cluster)
    before = requests.valid(requests.leader, list_high_watermarks([PARTITION]))[PARTITION]
    if isinstance(before, str):
        raise HarnessError(f"the high watermark of {TOPIC}-0 is not known: {before}")

    def not_deleted() -> str:
        starts = {
            broker: ask(cluster.runtime.address(broker), list_log_starts([PARTITION]), ONE_ANSWER)[PARTITION]
            for broker in cluster.brokers
        }
        return "" if set(starts.values()) == {before} else f"they begin at {starts}"

    with suppress(RetriableError):  # The answer waits for every replica.
        ask(requests.leader(), delete_records(PARTITION, before), RetryPolicy(answer_s=2 * ONE_ANSWER.answer_s))
    _wait(cluster, not_deleted, f"every replica of {TOPIC}-0 to begin at {before}")


def _wait(cluster: Cluster, lacks: Callable[[], str], what: str) -> None:
    """Wait until ``lacks`` returns "", and not a sentence on the present state, for `STALLED_S` at most.

    Then raises `RefusedError`, or `HarnessError` where an answer took longer than `LONGEST_SILENCE_S`.
    """
    took_s = [0.0]
    lacking = [""]

    def is_there() -> bool:
        with timed(cluster.clock, took_s):
            lacking[:] = [lacks()]
        return not lacking[0]

    try:
        cluster.wait(is_there, what, STALLED_S)
    except WaitTimeoutError as error:
        raised = RefusedError if max(took_s) <= LONGEST_SILENCE_S else HarnessError
        raise raised(f"{error}; {lacking[0]}") from error


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


def _abort(producer: ProducerIdentity, coordinator_epoch: int, version: int = 1) -> Request[None]:
    transaction = OpenTransaction(producer.producer_id, producer.producer_epoch, 0)
    return abort_transaction(PARTITION, transaction, coordinator_epoch, version=version)
