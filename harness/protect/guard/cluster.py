"""A running cluster: Metadata of several brokers in each round, settings only for a step; and the covered topics.

An assigned replica that is out of the ISR may miss a tombstone or marker: its topic is exposed. A replica that is being
added is assigned, and out of the ISR until it has copied everything. A broker's metadata may be old: a broker that is
cut off keeps its last metadata. So several brokers are asked, and a replica counts as missing if any of them reports
it: that pauses too much rather than too little. One request concerns many topics, also when it changes settings.

A cleaner chooses a log whose dirty ratio is *greater* than ``min.cleanable.dirty.ratio``, or that has a dirty record
older than ``max.compaction.lag.ms`` (`LogCleanerManager.grabFilthiestCompactedLog`, KIP-354). A ratio is never greater
than 1, and no record is older than the greatest lag: with both values even a log that is dirty from end to end waits.
Seen to prevent every anomaly on Kafka 4.4.0 (`docs/how-to/guard.md`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias, TypeVar

from harness.broker_files.copies.selection import is_compacted, is_named
from harness.errors import HarnessError, UsageError, raised_as
from harness.host.clock import Clock
from harness.kafka_api import NO_SUCH_TOPIC, TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient, Dial, RetryPolicy, SocketStream
from harness.kafka_api.messages import Request
from harness.kafka_api.metadata import PartitionState, describe_cluster
from harness.kafka_api.topics import TOPIC_RESOURCE, ConfigEntry, alter_configs, describe_configs, list_reassignments

DIRTY_RATIO, MAX_LAG_MS = "min.cleanable.dirty.ratio", "max.compaction.lag.ms"
PAUSE: Final = {DIRTY_RATIO: "1", MAX_LAG_MS: str(2**63 - 1)}
"""The settings of a topic whose compaction is paused. The guard changes no other settings."""
POLICY: Final = "cleanup.policy"
RETENTION_MS, MIN_LAG_MS = "delete.retention.ms", "min.compaction.lag.ms"
READ: Final = (*PAUSE, POLICY, RETENTION_MS, MIN_LAG_MS)
"""The settings that the guard reads."""

TopicValues: TypeAlias = "Mapping[str, str | None]"
"""The explicit values of a topic's settings; None where the topic inherits the broker's value."""
Settings: TypeAlias = "Mapping[str, ConfigEntry]"
T = TypeVar("T")


def is_same(value: str | None, other: str | None) -> bool:
    """Return whether two values are the same number: brokers answer ``1.0`` where ``1`` was set."""
    if value is None or other is None:
        return value is other
    try:
        return Decimal(value) == Decimal(other)
    except InvalidOperation:
        return value == other


def is_pause(name: str, setting: ConfigEntry) -> bool:
    """Return whether a topic has the explicit value of a pause. An inherited value may change at any time."""
    return is_same(setting.explicit, PAUSE[name])


def explicit_values(settings: Settings) -> dict[str, str | None]:
    """Return the topic's explicit values of the two settings."""
    return {name: settings[name].explicit for name in PAUSE}


def changes_text(values: TopicValues) -> str:
    """Return values for people."""
    return ", ".join(f"{name}={'(inherited)' if value is None else value}" for name, value in values.items())


def window_ms(settings: Settings) -> int:
    """Return the least time for which a tombstone or marker stays in the log."""
    return int(settings[MIN_LAG_MS].value) + int(settings[RETENTION_MS].value)


ASKED: Final = 3
"""The number of brokers that are asked for metadata in each round, in turn."""
METADATA: Final = RetryPolicy(answer_s=1.0)
SETTINGS: Final = RetryPolicy(answer_s=10.0)
"""For a request that reads or changes the settings of many topics."""
ALARM_S: Final = 30.0
"""After a broker has stopped answering: longer than brokers keep a session (``broker.session.timeout.ms``)."""

DIFFERENT: Final = "the brokers have different settings of it"
Replica: TypeAlias = "tuple[TopicPartition, int]"


