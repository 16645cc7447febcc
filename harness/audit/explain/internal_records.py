"""Findings on internal topics: what each replica serves, decoded, and whether the coordinator's replica is right.

Checkers keep no values, which may be large. Of the few records that a finding is about, the values are read from the
replicas' segments (`read_values`); the findings get their text afterwards (`with_states`).

A group is coordinated by the leader of one partition of ``__consumer_offsets``, which the hash of its id gives; in the
same way a transactional id by ``__transaction_state``, and a share group's partition by ``__share_group_state``.
Sources: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
``ShareCoordinatorService.partitionFor``, all of which hash alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harness.broker_files.internal_topics.decode import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    internal_topic,
)
from harness.broker_files.internal_topics.phrases import OFFSET_COMMIT, Subject, committed_offset, state, subject
from harness.broker_files.segments.batches import Batch, CorruptLogError, iter_batches, iter_records
from harness.broker_files.segments.blocks import WORTH_COMPILING_BYTES, iter_blocks
from harness.escape import escape
from harness.judge.finding import CheckerRow, CoordinatorStatus, Finding, Place, ServedState, place_of
from harness.schedules.scenario import offsets_partition

if TYPE_CHECKING:
    from checkers.attribution.blame import KeyState
    from harness.audit.explain.attribution import Disputes
    from harness.audit.explain.metadata_evidence import MetadataEvidence
    from harness.broker_files.copies.copies import Copies, ReplicaCopy

Values: TypeAlias = "Mapping[tuple[Place, int, int], bytes | None]"
"""Values by partition, broker and offset of the log."""

COMMITTED: Final = "committed offset "
RIGHT, WRONG, UNDECIDED, UNAFFECTED = "right", "wrong", "undecided", "not accused"


def read_values(copies: Sequence[Copies], key_states: Iterable[CheckerRow]) -> list[CheckerRow]:
    """Return ``run``, ``topic``, ``partition``, ``broker``, ``offset`` and ``value`` of records of internal topics.

    ``key_states``: rows of `checkers.attribution.blame.key_states`. A record that cannot be read is left out: its
    offset is shown instead.
    """
    offsets_by_replica: dict[tuple[str, str, int, int], set[int]] = defaultdict(set)
    for row in key_states:
        if internal_topic(row["topic"]) is not None:
            offsets = {None if row["last"] is None else row["last"]["offset"], row["open_from"]} - {None}
            offsets_by_replica[row["run"], row["topic"], row["partition"], row["broker"]] |= offsets
    return [
        {
            "run": run.run_id, "topic": copy.topic, "partition": copy.partition, "broker": copy.broker,
            "offset": offset, "value": value,
        }
        for run in copies
        for copy in run.replicas
        for offset, value in _values(copy, offsets_by_replica.get((run.run_id, *copy.place, copy.broker), ()))
    ]  # fmt: skip


def _values(copy: ReplicaCopy, offsets: Collection[int]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the values at these offsets, each from the last segment that begins at or before it."""
    bases = [segment.base_offset for segment in copy.segments]
    for path, (base, end) in zip(copy.logs, zip_longest(bases, bases[1:]), strict=True):
        here = {offset for offset in offsets if base <= offset and (end is None or offset < end)}
        if here:
            try:
                for batch in _batches(path, here):
                    records = iter_records(batch, source=str(path))
                    yield from ((record.offset, record.value) for record in records if record.offset in here)
            except (CorruptLogError, OSError):
                continue


def _batches(path: Path, offsets: Collection[int]) -> Iterator[Batch]:
    """Yield the batches of a segment that have one of these offsets. Raises ``CorruptLogError`` and ``OSError``."""
    if path.stat().st_size < WORTH_COMPILING_BYTES:
        for batch in iter_batches(path.read_bytes(), source=str(path), verify_crc=False):
            if any(batch.base_offset <= offset <= batch.last_offset for offset in offsets):
                yield batch
        return
    with path.open("rb") as file:
        for block in iter_blocks(file, source=str(path), verify_crc=False):
            for index, rows in enumerate(block.batches):
                if any(rows["base_offset"] <= offset <= rows["last_offset"] for offset in offsets):
                    yield block.batch(index)


def values_of(rows: Iterable[CheckerRow]) -> Values:
    """Return the rows of `read_values` by partition, broker and offset."""
    return {(place_of(row), row["broker"], row["offset"]): row["value"] for row in rows}


