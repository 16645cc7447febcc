"""What a running cluster says of itself: brokers, topics, who leads and who holds what, settings.

Asked in Metadata requests that may create nothing (``allow_auto_topic_creation`` false) and in DescribeConfigs. A user
needs Describe on the topics, and DescribeConfigs on them for their settings; without it the settings are not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any

import kafka.errors
from kafka.protocol.admin import DescribeConfigsRequest

from harness.brokers.copies.notes import listed
from harness.brokers.protocol import wire
from harness.brokers.protocol.admin import TOPIC_RESOURCE, PartitionState, metadata_request
from harness.brokers.protocol.wire import Address
from harness.errors import UsageError
from harness.suggest import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.brokers.protocol.replica import TopicPartition
    from harness.brokers.protocol.security import Security

METADATA_TIMEOUT_S = 10.0
INTERNAL = "__"
TRANSACTION_STATE = "__transaction_state"
NO_SUCH_TOPIC = kafka.errors.UnknownTopicOrPartitionError.errno
NOT_ALLOWED = kafka.errors.TopicAuthorizationFailedError.errno
GLOB = frozenset("*?[")
LAST_PORT = 65_535
_ADDRESS = re.compile(r"(\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[\w.-]{1,253})):(?P<port>[0-9]+)")
"""A host may be in any script: names are looked up by IDNA."""


@dataclass(frozen=True)
class Topic:
    """``partitions`` by number. ``settings`` are those in effect; None where this user may not see them."""

    name: str
    partitions: Mapping[int, PartitionState]
    settings: Mapping[str, str] | None


@dataclass(frozen=True)
class Cluster:
    """A cluster as one broker's metadata has it now.

    ``brokers``: addresses of those that are registered and not fenced, by node id. ``notes``: what could not be had,
    each in a sentence. ``may_have_transactions``: false where there is no ``__transaction_state``, which the first
    transaction of a cluster makes.
    """

    cluster_id: str
    brokers: Mapping[int, Address]
    topics: Mapping[str, Topic]
    notes: tuple[str, ...] = ()
    may_have_transactions: bool = True

    @property
    def partitions(self) -> dict[TopicPartition, PartitionState]:
        """Every partition of every topic."""
        return {(topic.name, number): p for topic in self.topics.values() for number, p in topic.partitions.items()}

    @property
    def held(self) -> dict[int, list[TopicPartition]]:
        """What each broker is to hold a replica of, also one that is down."""
        held: dict[int, list[TopicPartition]] = {}
        for tp, state in sorted(self.partitions.items()):
            for broker in state.replicas:
                held.setdefault(broker, []).append(tp)
        return held


def describe(bootstrap: Sequence[Address], patterns: Sequence[str]) -> Cluster:
    """Return the cluster behind these addresses, with the topics that match.

    ``patterns``: names and globs. Internal topics (``__…``) match only what begins with ``__`` itself.

    Raises `UsageError` where no address answers, where a pattern matches nothing, and where this user may not
    describe a topic; `HarnessError` where a login is refused.
    """
    at, named = _first_answer(bootstrap, metadata_request([name for name in patterns if not _is_glob(name)]))
    found = {topic.name: topic for topic in named.topics}
    globs = [pattern for pattern in patterns if _is_glob(pattern)]
    every = list(_call(at, metadata_request(None)).topics) if globs or _unknown(found) else []
    for name in _unknown(found):
        close = get_close_matches(name, [topic.name for topic in every], n=2)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UsageError(f"topic {name} does not exist, or this user may not describe it{hint}")
    for pattern in globs:
        matching = {topic.name: topic for topic in every if _matches(topic.name, pattern)}
        if not matching:
            raise UsageError(f"no topic matches {pattern}, of those that this user may describe")
        found |= matching
    for topic in found.values():
        if topic.error_code == NOT_ALLOWED:
            raise UsageError(f"this user may not describe topic {topic.name}: an audit needs Describe and Read on it")
        if topic.error_code:
            raise UsageError(f"topic {topic.name}: {kafka.errors.for_code(topic.error_code).__name__}")
    settings, notes = _settings(at, sorted(found))
    topics = {
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
        for name, topic in sorted(found.items())
    }
    brokers = {b.node_id: Address(b.host, b.port, at.security) for b in named.brokers}
    coordinators = _call(at, metadata_request([TRANSACTION_STATE])).topics
    return Cluster(
        named.cluster_id or "",
        dict(sorted(brokers.items())),
        topics,
        notes,
        may_have_transactions=any(topic.error_code != NO_SUCH_TOPIC for topic in coordinators),
    )


def parse_bootstrap(text: str, security: Security | None = None) -> list[Address]:
    """Return the addresses of ``host:port[,host:port…]``; an IPv6 host stands in brackets. Raises `UsageError`."""
    return [_address(part.strip(), security) for part in text.split(",")]


def _address(text: str, security: Security | None) -> Address:
    """As `org.apache.kafka.common.utils.Utils.getHost` and ``getPort`` take it apart, and no more forgiving."""
    if "://" in text:
        raise UsageError(f"{quoted(text)} is a URL: give host:port[,host:port…], without a protocol")
    found = _ADDRESS.fullmatch(text)
    if found is None:
        remedy = "an IPv6 address in brackets: [::1]:9092" if text.count(":") > 1 else "host:port[,host:port…]"
        raise UsageError(f"{quoted(text)} is no address: give {remedy}")
    digits = found["port"]
    if len(digits) > len(str(LAST_PORT)) or not 1 <= int(digits) <= LAST_PORT:
        raise UsageError(f"{quoted(text)}: there is no port {quoted(digits)}; give one from 1 to {LAST_PORT}")
    if found["ipv6"] and not _is_ipv6(found["ipv6"]):
        raise UsageError(f"{quoted(text)}: {found['ipv6']} is no IPv6 address")
    return Address(found["ipv6"] or found["host"], int(digits), security)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _first_answer(bootstrap: Sequence[Address], request: Any) -> tuple[Address, Any]:
    silent = []
    for address in bootstrap:
        try:
            return address, wire.call(address, request, timeout_s=METADATA_TIMEOUT_S)
        except OSError as error:
            silent.append(f"{address}: {error}")
    raise UsageError(f"--bootstrap-server: no broker answers ({'; '.join(silent)})")


def _call(at: Address, request: Any) -> Any:
    try:
        return wire.call(at, request, timeout_s=METADATA_TIMEOUT_S)
    except OSError as error:
        raise UsageError(f"{at} does not answer any more: {error}") from error


def _unknown(topics: Mapping[str, Any]) -> list[str]:
    return [name for name, topic in topics.items() if topic.error_code == NO_SUCH_TOPIC]


def _is_glob(pattern: str) -> bool:
    return bool(GLOB & set(pattern))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (not name.startswith(INTERNAL) or pattern.startswith(INTERNAL))


def _settings(at: Address, names: Sequence[str]) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    """Return settings by topic, and a note about those that cannot be had."""
    Resource = DescribeConfigsRequest.DescribeConfigsResource  # noqa: N806
    wanted = [Resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in names]
    answer = _call(at, DescribeConfigsRequest[4](resources=wanted))
    settings = {r.resource_name: {c.name: c.value for c in r.configs} for r in answer.results if not r.error_code}
    lacking: dict[str, list[str]] = {}
    for r in answer.results:
        if r.error_code:
            lacking.setdefault(kafka.errors.for_code(r.error_code).__name__, []).append(r.resource_name)
    return settings, tuple(
        f"settings of {listed(topics)} cannot be had ({error}; DescribeConfigs on the topic gives them)"
        for error, topics in lacking.items()
    )