@dataclass(frozen=True)
class ClusterView:
    """The topics that this user may describe, and the ``missing`` replicas: assigned, and out of the ISR.

    ``adding``: the missing replicas that are being added. ``notes``: sentences on unanswered questions.
    """

    topics: frozenset[str]
    missing: frozenset[Replica]
    adding: frozenset[Replica] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def exposed(self) -> frozenset[str]:
        """The topics with a missing replica."""
        return frozenset(topic for (topic, _), _ in self.missing)


def of_most(answers: "Sequence[Settings | str]") -> "Settings | str":
    """Return a topic's settings, or an error, as most brokers answer: a single broker may have old metadata."""
    keys = [a if isinstance(a, str) else tuple((name, a[name].explicit) for name in sorted(a)) for a in answers]
    ((most, count),) = Counter(keys).most_common(1)
    return answers[keys.index(most)] if 2 * count > len(keys) else DIFFERENT


def united(answers: Collection[Mapping[TopicPartition, PartitionState]]) -> ClusterView:
    """Return the reports of several brokers together."""
    states = [(tp, state) for answer in answers for tp, state in answer.items()]
    missing = ((tp, broker) for tp, state in states for broker in state.replicas if broker not in state.isr)
    return ClusterView(frozenset(topic for (topic, _), _ in states), frozenset(missing))


@dataclass(frozen=True)
class SettingsRead:
    """Settings by topic. ``gone``: topics that do not exist. ``refused``: unread topics, with the reason."""

    settings: Mapping[str, Settings]
    gone: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


class LiveCluster:
    """Replicas and settings. One owner. Methods raise `HarnessError` or OSError where the cluster does not answer."""

    def __init__(self, bootstrap: Sequence[Address], clock: Clock, dial: Dial = SocketStream) -> None:
        """Connect. Raises `UsageError` where no broker answers."""
        self._bootstrap, self._clock = tuple(bootstrap), clock
        self._client = ClusterClient(lambda: self._bootstrap, SETTINGS, clock, dial=dial, keeps_connections=True)
        self._answering: set[Address] = set()
        self._alarmed_until_s = 0.0
        self._turn = 0
        self._pool = ThreadPoolExecutor(ASKED, thread_name_prefix="metadata")
        with raised_as(UsageError, "--bootstrap-server", OSError):
            self.view()

    @property
    def requests(self) -> int:
        """The number of requests so far."""
        return self._client.requests

    @property
    def is_alarmed(self) -> bool:
        """Whether a broker has stopped answering within the last `ALARM_S`: replicas may leave ISRs at any time now."""
        return self._clock.now_s() < self._alarmed_until_s

    def view(self) -> ClusterView:
        """Return every partition as several brokers have it; replicas that are being added are not marked yet."""
        asked = self._in_turn()
        states = self._ask(asked, describe_cluster(None), METADATA)
        if self._answering & set(asked) - states.keys():
            self._alarmed_until_s = self._clock.now_s() + ALARM_S
        self._answering = self._answering - set(asked) | states.keys()
        every = states.values() or [self._client.ask_any(describe_cluster(None), METADATA)]
        self._client.remember(every)
        return united([state.partitions for state in every])

    def with_added(self, view: ClusterView) -> ClusterView:
        """Mark the missing replicas that are being added, by the controller; add a note where that is unknown."""
        if not view.missing:
            return view
        try:
            listed = self._client.ask_any(list_reassignments(sorted({tp for tp, _ in view.missing})), METADATA)
        except (OSError, HarnessError) as error:
            return replace(view, notes=(str(error),))
        adding = {(tp, broker) for tp, reassignment in listed.items() for broker in reassignment.adding}
        return replace(view, adding=view.missing & adding)

    def settings(self, topics: Collection[str]) -> SettingsRead:
        """Return the settings `READ` of these topics, as most of several brokers have them, in one request to each."""
        if not topics:
            return SettingsRead({})
        request = describe_configs(TOPIC_RESOURCE, sorted(topics), READ)
        every = [*self._ask(self._in_turn(), request, SETTINGS).values()] or [self._client.ask_any(request)]
        answers = {topic: of_most([answer[topic] for answer in every]) for topic in topics}
        settings = {t: s for t, s in answers.items() if not isinstance(s, str) and s.keys() >= set(READ)}
        unread = {topic: answer for topic, answer in answers.items() if topic not in settings}
        errors = {t: why if isinstance(why, str) else "it has no such settings" for t, why in unread.items()}
        gone = frozenset(topic for topic, error in errors.items() if error == NO_SUCH_TOPIC)
        return SettingsRead(settings, gone, {topic: error for topic, error in errors.items() if topic not in gone})

    def alter(self, changes: Mapping[str, TopicValues]) -> Mapping[str, str]:
        """Set topics' explicit values, or remove them with None, in one request. Return the refusals by topic."""
        return self._client.ask_any(alter_configs(TOPIC_RESOURCE, dict(sorted(changes.items())))) if changes else {}

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown()
        self._client.close()

    def _in_turn(self) -> list[Address]:
        brokers = list(self._client.brokers.values() or self._bootstrap)
        candidates = [address for address in brokers if not self._client.is_silent(address)] or brokers
        start, self._turn = self._turn % len(candidates), self._turn + 1
        return (candidates[start:] + candidates[:start])[:ASKED]

    def _ask(self, asked: Sequence[Address], request: Request[T], policy: RetryPolicy) -> dict[Address, T]:
        """Ask these brokers at the same time; return the answers."""

        def answer(address: Address) -> T | None:
            try:
                return self._client.ask(address, request, policy)
            except (OSError, HarnessError):
                return None

        answers = zip(asked, self._pool.map(answer, asked), strict=True)
        return {address: given for address, given in answers if given is not None}


