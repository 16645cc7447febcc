"""What brokers say of the replicas that they hold, in a few requests that bring no records.

The log end and start are ListOffsets of the debugging consumer; a Fetch at the log end brings the high watermark and
the last stable offset, and nothing else; DescribeProducers tells the open transactions. Redpanda's followers refuse the
first and the last: there a Fetch at the leader's log start is asked for, which brings one batch.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import kafka.errors

from harness.audit.line import fetch_version, quick_line
from harness.brokers.protocol.offsets import log_ends
from harness.brokers.protocol.replica import FETCH_VERSION, describe_producers, fetch
from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.audit.cluster import Cluster
    from harness.audit.line import Line
    from harness.brokers.protocol.replica import Caller, OpenTransaction, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

NO_RECORDS_BYTES = 1
NOT_ALLOWED = kafka.errors.TopicAuthorizationFailedError.__name__


@dataclass(frozen=True)
class Look:
    """One replica as its broker has it: offsets; ``log_end`` and ``open`` are None where the broker does not tell."""

    log_start: int
    high_watermark: int
    last_stable_offset: int
    log_end: int | None
    open: tuple[OpenTransaction, ...] | None


@dataclass(frozen=True)
class Looks:
    """One round of looks.

    ``replicas`` by broker and partition. ``unseen``: why there is none of a replica. ``silent``: brokers that hold
    replicas and do not answer, with the reason.
    """

    replicas: Mapping[tuple[int, TopicPartition], Look]
    unseen: Mapping[tuple[int, TopicPartition], str]
    silent: Mapping[int, str]

    def of(self, partition: TopicPartition) -> dict[int, Look]:
        """Return the replicas of one partition, by broker."""
        return {broker: look for (broker, tp), look in self.replicas.items() if tp == partition}


def look_at(cluster: Cluster, clock: Clock, dial: Callable[[Address, Clock], Line] = quick_line) -> Looks:
    """Look once at every replica of these topics, at all brokers at the same time.

    Raises `UsageError` where this user may not read a topic.
    """
    first = _round(cluster, cluster.held, {}, clock, dial)
    starts = {tp: one.log_start for (_, tp), one in first.replicas.items()}
    refused: dict[int, list[TopicPartition]] = {}
    for broker, tp in first.unseen:
        if tp in starts:
            refused.setdefault(broker, []).append(tp)
    second = _round(cluster, refused, starts, clock, dial)
    untold = {replica: why for replica, why in first.unseen.items() if replica[1] not in starts}
    unseen = {**untold, **second.unseen}
    for (_, (topic, _)), reason in unseen.items():
        if reason == NOT_ALLOWED:
            raise UsageError(f"this user may not read topic {topic}: an audit needs Describe and Read on it")
    return Looks({**first.replicas, **second.replicas}, unseen, {**first.silent, **second.silent})


def look(
    broker: Caller,
    partitions: Sequence[TopicPartition],
    starts: Mapping[TopicPartition, int],
    version: int = FETCH_VERSION,
) -> dict[TopicPartition, Look | str]:
    """Look at these replicas of one broker; an error is given by its name. Raises OSError.

    ``starts``: where to Fetch instead of the log end, should the broker not tell that one. Open transactions are asked
    for last: they are at least as new as the high watermark.
    """
    ends = log_ends(broker, partitions)
    places = {tp: end if isinstance(end, int) else starts.get(tp, end) for tp, end in ends.items()}
    found: dict[TopicPartition, Look | str] = {tp: why for tp, why in places.items() if isinstance(why, str)}
    offsets = {tp: offset for tp, offset in places.items() if isinstance(offset, int)}
    if not offsets:
        return found
    states = fetch(broker, offsets, max_bytes=NO_RECORDS_BYTES, version=version)
    opened = describe_producers(broker, list(offsets))
    for tp, state in states.items():
        end, held = ends[tp], opened[tp]
        found[tp] = (
            state
            if isinstance(state, str)
            else Look(
                log_start=state.log_start,
                high_watermark=state.high_watermark,
                last_stable_offset=state.last_stable_offset,
                log_end=end if isinstance(end, int) else None,
                open=None if isinstance(held, str) else held,
            )
        )
    return found


def _round(
    cluster: Cluster,
    wanted: Mapping[int, Sequence[TopicPartition]],
    starts: Mapping[TopicPartition, int],
    clock: Clock,
    dial: Callable[[Address, Clock], Line],
) -> Looks:
    def ask(broker: int) -> dict[TopicPartition, Look | str] | Exception:
        if broker not in cluster.brokers:
            return ConnectionError("it is not registered with the cluster")
        try:
            with closing(dial(cluster.brokers[broker], clock)) as line:
                return look(line, wanted[broker], starts, fetch_version(line))
        except (OSError, HarnessError) as error:
            return error

    with ThreadPoolExecutor(max(len(wanted), 1)) as pool:
        answers = dict(zip(wanted, pool.map(ask, wanted), strict=True))
    told = [
        ((broker, tp), one)
        for broker, answer in answers.items()
        if not isinstance(answer, Exception)
        for tp, one in answer.items()
    ]
    return Looks(
        {replica: one for replica, one in told if isinstance(one, Look)},
        {replica: one for replica, one in told if isinstance(one, str)},
        {broker: str(error) for broker, error in answers.items() if isinstance(error, Exception)},
    )
