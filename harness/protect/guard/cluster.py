"""A running cluster: Metadata of several brokers in each round, settings only when they are needed.

Requests go to chosen brokers (`harness.kafka_api`): librdkafka sends administrative requests to one broker of
its own choice, which may be the one that is frozen, or whose metadata is old. A broker that does not answer in time is
asked last for `SILENT_S`. One request concerns many topics, also when it changes settings.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import kafka.errors
from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from harness.audit.live.reassignments import adding_replicas
from harness.errors import HarnessError, UsageError
from harness.kafka_api.admin import DELETE_CONFIG, SET_CONFIG, TOPIC_RESOURCE, PartitionState, metadata_request
from harness.kafka_api.wire import Address, Connection, error_name
from harness.protect.guard.ports import SettingsRead
from harness.protect.guard.settings import READ, Setting
from harness.protect.guard.watch import united

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafka.protocol.api_message import ApiMessage

    from harness.host.clock import Clock
    from harness.kafka_api.replica import TopicPartition
    from harness.protect.guard.settings import Found
    from harness.protect.guard.watch import View

ASKED: Final = 3
"""Brokers that are asked for metadata in each round, in turn."""
ANSWER_S: Final = 1.0
SILENT_S: Final = 10.0
REQUEST_S: Final = 10.0
"""For a request that reads or changes the settings of many topics."""
ALARM_S: Final = 30.0
"""After a broker has stopped answering: longer than brokers keep a session (``broker.session.timeout.ms``)."""
TOPIC_CONFIG: Final = 1
"""The source of a topic's own value (``DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG``)."""
NO_SUCH_TOPIC: Final = kafka.errors.UnknownTopicOrPartitionError.errno


