"""Facts about a failed run: the replica that stalled, or the operation that a broker refused (`run_verdict`)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from harness.clients import INVALID_TXN_STATE, OPERATION_TIMEOUT_S
from harness.clients.recorded import OperationFailedError
from harness.cluster.cluster import Cluster
from harness.errors import WaitTimeoutError
from harness.host.clock import Clock
from harness.judge.run_verdict import STALLED_S
from harness.kafka_api import TopicPartition

VERIFIED_S: Final = 2.0
"""Only a silence in this time before an INVALID_TXN_STATE can explain the error: a verification is younger."""


def failure_facts(error: BaseException, cluster: Cluster) -> Mapping[str, object]:
    """Return ``stall``: the replica that a wait ended for; or ``refusal``: the client and the error that it got.

    Both have ``longest_silence_s``: how long some broker did not answer meanwhile. ``refusal`` only for errors that no
    valid operation meets (`ClientError.refusal`).
    """

    def longest_silence_s(during_s: float) -> float:
        return round(cluster.observed.longest_silence_s(cluster.clock.now_s() - during_s), 3)

    if isinstance(error, WaitTimeoutError):
        if error.replica is None:
            return {}
        broker, topic, partition = error.replica
        facts = {"broker": broker, "topic": topic, "partition": partition, "waited_s": error.waited_s}
        silence_s = longest_silence_s(error.waited_s)
        return {"stall": {**facts, "longest_silence_s": silence_s, "awaited": str(error)}}
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OperationFailedError):
        cause = cause.__cause__
    if cause is None or not cause.refusal:
        return {}
    refusal = {"process": cause.process, "error": cause.refusal, "operation": str(cause)}
    during_s = VERIFIED_S if cause.refusal == INVALID_TXN_STATE else OPERATION_TIMEOUT_S
    return {"refusal": {**refusal, "longest_silence_s": longest_silence_s(during_s)}}


@contextmanager
def timed(clock: Clock, took_s: list[float]) -> Iterator[None]:
    """Append the seconds that the block takes, also if it raises."""
    began_s = clock.now_s()
    try:
        yield
    finally:
        took_s.append(clock.now_s() - began_s)


def stalled_replica(cluster: Cluster, waited_s: float) -> Mapping[str, object] | None:
    """Return ``stall`` for a replica that stays out of the ISR without a fault for `STALLED_S`; None where none does.

    ``waited_s``: how long it was waited for before.
    """
    out: list[tuple[int, TopicPartition]] = []
    took_s = [0.0]

    def is_back() -> bool:
        for broker in cluster.brokers:
            with timed(cluster.clock, took_s):
                cluster.read(broker, [tp for tp, brokers in cluster.replicas.items() if broker in brokers])
        out[:] = cluster.out_of_isr()
        return not out

    try:
        cluster.wait(is_back, "every replica to be in the ISR", STALLED_S)
    except WaitTimeoutError:
        if out:
            broker, (topic, partition) = out[0]
            waited_s += STALLED_S
            awaited = f"waited {waited_s:.0f} s for broker {broker} to be in the ISR of {topic}-{partition}"
            facts = {"broker": broker, "topic": topic, "partition": partition, "waited_s": waited_s, "awaited": awaited}
            return {**facts, "longest_silence_s": round(max(took_s), 3)}
    return None
