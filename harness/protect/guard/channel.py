"""The topic ``compaction-guard``, and the group that decides which of several guards acts.

The topic has the previous settings of paused topics, stored in the cluster before each change. It has one partition, is
not compacted (a cleaner might remove entries), and stays writable while a single replica is in the ISR. The guard that
acts deletes the entries that no state needs (`trim`), not a retention. Each reading goes to the high watermark, so that
it has the entries of other machines, too.

The member of the consumer group that is assigned the topic's only partition acts. The group's coordinator takes the
partition from a member that does not answer for `SESSION_MS`, or that does not poll for `STALLED_MS`. The assignment is
sticky (KIP-429): a guard that is started later does not take the lead. For a moment after a freeze two guards may
believe that they lead; the actions of each still follow from the channel and the settings at that time.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException

from harness.broker_files.segments.batches import iter_batches, iter_records, until_cut
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.errors import HarnessError, UsageError, raised_as
from harness.host.clock import Clock
from harness.kafka_api import NO_SUCH_TOPIC, TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import produce
from harness.kafka_api.connection import ClusterClient, Dial, RetryPolicy, SocketStream, retried
from harness.kafka_api.fetch import EARLIEST, fetch, list_high_watermarks, list_offsets
from harness.kafka_api.messages import Request, RetriableError
from harness.kafka_api.topics import TOPIC_RESOURCE, create_topic, delete_records, describe_configs, values_of
from harness.protect.guard.cluster import POLICY
from harness.protect.guard.journal import Entry, PauseState, ReplayedJournal, parse_entry

T = TypeVar("T")
TOPIC: Final = "compaction-guard"
PARTITION: Final = (TOPIC, 0)
KEPT_WITH: Final = {POLICY: "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings that keep every entry."""
SETTINGS: Final = {**KEPT_WITH, "min.insync.replicas": "1"}
ANSWER: Final = RetryPolicy(answer_s=1.0)
"""For each round: if the leader is frozen, the next round may find another leader."""
TOPIC_CHANGE: Final = RetryPolicy(answer_s=10.0)
KNOWN_S: Final = 30.0
"""For brokers to learn of a new topic: busy brokers took more than 5 s with 1,000 topics."""
READ_S: Final = 30.0
DELIVERY_S: Final = 8.0
BATCH_ENTRIES: Final = 1_000
TRIMMED: Final = 200
"""The least number of entries that one request deletes."""


