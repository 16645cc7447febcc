"""Findings on internal topics: what each replica serves, decoded, and whether the coordinator's replica is right.

Checkers keep no values, which may be large. Of the few records that a finding is about, the values are read from the
replicas' segments. The hash of a group's id gives the partition of ``__consumer_offsets`` whose leader coordinates the
group; in the same way ``__transaction_state`` for a transactional id, ``__share_group_state`` for a share group's
partition (``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
``ShareCoordinatorService.partitionFor``, all of which hash alike).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from checkers.attribution.blame import KeyState
from harness.audit.explain.attribution import Disputes
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.internal_topics import decode
from harness.broker_files.internal_topics.phrases import OFFSET_COMMIT, Subject, committed_offset, state, subject
from harness.broker_files.segments.batches import Batch, CorruptLogError, iter_batches, iter_records
from harness.broker_files.segments.blocks import WORTH_COMPILING_BYTES, iter_blocks
from harness.broker_files.segments.records import MAX_INT64
from harness.escape import escape
from harness.judge.finding import CheckerRow, CoordinatorStatus, Finding, Place, ServedState, place_of
from harness.schedules.scenario import offsets_partition

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
        if decode.internal_topic(row["topic"]) is not None:
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
    for path, base, end in zip(copy.logs, bases, [*bases[1:], MAX_INT64], strict=False):
        here = {offset for offset in offsets if base <= offset < end}
        # A record that cannot be read is left out.
        with suppress(CorruptLogError, OSError):
            for batch in _batches(path, here) if here else ():
                records = iter_records(batch, source=str(path))
                yield from ((record.offset, record.value) for record in records if record.offset in here)


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
    if record is None or about is None or about.key is None:
        return finding
    states = _served_states(finding.place, about, disputes.states_of(finding, finding.offset), values)
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
        is_unread = offset is not None and value is None
        return f"the record of log offset {offset}" if is_unread else state(place[0], about, value)

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
        broker, at, text = key_state.broker, key_state.alive_at, texts[key_state.broker]
        text = f"{text} (log offset {at})" if len(offsets[text]) > 1 else text
        brokers = states[text, at].brokers if (text, at) in states else ()
        committed = None if at is None else committed_offset(place[0], about, values.get((place, broker, at)))
        pending = key_state.open_from is not None
        states[text, at] = ServedState(
            brokers=(*brokers, broker), state=text, committed_offset=committed, pending=pending
        )
    return list(states.values())


def _summary(about: Subject, states: Sequence[ServedState]) -> str:
    """Return "committed offset 60 on broker 2, 10 on brokers 1 and 3"."""
    first, *others = (f"{served.state} on {on_brokers(served.brokers)}" for served in states)
    if about.key is not None and about.key.type == OFFSET_COMMIT and first.startswith(COMMITTED):
        others = [text.removeprefix(COMMITTED) for text in others]
    return ", ".join((first, *others))


def on_brokers(numbers: Sequence[int]) -> str:
    """Return "broker 1", or "brokers 1 and 3"."""
    *first, last = map(str, numbers)
    return f"brokers {', '.join(first)} and {last}" if first else f"broker {last}"


def with_coordinator(finding: Finding, evidence: MetadataEvidence) -> Finding:
    """Add to the ``record`` of a finding its ``coordinator``, and whether that broker's replica is right."""
    record, topic, broker = finding.record, finding.topic, evidence.leaders.get(finding.place)
    if record is None or record.key is None or broker is None:
        return finding
    name, hashed = coordinated(topic, record.key)
    at = "" if evidence.is_current else " at the end of the metadata log"
    role = f"{'leader' if hashed is None else 'coordinator'} of {name}{at}"
    count = evidence.partition_counts[topic]
    standing, text = UNAFFECTED, f"{role}: none, the partition has no leader"
    if hashed is not None and offsets_partition(hashed, count) != finding.partition:
        here = f"partition {offsets_partition(hashed, count)} of {topic}, which has {count} partitions"
        broker, text = -1, f"{name} belongs to {here}: no coordinator reads this record"
    elif broker >= 0:
        if not finding.decided:
            standing = UNDECIDED
        elif broker == finding.broker:
            standing = WRONG
        elif broker in (finding.right or ()):
            standing = RIGHT
        text = f"{role}: broker {broker} ({'diverged' if standing == WRONG else standing})"
    coordinator = CoordinatorStatus(broker=broker if broker >= 0 else None, is_=standing, text=text)
    return replace(finding, record=replace(record, coordinator=coordinator))


def coordinated(topic: str, key: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the name of the coordinated group or id, and the text to hash; None without a coordinator."""
    if topic == decode.CONSUMER_OFFSETS:
        kind, hashed = "group", str(key.get("group", key.get("group_id")))
    elif topic == decode.TRANSACTION_STATE:
        kind, hashed = "transactional id", key["transactional_id"]
    elif topic == decode.SHARE_GROUP_STATE:
        kind, hashed = "share partition", f"{key['group_id']}:{key['topic_id']}:{key['partition']}"
    else:
        return "the partition", None
    return f"{kind} {escape(hashed)}", hashed
