"""Phrases for the subject of an internal topic's record, and for the state in its value: every name is escaped.

As Connect's values may contain secrets, only sizes and names of states are shown.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from string import Formatter
from typing import Any, Final, NamedTuple

from harness.broker_files.internal_topics.decode import STATES, DecodedKey, internal_topic
from harness.escape import escape, shortened

OFFSET_COMMIT: Final = "OffsetCommit"
TRANSACTION_LOG: Final = "TransactionLog"
CLASSIC_GROUP: Final = "GroupMetadata"

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a record, as a phrase. ``kind``: of its topic. ``note``: why ``key`` cannot be decoded."""

    kind: str
    text: str
    key: DecodedKey | None = None
    note: str = ""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the key; empty if it cannot be decoded."""
        return {} if self.key is None else self.key.fields


class _Phrases(NamedTuple):
    """Phrases of ``phrases.toml`` for a type of record."""

    subject: str
    state: str
    absent: str = "no record"


class _FieldFormatter(Formatter):
    """Fills the fields of a record into a phrase, escaped.

    ``{topics:topic}`` counts elements, with the plural after a slash if it is irregular. ``{a+b:partition}`` counts the
    partitions in the assignments of these fields. ``{a|b}`` is the first of these fields that the record has. ``{*}``
    is the whole value. ``{?deleted}`` is ", deleted" if the field is true.
    """

    def get_field(self, field_name: str, _: Sequence[Any], fields: Mapping[str, Any]) -> tuple[Any, str]:
        if field_name == "*":
            return fields, field_name
        if field_name.startswith("?"):
            return f", {field_name[1:]}" if fields.get(field_name[1:]) else "", field_name
        if "+" in field_name:
            assignments = (entry for name in field_name.split("+") if name for entry in fields[name])
            return sum(len(assignment["partitions"]) for assignment in assignments), field_name
        names = field_name.split("|")
        return fields[next((name for name in names if name in fields), names[0])], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "state":
            return STATES[value] if 0 <= value < len(STATES) else f"state {value}"
        if format_spec:
            count = len(value) if isinstance(value, list | dict) else int(value)
            singular, _, plural = format_spec.partition("/")
            return f"{count} {singular if count == 1 else plural or f'{singular}s'}"
        return escape(value) if isinstance(value, str) else _compact(value)


_FORMATTER = _FieldFormatter()


def subject(topic: str, key: bytes | None) -> Subject | None:
    """Return the subject of a record; None for a topic of applications."""
    decoders = internal_topic(topic)
    if decoders is None or key is None:
        return None
    try:
        decoded = decoders.key(key)
        phrases = _PHRASES.get(decoded.type)
        text = _FORMATTER.vformat(phrases.subject, (), decoded.fields) if phrases else None
        return Subject(decoders.kind, text or f"{escape(decoded.type)} {_compact(decoded.fields)}", decoded)
    except KeyError as error:
        reason = f"it has no {error.args[0]}"
    except (ValueError, RecursionError) as error:  # JSON that can be read may be nested too deeply to be written
        reason = escape(str(error))
    return Subject(decoders.kind, f"key {shortened(key)}", note=f"the key is shown escaped: {reason}")


def state(topic: str, subject: Subject, value: bytes | None) -> str:
    """Return the state that a record's value gives. ``value`` None: a tombstone, or no record."""
    decoders = internal_topic(topic)
    phrases = None if subject.key is None else _PHRASES.get(subject.key.type)
    if value is None:
        return phrases.absent if phrases else "no record"
    if decoders is None or subject.key is None or phrases is None:
        return f"a value of {len(value):,} bytes"
    try:
        return _FORMATTER.vformat(phrases.state, (), decoders.value(subject.key, value))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        return f"a value of {len(value):,} bytes that cannot be decoded ({escape(str(error))})"


def offsets_text(first: int, end: int) -> str:
    """Return a phrase for the offsets from ``first`` to before ``end``."""
    return f"offset {first}" if end - first == 1 else f"offsets {first} to {end - 1}"


def committed_offset(topic: str, subject: Subject, value: bytes | None) -> int | None:
    """Return the offset that a group has committed by this record; None for another record or a tombstone."""
    decoders = internal_topic(topic)
    if decoders is not None and subject.key is not None and subject.key.type == OFFSET_COMMIT and value is not None:
        with suppress(ValueError):
            return int(decoders.value(subject.key, value)["offset"])
    return None


def _compact(value: Any) -> str:
    return escape(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


_PHRASES: Final[Mapping[str, _Phrases]] = {
    record_type: _Phrases(**phrases)
    for record_type, phrases in tomllib.loads(files(__package__).joinpath("phrases.toml").read_text()).items()
}
"""By the type of a record."""
