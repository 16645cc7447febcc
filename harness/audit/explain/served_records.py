"""What each replica serves for a record of an internal topic, decoded: "committed offset 60 on broker 2, 10 on 1".

Checkers keep no values, which may be large. Of the few records that a finding is about, the values are read from the
replicas' segments while these are there (`read_values`); the findings get their text afterwards (`with_states`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from harness.audit.explain.knowledge import place_of
from harness.broker_files.internal_topics.decode import internal_topic
from harness.broker_files.internal_topics.phrases import OFFSET_COMMIT, committed_offset, state, subject
from harness.broker_files.segments.batches import CorruptLogError, iter_batches, iter_records
from harness.broker_files.segments.blocks import WORTH_COMPILING_BYTES, iter_blocks
from harness.judge.finding import ServedState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from checkers.attribution.blame import KeyState
    from harness.audit.explain.attribution import Disputes
    from harness.broker_files.copies.copies import Copies, ReplicaCopy
    from harness.broker_files.internal_topics.phrases import Subject
    from harness.broker_files.segments.batches import Batch
    from harness.judge.finding import CheckerRow, Finding, Place

Values: TypeAlias = "Mapping[tuple[Place, int, int], bytes | None]"
"""Values by partition, broker and offset of the log."""

COMMITTED = "committed offset "


def read_values(copies: Sequence[Copies], key_states: Iterable[CheckerRow]) -> list[CheckerRow]:
    """Return ``run``, ``topic``, ``partition``, ``broker``, ``offset`` and ``value`` of records of internal topics.

    ``key_states``: rows of `checkers.attribution.key_states`. A record that cannot be read is left out: its offset is
    shown instead.
    """
    wanted: dict[tuple[str, str, int, int], set[int]] = {}
    for row in key_states:
        if internal_topic(row["topic"]) is not None:
            offsets = {None if row["last"] is None else row["last"]["offset"], row["open_from"]} - {None}
            replica = (row["run"], row["topic"], row["partition"], row["broker"])
            wanted.setdefault(replica, set()).update(offsets)
    return [
        {
            "run": one.run_id, "topic": copy.topic, "partition": copy.partition, "broker": copy.broker,
            "offset": offset, "value": value,
        }
        for one in copies
        for copy in one.replicas
        for offset, value in _values(copy, sorted(wanted.get((one.run_id, *copy.place, copy.broker), ())))
    ]  # fmt: skip


def _values(copy: ReplicaCopy, offsets: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the values at these offsets, each from the last segment that begins at or before it."""
    bases = [segment.base_offset for segment in copy.segments]
    for path, (base, end) in zip(copy.logs, zip_longest(bases, bases[1:]), strict=True):
        here = {offset for offset in offsets if base <= offset and (end is None or offset < end)}
        if here:
            try:
                for batch in _batches(path, here):
                    yield from (
                        (one.offset, one.value) for one in iter_records(batch, source=str(path)) if one.offset in here
                    )
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


def with_states(findings: Iterable[Finding], disputes: Disputes, values: Values) -> list[Finding]:
    """Add ``states`` to the ``record`` of findings: what each replica serves, decoded; the explanation begins with it.

    Replicas that serve the same are one state.
    """
    return [_with_states(finding, disputes, values) for finding in findings]


def _with_states(finding: Finding, disputes: Disputes, values: Values) -> Finding:
    about, record = subject(finding.topic, finding.key), finding.record
    if record is None or finding.key is None or about is None or about.key is None:
        return finding
    key_states = disputes.states_of(finding.place, finding.key, finding.offset)
    states = _grouped([_Served(finding.place, about, one, values) for one in key_states])
    if finding.decided:
        states.sort(key=lambda state: finding.broker not in state.brokers)
    explanation = f"{about.text}: {_summary(about, states)}; in the log: {finding.explanation}"
    return replace(
        finding,
        record=replace(record, states=tuple(states)),
        explanation=explanation if states else finding.explanation,
    )


@dataclass(frozen=True)
class _Served:
    """What one replica serves for the key of a record."""

    place: Place
    about: Subject
    key_state: KeyState
    values: Values

    @property
    def broker(self) -> int:
        return self.key_state.broker

    @property
    def last_at(self) -> int | None:
        """The log offset of the last committed value."""
        return self.key_state.alive_at

    @property
    def committed(self) -> int | None:
        if self.last_at is None:
            return None
        return committed_offset(self.place[0], self.about, self._value(self.last_at))

    @property
    def text(self) -> str:
        text = self._text_at(self.last_at)
        if self.key_state.open_from is None:
            return text
        return f"{text}, and {self._text_at(self.key_state.open_from)} pending in an open transaction"

    def _text_at(self, offset: int | None) -> str:
        if offset is None:
            return state(self.place[0], self.about, None)
        value = self._value(offset)
        return f"the record of log offset {offset}" if value is None else state(self.place[0], self.about, value)

    def _value(self, offset: int) -> bytes | None:
        return self.values.get((self.place, self.broker, offset))


def _grouped(served: Sequence[_Served]) -> list[ServedState]:
    """Return the replicas by what they serve; where different records have the same text, with their log offsets."""
    offsets: dict[str, set[int | None]] = {}
    for one in served:
        offsets.setdefault(one.text, set()).add(one.last_at)
    states: dict[tuple[str, int | None], ServedState] = {}
    for one in served:
        text = f"{one.text} (log offset {one.last_at})" if len(offsets[one.text]) > 1 else one.text
        pending, state = one.key_state.open_from is not None, states.get((text, one.last_at))
        states[text, one.last_at] = (
            ServedState(brokers=(one.broker,), state=text, committed_offset=one.committed, pending=pending)
            if state is None
            else replace(state, brokers=(*state.brokers, one.broker))
        )
    return list(states.values())


def _summary(about: Subject, states: Sequence[ServedState]) -> str:
    """Return "committed offset 60 on broker 2, 10 on brokers 1 and 3"."""
    parts: list[str] = []
    for one in states:
        text = one.state
        if about.key is not None and about.key.type == OFFSET_COMMIT and parts and parts[0].startswith(COMMITTED):
            text = text.removeprefix(COMMITTED)
        parts.append(f"{text} on {on_brokers(one.brokers)}")
    return ", ".join(parts)


def on_brokers(numbers: Sequence[int]) -> str:
    """Return "broker 1", or "brokers 1 and 3"."""
    *first, last = map(str, numbers)
    return f"brokers {', '.join(first)} and {last}" if first else f"broker {last}"
