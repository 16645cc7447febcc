"""Facts about a failed run: the replica that stalled, or the operation that a broker refused (`run_verdict`)."""

from collections.abc import Mapping

from harness.clients import OPERATION_TIMEOUT_S
from harness.clients.recorded import OperationFailedError
from harness.cluster.cluster import Cluster
from harness.errors import WaitTimeoutError


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
    return {"refusal": {**refusal, "longest_silence_s": longest_silence_s(OPERATION_TIMEOUT_S)}}
