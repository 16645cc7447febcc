"""KIP-87: a tombstone is a record with a flag, bit 5 of its attributes, instead of a null value; it may have a value.

The KIP was written before Kafka 0.11 and was never adopted. It gives messages a magic byte of 2, which KIP-98
has used since for record batches: there bit 5 of a *batch's* attributes says control batch. Our reading: its flag is
bit 5 of the attributes of each *record*, in which Kafka uses no bit, and its magic 2 is a format with the flag.

The rules are pure functions over messages. `harness.models.walk.state_space` walks clusters whose clients delete with
the flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from harness.broker_files.segments.records import Record

FLAG: Final = 0x20
"""Bit 5 of a record's attributes."""
Format: TypeAlias = Literal["null", "kip-87"]
"""A message format, by its tombstones: magic 0 or 1, which has no flag, or the KIP's magic 2.

"Update method shouldRetainMessage": null deletes in magic 0 and 1, else the flag.
"""
OLD: Final[Format] = "null"
NEW: Final[Format] = "kip-87"


class RejectedError(Exception):
    """A broker rejects a record."""


def flagged(record: Record) -> Record:
    """Return the record as a delete. "Wire protocol change": bit 5 of the attributes is the tombstone flag."""
    return replace(record, attributes=record.attributes | FLAG)


def is_flagged(record: Record) -> bool:
    """Return whether the flag is set. "Public Interfaces", 5: ``isTombstone()`` in a consumer of the KIP."""
    return bool(record.attributes & FLAG)


def constructed(record: Record, *, tombstone: bool | None = None) -> Record:
    """Return the record that a producer of the KIP sends.

    "Client Compatibility": the old constructors of ``ProducerRecord`` (None) set the flag with a null value, so that
    an application which deletes by null deletes still; the new constructor has an argument for it.
    """
    return flagged(record) if (record.value is None if tombstone is None else tombstone) else record


def deletes(record: Record, written_in: Format, *, compacted: bool = True) -> bool:
    """Return whether a cleaner treats a stored record as a tombstone.

    "Public Interfaces", 2: only where the topic is compacted; elsewhere the flag is stored and read, no more.
    """
    return compacted and (is_flagged(record) if written_in == NEW else record.is_tombstone)


def down_converted(record: Record) -> Record:
    """Return the record in the old format.

    "Migration plan": a tombstone's value becomes null, whether it is stored in the old format or an old consumer asks.
    The flag and the value of the delete are lost; a null without the flag reads as a delete then: see `stored`.
    """
    return replace(record, attributes=record.attributes & ~FLAG, value=None if is_flagged(record) else record.value)


def stored(record: Record, *, sent_in: Format, kept_in: Format, refuses_null: bool = True) -> Record:
    """Return the record that a broker stores. ``kept_in``: its ``message.format.version``.

    "Migration plan": down-converted until all clients are upgraded, then as it is. Raises `RejectedError` for a null
    value without the flag from a producer that supports it ("NOTE": an old consumer would treat it as a delete). Once
    no consumer is old, that could be allowed (``refuses_null`` false): it is what the KIP begins with,
    ``put(key, null)``. Our reading: it is refused in topics that are not compacted, too, as the KIP makes no
    difference; and the null of an old producer gets the flag ("ProduceRequest V2 will work as it does today"), else it
    would be a value that no cleaner ever removes.
    """
    if sent_in == OLD:
        return record if kept_in == OLD else constructed(record)
    if refuses_null and record.value is None and not is_flagged(record):
        raise RejectedError(
            "a null value without the tombstone flag: consumers of the old format would take it for a delete"
        )
    return record if kept_in == NEW else down_converted(record)


def served(record: Record, *, kept_in: Format, asked_in: Format) -> Record:
    """Return a fetched record. "Migration plan": down-converted for FetchRequest V2, which loses zero copy."""
    return down_converted(record) if (kept_in, asked_in) == (NEW, OLD) else record


class Difference(NamedTuple):
    """The meaning of one kind of record: in Kafka today, and by the KIP once brokers store its format.

    ``today``, ``kip_87``: delete, value, or refused; ``old_consumer``: the meaning for a consumer without the flag.
    """

    written: str
    today: str
    kip_87: str
    old_consumer: str


def differences(value: Record) -> Iterator[Difference]:
    """Yield the difference for each kind of record that a producer may write, given a record with a value."""
    null = replace(value, value=None)
    for written, record, sent_in, refuses_null in (
        ("a value", value, NEW, True),
        ("a value with the flag", flagged(value), NEW, True),
        ("a null with the flag", flagged(null), NEW, True),
        ("a null, old constructor", constructed(null), NEW, True),
        ("a null of an old producer", null, OLD, True),
        ("a null without the flag", null, NEW, True),
        ("… if it were allowed", null, NEW, False),
    ):
        today = _meaning(record, OLD)
        try:
            kept_record = stored(record, sent_in=sent_in, kept_in=NEW, refuses_null=refuses_null)
        except RejectedError:
            yield Difference(written, today, "refused", "nothing")
        else:
            fetched = served(kept_record, kept_in=NEW, asked_in=OLD)
            yield Difference(written, today, _meaning(kept_record, NEW), _meaning(fetched, OLD))


def _meaning(record: Record, written_in: Format) -> str:
    return "delete" if deletes(record, written_in) else "value"
