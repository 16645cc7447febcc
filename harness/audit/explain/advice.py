"""The meaning of a finding for the operators of the cluster, and the remedy: sentences, and commands to copy.

A command that removes a replica's copy is given only where every disagreement of the partition is decided, and a
correct replica is left: else it could destroy the last correct copy. A new commit of a group's offset is copied to
every replica, and supersedes the disputed commit: so the right offset is committed explicitly, once a broker whose
replica is right coordinates the group, before a replica is rebuilt.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Final

from checkers.anomalies import MEANS
from checkers.finding import HANGING_TRANSACTION
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, KAFKAS_OWN
from harness.broker_files.internal_topics.phrases import CLASSIC_GROUP, OFFSET_COMMIT, TRANSACTION_LOG, offsets_text
from harness.escape import escape
from harness.judge.finding import Finding, Place, ServedState, by_place, name_of

BOOTSTRAP: Final = '--bootstrap-server "$BOOTSTRAP"'
"""The first commands set the variables."""
ANY_BROKER: Final = "HOST:PORT"
"""A placeholder for the user to replace: an audit of folders has no address."""
ANY_CONFIG: Final = "/dev/null"
"""An empty properties file, which the user replaces where clients log in: an audit of folders does not know that."""
THROTTLE_BYTES_S: Final = 50_000_000
ELECTION: Final = "kafka-leader-election.sh"
PAUSE_SETTINGS: Final = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "9223372036854775807"}
"""Settings that pause a topic's compaction; seen to do so on 4.4.0."""

COMMIT_NOW: Final = '# now run the line after "commit" of each finding, and start the consumers'
NONE_RIGHT: Final = "no other replica can be proven correct"
SENTENCES: Final = tomllib.loads((files(__package__) / "advice.toml").read_text())
ONCE_AGREED: Final = "# once the replicas agree: "
"""Begins the lines that resume compaction, which is paused while a person decides."""
UNDECIDED: Final = "undecided"
FLINK_ID: Final = re.compile(r".+-\d+-\d+")
STREAMS_ID: Final = re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+")


@dataclass(frozen=True)
class Shell:
    """Facts for the printed commands.

    ``bootstrap``: a broker's address. ``config``: the properties file of ``--command-config``. ``own_settings``: the
    values of `PAUSE_SETTINGS` that each topic itself has; None where they are unknown.
    """

    bootstrap: str = ANY_BROKER
    config: str | None = ANY_CONFIG
    own_settings: Mapping[str, Mapping[str, str]] | None = None

    def variables(self) -> list[str]:
        """Return the commands that set variables."""
        note = "  # or a client's properties file, for SASL and TLS" if self.config == ANY_CONFIG else ""
        config = [] if self.config is None else [f"CONFIG={shlex.quote(self.config)}{note}"]
        return [f"BOOTSTRAP={shlex.quote(self.bootstrap)}", *config]

    def call(self, tool: str, words: str) -> str:
        """Return the command that calls one of Kafka's tools."""
        # Until KIP-1147 this tool calls the option otherwise.
        option = "--admin.config" if tool == ELECTION else "--command-config"
        return " ".join((tool, BOOTSTRAP, *([] if self.config is None else [option, '"$CONFIG"']), words))

    def restore(self, topic: str) -> list[str]:
        """Return the commands that give a topic its own values of `PAUSE_SETTINGS` back."""
        known = (self.own_settings or {}).get(topic)
        own = {name: value for name, value in (known or {}).items() if name in PAUSE_SETTINGS}
        inherited = [name for name in PAUSE_SETTINGS if name not in own]
        note = "  # or --add-config with the values that the topic had" if known is None else ""
        changes = [f"--delete-config {','.join(inherited)}{note}"] if inherited else []
        return [*(self._configure(topic, change) for change in changes), *([self.pause(topic, own)] if own else [])]

    def pause(self, topic: str, settings: Mapping[str, str] = PAUSE_SETTINGS) -> str:
        """Return the command that pauses a topic's compaction, or that gives the topic other settings."""
        return self._configure(topic, f"--add-config {','.join(map('='.join, settings.items()))}")

    def _configure(self, topic: str, change: str) -> str:
        return self.call("kafka-configs.sh", f"--alter --entity-type topics --entity-name {topic} {change}")