def with_states(finding: Finding, disputes: Disputes, values: Values) -> Finding:
    """Add ``states`` to the ``record`` of a finding: what each replica serves, decoded; the explanation begins with it.

    Replicas that serve the same are one state.
    """
    about, record = subject(finding.topic, finding.key), finding.record
    if record is None or finding.key is None or about is None or about.key is None:
        return finding
    key_states = disputes.states_of(finding.place, finding.key, finding.offset)
    states = _served_states(finding.place, about, key_states, values)
    if not states:
        return replace(finding, record=replace(record, states=()))
    if finding.decided:
        states.sort(key=lambda served: finding.broker not in served.brokers)
    explanation = f"{about.text}: {_summary(about, states)}; in the log: {finding.explanation}"
    return replace(finding, record=replace(record, states=tuple(states)), explanation=explanation)


def _served_states(place: Place, about: Subject, key_states: Sequence[KeyState], values: Values) -> list[ServedState]:
    """Return the replicas grouped by their text; where different records have the same text, with their log offsets."""

    def text_at(broker: int, offset: int | None) -> str:
        value = None if offset is None else values.get((place, broker, offset))
        return (
            state(place[0], about, value)
            if offset is None or value is not None
            else f"the record of log offset {offset}"
        )

    texts: dict[int, str] = {}
    offsets: dict[str, set[int | None]] = defaultdict(set)
    for key_state in key_states:
        text = text_at(key_state.broker, key_state.alive_at)
        if key_state.open_from is not None:
            text = f"{text}, and {text_at(key_state.broker, key_state.open_from)} pending in an open transaction"
        texts[key_state.broker] = text
        offsets[text].add(key_state.alive_at)
    states: dict[tuple[str, int | None], ServedState] = {}
    for key_state in key_states:
        broker, at = key_state.broker, key_state.alive_at
        text = f"{texts[broker]} (log offset {at})" if len(offsets[texts[broker]]) > 1 else texts[broker]
        committed = None if at is None else committed_offset(place[0], about, values.get((place, broker, at)))
        served = ServedState(
            brokers=(), state=text, committed_offset=committed, pending=key_state.open_from is not None
        )
        served = states.get((text, at), served)
        states[text, at] = replace(served, brokers=(*served.brokers, broker))
    return list(states.values())


def _summary(about: Subject, states: Sequence[ServedState]) -> str:
    """Return "committed offset 60 on broker 2, 10 on brokers 1 and 3"."""
    parts: list[str] = []
    for served in states:
        text = served.state
        if about.key is not None and about.key.type == OFFSET_COMMIT and parts and parts[0].startswith(COMMITTED):
            text = text.removeprefix(COMMITTED)
        parts.append(f"{text} on {on_brokers(served.brokers)}")
    return ", ".join(parts)


def on_brokers(numbers: Sequence[int]) -> str:
    """Return "broker 1", or "brokers 1 and 3"."""
    *first, last = map(str, numbers)
    return f"brokers {', '.join(first)} and {last}" if first else f"broker {last}"


def with_coordinator(finding: Finding, evidence: MetadataEvidence) -> Finding:
    """Add to the ``record`` of a finding its ``coordinator``, and whether that broker's replica is right."""
    record, topic, broker = finding.record, finding.topic, evidence.leaders.get(finding.place)
    if record is None or record.key is None or broker is None:
        return finding
    name, hashed = _coordinated(topic, record.key)
    at = "" if evidence.is_current else " at the end of the metadata log"
    role = f"{'leader' if hashed is None else 'coordinator'} of {name}{at}"
    count = evidence.partition_counts[topic]
    standing, text = UNAFFECTED, f"{role}: none, the partition has no leader"
    if hashed is not None and offsets_partition(hashed, count) != finding.partition:
        here = f"partition {offsets_partition(hashed, count)} of {topic}, which has {count} partitions"
        broker, text = -1, f"{name} belongs to {here}: no coordinator reads this record"
    elif broker >= 0:
        standing = _standing(finding, broker)
        text = f"{role}: broker {broker} ({'diverged' if standing == WRONG else standing})"
    coordinator = CoordinatorStatus(broker=broker if broker >= 0 else None, is_=standing, text=text)
    return replace(finding, record=replace(record, coordinator=coordinator))


def _standing(finding: Finding, broker: int) -> str:
    if not finding.decided:
        return UNDECIDED
    if broker == finding.broker:
        return WRONG
    return RIGHT if broker in (finding.right or ()) else UNAFFECTED


def _coordinated(topic: str, key: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the name of the coordinated group or id, and the text to hash; None without a coordinator."""
    if topic == CONSUMER_OFFSETS:
        kind, hashed = "group", str(key.get("group", key.get("group_id")))
    elif topic == TRANSACTION_STATE:
        kind, hashed = "transactional id", key["transactional_id"]
    elif topic == SHARE_GROUP_STATE:
        kind, hashed = "share partition", f"{key['group_id']}:{key['topic_id']}:{key['partition']}"
    else:
        return "the partition", None
    return f"{kind} {escape(hashed)}", hashed
