"""The audited cluster: its topics, their state, and their settings, which need DescribeConfigs on the topics."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from kafka.protocol.metadata import MetadataRequest

from harness.broker_files.copies.selection import audited, internal_left_out, is_compacted, is_named, listed
from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.broker_files.internal_topics.message_format import uuid_text
from harness.errors import UsageError, raised_as
from harness.host.clock import Clock
from harness.kafka_api import NO_SUCH_TOPIC, NO_TOPIC_ACCESS, TopicPartition, metadata
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient, RetryPolicy
from harness.kafka_api.fetch import choose_version
from harness.kafka_api.topics import TOPIC_RESOURCE, describe_configs, values_of
from harness.suggest import close_to

METADATA: Final = RetryPolicy(answer_s=10.0)
QUICK: Final = RetryPolicy(answer_s=5.0, repeat_s=5.0)
"""For requests that need no disk read; a frozen broker must not delay the answers of the others."""
PATIENT: Final = RetryPolicy(answer_s=30.0, repeat_s=30.0)
"""For records, as a broker needs time to read old segments from a busy disk; also for a broker to come back."""
GLOB: Final = frozenset("*?[")
Settings: TypeAlias = dict[str, dict[str, str]]

REDPANDA: Final = "redpanda."
"""The first letters of a Redpanda cluster's id, unless its owner chose another (redpanda-data/redpanda#4457)."""


@dataclass(frozen=True)
class AuditedCluster:
    """A cluster, as the metadata of one broker described it, and the client that asks its brokers.

    ``settings``: the effective ones by topic, without the topics whose settings this user may not see.
    ``own_settings``: those that the topic itself has. ``notes``: what could not be read, each in a sentence.
    ``selection``: which topics these are, where that is not what the user named.
    ``may_have_transactions``: false without the topic ``__transaction_state``: a cluster's first transaction creates
    that topic. Redpanda does not show the topic of its transactions to clients.
    """

    client: ClusterClient
    state: metadata.ClusterState
    settings: Mapping[str, Mapping[str, str]]
    own_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    selection: tuple[str, ...] = ()
    may_have_transactions: bool = True

    @property
    def topic_ids(self) -> dict[str, str]:
        """The id of each topic (KIP-516) whose id is known."""
        return {name: uuid_text(topic.topic_id) for name, topic in self.state.topics.items() if topic.topic_id}

    def only(self, places: Collection[TopicPartition]) -> "AuditedCluster":
        """Return the cluster with these partitions alone."""
        topics = {}
        for name, topic in self.state.topics.items():
            if partitions := {n: state for n, state in topic.partitions.items() if (name, n) in places}:
                topics[name] = replace(topic, partitions=partitions)
        return replace(self, state=replace(self.state, topics=topics))


def client_of(bootstrap: Sequence[Address], clock: Clock | None = None) -> ClusterClient:
    """Return a client for an audit, which may repeat each of its requests."""
    return ClusterClient(lambda: bootstrap, QUICK, clock)


@raised_as(UsageError, "--bootstrap-server", OSError)
def describe(client: ClusterClient, patterns: Sequence[str], *, may_miss: bool = False) -> AuditedCluster:
    """Return the cluster with the topics that match; without patterns, with the compacted ones.

    ``patterns``: names and globs. Internal topics (``__…``) match only patterns that begin with ``__``. ``may_miss``:
    topics that do not exist are left out, and there may be no topic at all.

    Raises `UsageError` where no broker answers, where a pattern matches nothing, where no topic is compacted, and
    where this user may not describe a topic; `HarnessError` for a rejected login.
    """
    globs = [pattern for pattern in patterns if GLOB & set(pattern)]
    version = client.ask_any(choose_version(MetadataRequest, metadata.VERSIONS), METADATA)
    state = client.describe([name for name in patterns if name not in globs], METADATA, version)
    topics = dict(state.topics)
    unknown = [name for name, topic in topics.items() if topic.error == NO_SUCH_TOPIC]
    needs_all = globs or not patterns or unknown
    every = client.ask_any(metadata.describe_cluster(None, version=version), METADATA).topics if needs_all else {}
    matching = {pattern: [name for name in every if is_named(name, [pattern])] for pattern in globs}
    if not may_miss:
        _raise_if_missing(unknown, matching, every)
    topics = {name: topic for name, topic in topics.items() if name not in unknown}
    topics |= {name: every[name] for names in matching.values() for name in names}
    topics = topics if patterns else dict(every)
    for name, topic in topics.items():
        if topic.error == NO_TOPIC_ACCESS:
            raise UsageError(f"this user may not describe topic {name}: an audit needs Describe and Read on it")
        if topic.error:
            raise UsageError(f"topic {name}: {topic.error}")
    settings, own_settings, notes = _settings(client, sorted(topics))
    if patterns:
        selection = internal_left_out(list(every), patterns)
    else:
        policies = {name: settings.get(name, {}).get("cleanup.policy") for name in topics}
        compacted = {name for name, policy in policies.items() if is_compacted(name, policy)}
        if not compacted and not may_miss:
            raise UsageError(
                "no topic is compacted among those whose settings this user may see: name topics by --topic"
            )
        selection = [audited(compacted, len(settings.keys() - compacted), "the topics' settings")]
        if unseen := topics.keys() - settings.keys() - compacted:
            notes.append(f"left out, as it is not known whether they are compacted: {listed(sorted(unseen))}")
        topics = {name: topic for name, topic in topics.items() if name in compacted}
    transaction_log = client.ask_any(metadata.describe_cluster([TRANSACTION_STATE]), METADATA).topics[TRANSACTION_STATE]
    return AuditedCluster(
        client,
        replace(state, topics=dict(sorted(topics.items()))),
        settings,
        own_settings,
        tuple(notes),
        selection=tuple(selection),
        may_have_transactions=transaction_log.error != NO_SUCH_TOPIC or state.cluster_id.startswith(REDPANDA),
    )


def _raise_if_missing(
    unknown: Sequence[str], matching: Mapping[str, Sequence[str]], every: Mapping[str, metadata.TopicState]
) -> None:
    for name in unknown:
        hint = close_to(name, list(every))
        raise UsageError(f"topic {name} does not exist, or this user may not describe it{hint}")
    for pattern, names in matching.items():
        if not names:
            raise UsageError(f"no topic matches {pattern} among those that this user may describe")


def _settings(client: ClusterClient, names: Sequence[str]) -> tuple[Settings, Settings, list[str]]:
    """Return the effective settings, those of the topics themselves, and why others could not be read."""
    settings, own, denied = Settings(), Settings(), dict[str, list[str]]()
    for name, answer in client.ask_any(describe_configs(TOPIC_RESOURCE, names), METADATA).items():
        if isinstance(answer, str):
            denied.setdefault(answer, []).append(name)
        else:
            settings[name] = values_of(answer)
            own[name] = {key: entry.value for key, entry in answer.items() if entry.is_explicit}
    why = "could not be read ({}; they need DescribeConfigs on the topic)"
    return settings, own, [f"settings of {listed(topics)} {why.format(error)}" for error, topics in denied.items()]