REFRESH_S: Final = 60.0


@dataclass(frozen=True)
class CoveredTopics:
    """The covered topics with their settings. ``skipped``: named topics that are not covered, with the reason."""

    settings: Mapping[str, Settings]
    skipped: Mapping[str, str]
    short_retention: frozenset[str]


@dataclass
class TopicCoverage:
    """Follows the compacted topics that the user named, or all for (). Settings are read again every `REFRESH_S`."""

    cluster: LiveCluster
    clock: Clock
    patterns: tuple[str, ...]
    interval_s: float
    _settings: dict[str, Settings] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    _read_s: float | None = None

    def forget(self, topics: Collection[str]) -> None:
        """Have the settings of these topics read again."""
        for topic in topics:
            self._settings.pop(topic, None)

    def covered(self, view: ClusterView) -> CoveredTopics:
        """Return the topics that are covered now. Raises as `LiveCluster.settings` does."""
        named = {t for t in view.topics if not self.patterns or is_named(t, self.patterns)}
        is_old = self._read_s is None or self.clock.now_s() - self._read_s >= REFRESH_S
        # Brokers that differ agree as soon as all of them know the last change.
        refused = {topic: why for topic, why in self._refused.items() if why != DIFFERENT}
        unread = named if is_old else named - self._settings.keys() - refused.keys()
        if unread:
            read = self.cluster.settings(unread)
            if is_old:
                self._settings, refused, self._read_s = {}, {}, self.clock.now_s()
            self._settings |= read.settings
            self._refused = {**refused, **read.refused}
        settings = {t: s for t, s in self._settings.items() if t in named and is_compacted(t, s[POLICY].value)}
        # A shorter retention may be over before compaction is paused: a round may fail, and while the broker that leads
        # the guard's topic is frozen, clients wait for its answers.
        least_ms = (3 * self.interval_s + 4) * 1000
        return CoveredTopics(
            settings,
            {topic: why for topic, why in self._refused.items() if topic in named},
            frozenset(topic for topic, values in settings.items() if window_ms(values) < least_ms),
        )