@dataclass(frozen=True)
class _Partition:
    """A partition. ``brokers`` hold its replicas, in order; ``leaders`` are the brokers that are shown to be right."""

    place: Place
    brokers: Sequence[int]
    leaders: Sequence[int]
    is_decided: bool


def with_advice(
    findings: Sequence[Finding], brokers: Mapping[Place, Sequence[int]], shell: Shell | None = None
) -> list[Finding]:
    """Add ``means``, ``do`` and ``commands`` (lines for a shell) to findings.

    ``brokers``: the replicas of each partition, in the order of its assignment.
    """
    partitions = {place: _partition(place, group, brokers[place]) for place, group in by_place(findings).items()}
    shell = shell or Shell()
    return [_advised(with_consumers(finding, shell), partitions[finding.place], shell) for finding in findings]


def _partition(place: Place, findings: Sequence[Finding], brokers: Sequence[int]) -> _Partition:
    accusing = [finding for finding in findings if finding.anomaly != HANGING_TRANSACTION]
    wrong = {finding.broker for finding in accusing if finding.decided}
    right = {broker for finding in accusing for broker in finding.right or ()} - wrong
    leaders = [broker for broker in brokers if broker in right]
    return _Partition(place, brokers, leaders, all(finding.decided for finding in accusing))


def _advised(finding: Finding, partition: _Partition, shell: Shell) -> Finding:
    topic, number = partition.place
    fields = {
        "broker": finding.broker,
        "partition": name_of(partition.place),
        "producer_id": finding.producer_id,
        "leader": next(iter(partition.leaders), None),
        "why": NONE_RIGHT if partition.is_decided else "another disagreement of this partition is not decided",
    }
    is_of_group = is_about_offsets(finding)
    remedies = SENTENCES["do-offsets" if is_of_group else "do"]
    resume = [f"{ONCE_AGREED}{command}" for command in shell.restore(topic)]
    do, commands = remedies["no-leader" if finding.decided else UNDECIDED], [shell.pause(topic), *resume]
    if finding.anomaly == HANGING_TRANSACTION:
        at = f"--topic {topic} --partition {number} --start-offset {finding.offset}"
        fields["caution"] = caution_of(finding).text
        do, commands = SENTENCES["do"]["hanging"], [shell.call("kafka-transactions.sh", f"abort {at}")]
    elif finding.decided and partition.is_decided and partition.leaders:
        recopy = _recopy(partition, finding.broker, partition.leaders[0], shell, is_of_group=is_of_group)
        do, commands = remedies["recopy"], [shell.pause(topic), *recopy]
    means = _meaning(finding).format(**fields)
    return replace(finding, means=means, do=do.format(**fields), commands=(*shell.variables(), *commands))


@dataclass(frozen=True)
class Caution:
    """What to do before a hanging transaction is aborted. ``may_be_committed``: whether a person has to decide."""

    text: str
    may_be_committed: bool


def caution_of(finding: Finding) -> Caution:
    """Return the caution, by the transactional id.

    Flink's ids are those of ``TransactionalIdFactory``; those of Kafka Streams end with a UUID and a number.
    """
    name, remedies = finding.witness.get("transactional_id"), SENTENCES["do"]
    if name is not None and FLINK_ID.fullmatch(name) and not STREAMS_ID.fullmatch(name):
        return Caution(remedies["caution-flink"].format(id=escape(name)), may_be_committed=True)
    return Caution(remedies["caution"], may_be_committed=False)


def _meaning(finding: Finding) -> str:
    record, name = finding.record, finding.anomaly if finding.decided else UNDECIDED
    if record is None or (record.key is None and finding.topic in KAFKAS_OWN):
        return MEANS[finding.anomaly] if finding.decided else SENTENCES["means"]["other"][UNDECIDED]
    type_ = "coordinator state" if finding.topic in KAFKAS_OWN else "tool state"
    if record.type in {OFFSET_COMMIT, TRANSACTION_LOG, CLASSIC_GROUP}:
        type_ = record.type
    elif finding.topic == CONSUMER_OFFSETS:
        type_ = "group member"
    means = SENTENCES["means"]
    sentence: str = means[type_].get(name) or means[type_].get(UNDECIDED) or means["coordinator state"][UNDECIDED]
    return sentence