class LiveCluster:
    """Implements `harness.protect.guard.ports.Cluster`. One owner. ``requests``: how many were sent."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        clock: Clock,
        dial: Callable[..., Connection] = Connection,
    ) -> None:
        """Ask the first broker that answers for the others. Raises `UsageError` where none does."""
        self.requests = 0
        self._clock, self._dial, self._bootstrap = clock, dial, tuple(bootstrap)
        self._connections: dict[tuple[Address, float], Connection] = {}
        self._brokers: tuple[Address, ...] = ()
        self._silent_until_s: dict[Address, float] = {}
        self._answering: set[Address] = set()
        self._alarmed_until_s = 0.0
        self._turn = 0
        self._pool = ThreadPoolExecutor(ASKED, thread_name_prefix="metadata")
        try:
            self.view()
        except OSError as error:
            raise UsageError(f"--bootstrap-server: no broker answers ({error})") from error

    @property
    def brokers(self) -> tuple[Address, ...]:
        """The brokers of the last metadata, those of ``--bootstrap-server`` before."""
        return self._brokers or self._bootstrap

    @property
    def is_alarmed(self) -> bool:
        """Whether a broker has stopped answering within the last `ALARM_S`."""
        return self._clock.now_s() < self._alarmed_until_s

    def view(self) -> View:
        """Return every partition as several brokers have it. Raises ConnectionError where no broker answers."""
        asked = self._in_turn()
        answered = dict(zip(asked, self._pool.map(self._metadata, asked), strict=True))
        answers = [answer for answer in answered.values() if answer is not None]
        self._note_answers({one for one, answer in answered.items() if answer is not None}, set(asked))
        if not answers:
            rest = [one for one in dict.fromkeys((*self._bootstrap, *self.brokers)) if one not in asked]
            answers = [answer for answer in map(self._metadata, rest) if answer is not None][:1]
        if not answers:
            raise ConnectionError(f"no answer from {', '.join(map(str, self.brokers))}")
        security = self._bootstrap[0].security
        named = {b.node_id: Address(b.host, b.port, security) for answer in answers for b in answer.brokers}
        self._brokers = tuple(named[node] for node in sorted(named))
        return united(map(_partitions, answers))

    def with_added(self, view: View) -> View:
        """Add which of the missing replicas are being added; a note where this user may not know.

        Brokers forward this request to the controller, which may be about to be replaced.
        """
        if not view.missing:
            return view
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted({tp for tp, _ in view.missing}):
            topics.setdefault(topic, []).append(partition)
        try:
            adding = adding_replicas(_Caller(lambda make: self._first_answer(make, ANSWER_S)), topics)
        except (OSError, HarnessError) as error:
            return replace(view, notes=(f"replicas that are being added are unknown: {error}",))
        return replace(view, adding=frozenset((tp, broker) for broker, tp in adding) & view.missing)

    def settings(self, topics: Collection[str]) -> SettingsRead:
        """Return what DescribeConfigs says of these topics. Raises ConnectionError, where no broker answers."""
        if not topics:
            return SettingsRead({})
        Resource = DescribeConfigsRequest.DescribeConfigsResource  # noqa: N806
        wanted = [
            Resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=list(READ))
            for name in sorted(topics)
        ]
        answer = self._first_answer(lambda: DescribeConfigsRequest[4](resources=wanted))
        found = {
            one.resource_name: {
                c.name: Setting(c.value, is_explicit=c.config_source == TOPIC_CONFIG) for c in one.configs
            }
            for one in answer.results
            if not one.error_code
        }
        errors = {one.resource_name: one.error_code for one in answer.results if one.error_code}
        incomplete = {name: "it has no such settings" for name, values in found.items() if not set(READ) <= set(values)}
        refused = {name: error_name(code) for name, code in errors.items() if code != NO_SUCH_TOPIC}
        return SettingsRead(
            {name: values for name, values in found.items() if name not in incomplete},
            frozenset(errors.keys() - refused.keys()),
            {**refused, **incomplete},
        )

    def alter(self, changes: Mapping[str, Found]) -> Mapping[str, str]:
        """Change settings (IncrementalAlterConfigs, KIP-339); the other settings stay. Raises ConnectionError."""
        if not changes:
            return {}
        Resource = IncrementalAlterConfigsRequest.AlterConfigsResource  # noqa: N806
        wanted = [
            Resource(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic,
                configs=[
                    Resource.AlterableConfig(
                        name=name, config_operation=DELETE_CONFIG if value is None else SET_CONFIG, value=value
                    )
                    for name, value in values.items()
                ],
            )
            for topic, values in sorted(changes.items())
        ]
        request = IncrementalAlterConfigsRequest[1](resources=wanted, validate_only=False)
        answer = self._first_answer(lambda: request)
        return {
            one.resource_name: one.error_message or error_name(one.error_code)
            for one in answer.responses
            if one.error_code
        }

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _in_turn(self) -> list[Address]:
        """Return the brokers to ask in this round; a few, and others in the next."""
        now_s = self._clock.now_s()
        answering = [one for one in self.brokers if self._silent_until_s.get(one, 0.0) <= now_s]
        candidates = answering or list(self.brokers)
        start, self._turn = self._turn % len(candidates), self._turn + 1
        return (candidates[start:] + candidates[:start])[:ASKED]

    def _note_answers(self, answering: set[Address], asked: set[Address]) -> None:
        """Take note of brokers that have stopped answering. A broker that has long been down is no news."""
        if self._answering & asked - answering:
            self._alarmed_until_s = self._clock.now_s() + ALARM_S
        self._answering = self._answering - asked | answering

    def _metadata(self, address: Address) -> Any:
        try:
            return self._ask(address, metadata_request(None), ANSWER_S)
        except (OSError, HarnessError):
            return None

    def _first_answer(self, make: Callable[[], ApiMessage], timeout_s: float = REQUEST_S) -> Any:
        last: Exception = ConnectionError("there is no broker to ask")
        for address in sorted(self.brokers, key=lambda one: self._silent_until_s.get(one, 0.0)):
            try:
                return self._ask(address, make(), timeout_s)
            except (OSError, HarnessError) as error:
                last = error
        raise ConnectionError(f"no broker answers: {last}") from last

    def _ask(self, address: Address, request: ApiMessage, timeout_s: float) -> Any:
        """Send over the connection to this broker; where the broker closed it meanwhile, over a new one."""
        self.requests += 1
        kept = self._connections.pop((address, timeout_s), None)
        try:
            if kept is not None:
                try:
                    return self._call(kept, request, timeout_s)
                except ConnectionError:
                    pass
            return self._call(self._dial(address, timeout_s=timeout_s), request, timeout_s)
        except TimeoutError:
            self._silent_until_s[address] = self._clock.now_s() + SILENT_S
            raise

    def _call(self, connection: Connection, request: ApiMessage, timeout_s: float) -> Any:
        try:
            answer = connection.call(request)
        except BaseException:
            connection.close()
            raise
        self._silent_until_s.pop(connection.address, None)
        self._connections[connection.address, timeout_s] = connection
        return answer


class _Caller:
    """One request to whichever broker answers, as `harness.kafka_api.replica.Caller`."""

    def __init__(self, ask: Callable[[Callable[[], ApiMessage]], Any]) -> None:
        self._ask = ask

    def call(self, request: ApiMessage) -> Any:
        return self._ask(lambda: request)


def _partitions(answer: Any) -> dict[TopicPartition, PartitionState]:
    return {
        (topic.name, p.partition_index): PartitionState(
            p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes), p.leader_epoch
        )
        for topic in answer.topics
        if not topic.error_code
        for p in topic.partitions
    }