class KafkaChannel:
    """The topic with the previous settings. One owner. ``writer`` names this process in entries."""

    def __init__(
        self, bootstrap: Sequence[Address], clock: Clock, dial: Dial = SocketStream, *, writer: str | None = None
    ) -> None:
        self._client = ClusterClient(lambda: bootstrap, ANSWER, clock, dial=dial, keeps_connections=True)
        self.clock, self.writer = clock, writer or f"{socket.gethostname()}:{os.getpid()}"
        self._leader: int | None = None
        self._first, self._is_ensured = 0, False
        self._replayed = ReplayedJournal()

    def ensure(self) -> None:
        """Create the topic where it is missing. Raises `UsageError` where it may lose entries, `HarnessError`."""
        with raised_as(HarnessError, f"topic {TOPIC}", OSError, HarnessError):
            if self._find_leader() is None:
                replicas = min(3, len(self._client.brokers))
                self._client.ask_any(create_topic(TOPIC, replicas, SETTINGS), TOPIC_CHANGE)
            values = self.clock.wait_until(self._values, KNOWN_S, f"brokers to know topic {TOPIC}") or {}
        for name, needed in KEPT_WITH.items():
            if values[name] != needed:
                has = f"topic {TOPIC} has {name}={values[name]}"
                raise UsageError(f"{has}, which could lose the guard's entries: set {name}={needed}")
        self._is_ensured = True

    def read(self) -> PauseState:
        """Return the state after all entries, if any. Raises `HarnessError` for a topic that has lost entries, too.

        A topic that was deleted while it had no state is created again, as is the topic of a new cluster.
        """
        has_state = self._replayed.state != PauseState()
        with raised_as(HarnessError, f"topic {TOPIC} cannot be read", OSError, HarnessError):
            if not has_state and self._leader is None and self._find_leader() is None:
                if not self._is_ensured:
                    return self._replayed.state
                self.ensure()
            self._first = self._ask_about(list_offsets({PARTITION: EARLIEST}))
            end = self._ask_about(list_high_watermarks([PARTITION]))
        if end < self._replayed.position:
            if has_state:
                raise HarnessError(
                    f"topic {TOPIC} ends at offset {end}, and was read up to {self._replayed.position}: it was deleted"
                    " or truncated; end the guard, and compare the settings of paused topics by hand"
                )
            self._replayed = ReplayedJournal()
        self._read_on(self._replayed.start(self._first), end)
        return self._replayed.state

    def trim(self) -> None:
        """Delete the entries that no state needs (DeleteRecords, KIP-107), if they are `TRIMMED` or more.

        After a `HarnessError`, the next attempt is after as many further entries.
        """
        start = self._replayed.needed_from
        if start - self._first < TRIMMED:
            return
        self._first = start
        with raised_as(HarnessError, f"old entries of topic {TOPIC} cannot be deleted", OSError, HarnessError):
            self._ask_leader(delete_records(PARTITION, start), TOPIC_CHANGE)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write all entries; every in-sync replica acknowledges them. After a `HarnessError`, some may be stored.

        A batch is written until a leader acknowledges it; a batch that is twice in the log gives the same state.
        """
        for start in range(0, len(entries), BATCH_ENTRIES):
            now_ms, batch = self.clock.time_ms(), entries[start : start + BATCH_ENTRIES]
            stamped = [replace(entry, time_ms=now_ms, writer=self.writer) for entry in batch]
            records = [Record(n, now_ms, e.topic.encode(), e.to_json().encode()) for n, e in enumerate(stamped)]
            request = produce(PARTITION, encode_batch(base_offset=0, leader_epoch=-1, records=records), None)
            with raised_as(HarnessError, f"topic {TOPIC} cannot be written", OSError, HarnessError):
                retried(partial(self._ask_leader, request), self.clock, DELIVERY_S)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _read_on(self, position: int, end: int) -> None:
        entries: list[tuple[int, Entry]] = []
        deadline_s = self.clock.now_s() + READ_S
        while position < end:
            if self.clock.now_s() > deadline_s:
                raise HarnessError(f"topic {TOPIC} was read up to {position} of {end} within {READ_S:g} s")
            with raised_as(HarnessError, f"topic {TOPIC} cannot be read", OSError, HarnessError):
                answer = self._ask_about(fetch({PARTITION: position}))
            for batch in until_cut(iter_batches(answer.records, source=TOPIC)):
                for record in iter_records(batch, source=TOPIC):
                    entry = parse_entry(record.value or b"")
                    if entry is not None and position <= record.offset < end:
                        entries.append((record.offset, entry))
                position = max(position, batch.last_offset + 1)
        self._replayed.add(entries, end)

    def _find_leader(self) -> int | None:
        """Return the partition's leader; None where there is no such topic. Raises OSError, `HarnessError`."""
        topic = self._client.describe([TOPIC]).topics[TOPIC]
        if topic.error == NO_SUCH_TOPIC:
            return None
        if topic.error or topic.partitions[0].leader < 0:
            raise RetriableError(topic.error or "it has no leader")
        return topic.partitions[0].leader

    def _ask_leader(self, request: Request[T], policy: RetryPolicy = ANSWER) -> T:
        """Ask the partition's leader, as the last request found it; after an error, look for the leader again."""
        leader, self._leader = self._leader, None
        if leader is None and (leader := self._find_leader()) is None:
            raise RetriableError("it does not exist")
        answer = self._client.ask(leader, request, policy)
        self._leader = leader
        return answer

    def _ask_about(self, request: Request[Mapping[TopicPartition, T | str]]) -> T:
        """Ask the leader about the channel's partition; an error's name is raised as `HarnessError`."""
        value = self._ask_leader(request)[PARTITION]
        if isinstance(value, str):
            self._leader = None
            raise HarnessError(value)
        return value

    def _values(self) -> dict[str, str] | None:
        """Return the channel's settings; None where the broker that answers does not know the topic yet."""
        settings = self._client.ask_any(describe_configs(TOPIC_RESOURCE, [TOPIC], KEPT_WITH), TOPIC_CHANGE)[TOPIC]
        if isinstance(settings, str) and settings != NO_SUCH_TOPIC:
            raise HarnessError(settings)
        return None if isinstance(settings, str) else values_of(settings)


GROUP: Final = "compaction-guard"
SESSION_MS: Final = 20_000
"""Longer than brokers take to notice a frozen coordinator (``broker.session.timeout.ms``): the lead does not change."""
STALLED_MS: Final = 60_000
CONFIG: Final = {
    "client.id": GROUP,
    "group.id": GROUP,
    # A request without an answer ends the connection, after which librdkafka looks for the coordinator again.
    "socket.timeout.ms": 1_000,
    "reconnect.backoff.ms": 500,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 2_000,
    "max.poll.interval.ms": STALLED_MS,
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
    "allow.auto.create.topics": False,
    "log_level": 0,
}


def consumer_config(bootstrap: Sequence[Address]) -> dict[str, Any]:
    """Return the properties of a member of the group, with the login of these addresses."""
    login = bootstrap[0].security.for_librdkafka() if bootstrap[0].security else {}
    return {**CONFIG, **login, "bootstrap.servers": ",".join(map(str, bootstrap))}


class GroupLeadership:
    """Decides which of several guards acts. ``error``: the reason why the group cannot be joined."""

    def __init__(self, bootstrap: Sequence[Address], consumer: Any = None) -> None:
        """Join the group; the assignment comes in a later `leads`."""
        self.error: str | None = None
        self._consumer = consumer or Consumer(consumer_config(bootstrap))
        self._consumer.subscribe([TOPIC])
        self._led = False

    def leads(self) -> bool:
        """Serve the group, and return whether the partition is assigned to this member. Raises `HarnessError`."""
        try:
            message: Any = self._consumer.poll(0)
            # Somebody may have added partitions, which other guards are assigned.
            assigned = [it for it in self._consumer.assignment() if (it.topic, it.partition) == PARTITION]
            if assigned and not self._led:
                # The channel reads the entries; this consumer needs none.
                self._consumer.pause(assigned)
        except KafkaException as error:
            raise HarnessError(f"group {GROUP}: {error.args[0].str()}") from error
        self._led = bool(assigned)
        failure = message and message.error()
        self.error = None if assigned else failure.str() if failure else self.error
        return self._led

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
