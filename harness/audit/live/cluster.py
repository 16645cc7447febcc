"""A running cluster's metadata: brokers, topics, leaders, replicas and settings.

Metadata requests set ``allow_auto_topic_creation`` to false, so that they create nothing; settings come from
DescribeConfigs. A user needs Describe on the topics, and DescribeConfigs on them for their settings; without the latter
the settings are unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any

import kafka.errors
from kafka.protocol.admin import DescribeConfigsRequest

from harness.broker_files.copies.notes import listed
from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.broker_files.internal_topics.selection import audited, internal_left_out, is_compacted, is_named
from harness.errors import UsageError
from harness.kafka_api import wire
from harness.kafka_api.admin import TOPIC_RESOURCE, PartitionState, metadata_request
from harness.kafka_api.wire import Address
from harness.suggest import close_to, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.kafka_api.replica import TopicPartition
    from harness.kafka_api.security import Security

METADATA_TIMEOUT_S = 10.0
NO_SUCH_TOPIC = kafka.errors.UnknownTopicOrPartitionError.errno
NOT_ALLOWED = kafka.errors.TopicAuthorizationFailedError.errno
GLOB = frozenset("*?[")
LAST_PORT = 65_535
_ADDRESS = re.compile(r"(\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[\w.-]{1,253})):(?P<port>[0-9]+)")
"""A host may be in any script: names are looked up by IDNA."""


@dataclass(frozen=True)
class Topic:
    """``partitions`` by number. ``settings``: the effective ones; None where this user may not see them."""

    name: str
    partitions: Mapping[int, PartitionState]
    settings: Mapping[str, str] | None


@dataclass(frozen=True)
class Cluster:
    """A cluster, as the metadata of one broker describes it now.

    ``brokers``: addresses of the registered, unfenced brokers, by node id. ``notes``: what could not be read, each in a
    sentence. ``selection``: which topics these are, where that is not what the user named.
    ``may_have_transactions``: false where there is no ``__transaction_state``, which a cluster's first
    transaction creates.
    """

    cluster_id: str
    brokers: Mapping[int, Address]
    topics: Mapping[str, Topic]
    notes: tuple[str, ...] = ()
    selection: tuple[str, ...] = ()
    may_have_transactions: bool = True

    @property
    def partitions(self) -> dict[TopicPartition, PartitionState]:
        """Every partition of every topic."""
        return {(topic.name, number): p for topic in self.topics.values() for number, p in topic.partitions.items()}

    @property
    def replicas_by_broker(self) -> dict[int, list[TopicPartition]]:
        """The partitions of which each broker is assigned a replica, also for brokers that are down."""
        replicas_by_broker: dict[int, list[TopicPartition]] = {}
        for tp, state in sorted(self.partitions.items()):
            for broker in state.replicas:
                replicas_by_broker.setdefault(broker, []).append(tp)
        return replicas_by_broker


def describe(bootstrap: Sequence[Address], patterns: Sequence[str]) -> Cluster:
    """Return the cluster at these addresses, with the topics that match; without patterns, with the compacted ones.

    ``patterns``: names and globs. Internal topics (``__…``) match only patterns that begin with ``__``.

    Raises `UsageError` where no address answers, where a pattern matches nothing, where no topic is compacted, and
    where this user may not describe a topic; `HarnessError` where a login is refused.
    """
    address, named = _first_answer(bootstrap, metadata_request([name for name in patterns if not _is_glob(name)]))
    topics_found = {topic.name: topic for topic in named.topics}
    globs = [pattern for pattern in patterns if _is_glob(pattern)]
    needs_all = globs or not patterns or _unknown(topics_found)
    every = list(_ask(address, metadata_request(None)).topics) if needs_all else []
    for name in _unknown(topics_found):
        hint = close_to(name, [topic.name for topic in every])
        raise UsageError(f"topic {name} does not exist, or this user may not describe it{hint}")
    for pattern in globs:
        matching = {topic.name: topic for topic in every if is_named(topic.name, [pattern])}
        if not matching:
            raise UsageError(f"no topic matches {pattern}, of those that this user may describe")
        topics_found |= matching
    if not patterns:
        topics_found = {topic.name: topic for topic in every}
    for topic in topics_found.values():
        if topic.error_code == NOT_ALLOWED:
            raise UsageError(f"this user may not describe topic {topic.name}: an audit needs Describe and Read on it")
        if topic.error_code:
            raise UsageError(f"topic {topic.name}: {kafka.errors.for_code(topic.error_code).__name__}")
    settings, notes = _settings(address, sorted(topics_found))
    if patterns:
        selection = internal_left_out([topic.name for topic in every], patterns)
    else:
        compacted = _compacted(topics_found, settings)
        selection = [audited(compacted, len(settings.keys() - compacted), "the topics' settings")]
        if unknown := topics_found.keys() - settings.keys() - compacted:
            notes = (*notes, f"left out, as it is not known whether they are compacted: {listed(sorted(unknown))}")
        topics_found = {name: topic for name, topic in topics_found.items() if name in compacted}
    topics_read = {
        name: Topic(
            name,
            {
                p.partition_index: PartitionState(
                    p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes), p.leader_epoch
                )
                for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
            },
            settings.get(name),
        )
        for name, topic in sorted(topics_found.items())
    }
    brokers = {b.node_id: Address(b.host, b.port, address.security) for b in named.brokers}
    coordinators = _ask(address, metadata_request([TRANSACTION_STATE])).topics
    return Cluster(
        named.cluster_id or "",
        dict(sorted(brokers.items())),
        topics_read,
        notes,
        selection=tuple(selection),
        may_have_transactions=any(topic.error_code != NO_SUCH_TOPIC for topic in coordinators),
    )


def parse_bootstrap(text: str, security: Security | None = None) -> list[Address]:
    """Return the addresses of ``host:port[,host:port…]``; an IPv6 host is in brackets. Raises `UsageError`."""
    return [_address(part.strip(), security) for part in text.split(",")]


def _address(text: str, security: Security | None) -> Address:
    """Parse like `org.apache.kafka.common.utils.Utils.getHost` and ``getPort``, and no more leniently."""
    if "://" in text:
        raise UsageError(f"{quoted(text)} is a URL: give host:port[,host:port…], without a protocol")
    match = _ADDRESS.fullmatch(text)
    if match is None:
        remedy = "an IPv6 address in brackets: [::1]:9092" if text.count(":") > 1 else "host:port[,host:port…]"
        raise UsageError(f"{quoted(text)} is no address: give {remedy}")
    digits = match["port"]
    if len(digits) > len(str(LAST_PORT)) or not 1 <= int(digits) <= LAST_PORT:
        raise UsageError(f"{quoted(text)}: there is no port {quoted(digits)}; give one from 1 to {LAST_PORT}")
    if match["ipv6"]:
        try:
            IPv6Address(match["ipv6"])
        except ValueError as error:
            raise UsageError(f"{quoted(text)}: {match['ipv6']} is no IPv6 address") from error
    return Address(match["ipv6"] or match["host"], int(digits), security)


def _first_answer(bootstrap: Sequence[Address], request: Any) -> tuple[Address, Any]:
    silent = []
    for address in bootstrap:
        try:
            return address, wire.call(address, request, timeout_s=METADATA_TIMEOUT_S)
        except OSError as error:
            silent.append(f"{address}: {error}")
    raise UsageError(f"--bootstrap-server: no broker answers ({'; '.join(silent)})")


def _ask(at: Address, request: Any) -> Any:
    try:
        return wire.call(at, request, timeout_s=METADATA_TIMEOUT_S)
    except OSError as error:
        raise UsageError(f"{at} does not answer any more: {error}") from error


def _unknown(topics: Mapping[str, Any]) -> list[str]:
    return [name for name, topic in topics.items() if topic.error_code == NO_SUCH_TOPIC]


def _is_glob(pattern: str) -> bool:
    return bool(GLOB & set(pattern))


def _compacted(topics: Iterable[str], settings: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the compacted topics. Raises `UsageError` where there is none."""
    compacted = {topic for topic in topics if is_compacted(topic, settings.get(topic, {}).get("cleanup.policy"))}
    if not compacted:
        raise UsageError(
            "no topic is compacted, of those that this user may describe and whose settings it may see: name topics by "
            "--topic"
        )
    return compacted


def _settings(at: Address, names: Sequence[str]) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    """Return settings by topic, and notes about the settings that could not be read."""
    Resource = DescribeConfigsRequest.DescribeConfigsResource  # noqa: N806
    wanted = [Resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in names]
    answer = _ask(at, DescribeConfigsRequest[4](resources=wanted))
    settings = {r.resource_name: {c.name: c.value for c in r.configs} for r in answer.results if not r.error_code}
    denied: dict[str, list[str]] = {}
    for r in answer.results:
        if r.error_code:
            denied.setdefault(kafka.errors.for_code(r.error_code).__name__, []).append(r.resource_name)
    return settings, tuple(
        f"settings of {listed(topics)} could not be read ({error}; they need DescribeConfigs on the topic)"
        for error, topics in denied.items()
    )