def _recopy(partition: _Partition, broker: int, leader: int, shell: Shell, *, is_of_group: bool) -> list[str]:
    """Return the commands after the pause, which were seen to repair an undone delete and a stuck LSO on 4.4.0.

    ``is_of_group``: the partition has committed offsets, which are committed again before the replica is rebuilt.
    """
    (topic, number), name = partition.place, name_of(partition.place)
    others = [leader, *(other for other in partition.brokers if other not in {leader, broker})]
    elect = shell.call(ELECTION, f"--election-type preferred --topic {topic} --partition {number}")
    describe = shell.call("kafka-log-dirs.sh", f"--describe --broker-list {broker} --topic-list {topic}")

    def assign(replicas: Sequence[int], step: str) -> list[str]:
        assignment = {"topic": topic, "partition": number, "replicas": list(replicas)}
        file = f"{name}-{step}.json"
        reassign = shell.call("kafka-reassign-partitions.sh", f"--reassignment-json-file {file}")
        return [
            f"echo '{json.dumps({'version': 1, 'partitions': [assignment]})}' > {file}",
            f"{reassign} --execute --throttle {THROTTLE_BYTES_S}",
            f"{reassign} --verify  # continue once it is complete",
        ]

    return [
        f"{describe}  # copy its folder of {name} with cp -a, on the host of broker {broker}",
        *([*assign([*others, broker], "leader"), elect, COMMIT_NOW] if is_of_group else []),
        *assign(others, "without"),
        *([] if is_of_group else [elect]),
        f"{describe}  # continue once {name} is gone",
        *assign([*others, broker], "with"),
        *(assign(partition.brokers, "order") if list(partition.brokers) != [*others, broker] else []),
        *shell.restore(topic),
    ]


def is_about_offsets(finding: Finding) -> bool:
    """Return True for a finding about a group's committed offset."""
    return finding.record is not None and finding.record.type == OFFSET_COMMIT


def with_consumers(finding: Finding, shell: Shell) -> Finding:
    """Add to a finding about a committed offset ``consumers`` (a sentence) and ``commit`` (a line for a shell).

    ``commit`` is added only where the right offset is known, and a shell's line can show the names.
    """
    record = finding.record
    if record is None or record.states is None or record.key is None or not is_about_offsets(finding):
        return finding
    key, right = record.key, set(finding.right or ()) if finding.decided else set()
    offsets = {state.committed_offset for state in record.states if right & set(state.brokers) and not state.pending}
    offset = next(iter(offsets)) if len(offsets) == 1 else None
    partition, texts = escape(f"{key['topic']}-{key['partition']}"), []
    for state in record.states:
        brokers = " or ".join(map(str, state.brokers))
        texts.append(f"with broker {brokers} as coordinator {_effect(state, offset, partition)}")
    consumers = f"group {escape(key['group'])}: {'; '.join(texts)}"
    return replace(finding, record=replace(record, consumers=consumers, commit=_commit(key, offset, shell)))


def _effect(state: ServedState, right_offset: int | None, partition: str) -> str:
    offset = state.committed_offset
    if state.pending:
        return f"it gets no record of {partition}"
    if offset is None:
        return f"it starts {partition} by auto.offset.reset"
    start = f"it starts {partition} at {offset}"
    if right_offset is None or offset == right_offset:
        return start
    if offset > right_offset:
        return f"{start}, and skips {offsets_text(right_offset, offset)}"
    return f"{start}, and consumes {offsets_text(offset, right_offset)} again"


def _commit(key: Mapping[str, str], offset: int | None, shell: Shell) -> str | None:
    if offset is None or any(escape(name) != name or not name for name in (key["group"], key["topic"])):
        return None
    group, partition = shlex.quote(key["group"]), shlex.quote(f"{key['topic']}:{key['partition']}")
    options = f"--group {group} --topic {partition} --reset-offsets --to-offset {offset} --execute"
    return shell.call("kafka-consumer-groups.sh", options)
