"""KIP-87: a delete is a flag of a record, bit 5 of its attributes, and not its null value; so it may have a value.

The KIP was written before Kafka 0.11 and was never adopted. It gives messages a magic byte of 2 for that, which KIP-98
has used since for record batches: there bit 5 of a *batch's* attributes says control batch. Our reading: its flag is
bit 5 of the attributes of each *record*, in which Kafka uses no bit, and its magic 2 is a format that knows the flag.

The rules are pure functions over messages. `models.small` walks clusters whose clients delete by the flag.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from harness.brokers.segments.tombstones import BY_FLAG, BY_NULL, FLAG, is_tombstone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.brokers.segments.records import Record
    from harness.brokers.segments.tombstones import Tombstones

Format: TypeAlias = Literal["old", "kip-87"]
"""A message format: of magic 0 or 1, which knows no flag, or the KIP's magic 2."""

OLD: Final[Format] = "old"
NEW: Final[Format] = "kip-87"


class RefusedError(Exception):
    """A broker takes a record for none that it may store."""


def flagged(record: Record) -> Record:
    """Return the record as a delete. "Wire protocol change": bit 5 of the attributes is the tombstone flag."""
    return replace(record, attributes=record.attributes | FLAG)


def is_flagged(record: Record) -> bool:
    """Whether the flag is set. "Public Interfaces", 5: what ``isTombstone()`` tells a consumer that knows the KIP."""
    return is_tombstone(record, BY_FLAG)


def constructed(record: Record, *, tombstone: bool | None = None) -> Record:
    """Return what a producer that knows the KIP sends.

    "Client Compatibility": the old constructors of ``ProducerRecord`` (None) set the flag with a null value, so that
    an application which deletes by null deletes still; the new one says which.
    """
    deletes = record.value is None if tombstone is None else tombstone
    return flagged(record) if deletes else record


def deleted_by(written_in: Format) -> Tombstones:
    """Return what a cleaner goes by. "Update method shouldRetainMessage": null in magic 0 and 1, else the flag."""
    return BY_FLAG if written_in == NEW else BY_NULL


def deletes(record: Record, written_in: Format, *, compacted: bool = True) -> bool:
    """Whether a cleaner takes a stored record for a delete.

    "Public Interfaces", 2: only where the topic is compacted; elsewhere the flag is stored and read, no more.
    """
    return compacted and is_tombstone(record, deleted_by(written_in))


def down_converted(record: Record) -> Record:
    """Return the record in the old format.

    "Migration plan": a tombstone's value becomes null, whether it is stored in the old format or an old consumer asks.
    The flag and the value of the delete are lost; a null without the flag reads as a delete then: see `stored`.
    """
    return replace(record, attributes=record.attributes & ~FLAG, value=None if is_flagged(record) else record.value)


def up_converted(record: Record) -> Record:
    """Return a record of an old producer in the new format.

    Our reading of "ProduceRequest V2 will work as it does today": its null is a delete, and so it gets the flag. The
    KIP does not say it; without that an old producer's delete would be a value that no cleaner ever removes.
    """
    return flagged(record) if record.value is None else record


def stored(record: Record, *, sent_in: Format, kept_in: Format, refuses_null: bool = True) -> Record:
    """Return what a broker stores of a record. ``kept_in``: its ``message.format.version``.

    "Migration plan": down-converted until all clients are upgraded, then as it is. Raises `RefusedError` for a null
    value without the flag from a producer that knows it ("NOTE": an old consumer would take it for a delete). Once no
    consumer is old, that could be allowed (``refuses_null`` false): it is what the KIP begins with, ``put(key, null)``.
    Our reading: it is refused in topics that are not compacted, too, as the KIP makes no difference.
    """
    if sent_in == OLD:
        return record if kept_in == OLD else up_converted(record)
    if refuses_null and record.value is None and not is_flagged(record):
        raise RefusedError(
            "a null value without the tombstone flag: consumers of the old format would take it for a delete"
        )
    return record if kept_in == NEW else down_converted(record)


def served(record: Record, *, kept_in: Format, asked_in: Format) -> Record:
    """Return what a consumer gets. "Migration plan": down-converted for FetchRequest V2, which costs zero copy."""
    return down_converted(record) if (kept_in, asked_in) == (NEW, OLD) else record


class Difference(NamedTuple):
    """What becomes of one kind of record: as Kafka has it, and by the KIP once brokers keep its format.

    ``today``, ``kip_87``: delete, value, or refused; ``old_consumer``: what one sees of it that knows no flag.
    """

    written: str
    today: str
    kip_87: str
    old_consumer: str


def differences(value: Record) -> Iterator[Difference]:
    """Yield what differs for each kind of record that a producer may write, given one with a value."""
    null = replace(value, value=None)
    without = constructed(null, tombstone=False)
    for written, record, sent_in, refuses_null in (
        ("a value", value, NEW, True),
        ("a value with the flag", flagged(value), NEW, True),
        ("a null with the flag", flagged(null), NEW, True),
        ("a null, old constructor", constructed(null), NEW, True),
        ("a null of an old producer", null, OLD, True),
        ("a null without the flag", without, NEW, True),
        ("… if it were allowed", without, NEW, False),
    ):
        today = _word(deletes(record, OLD))
        try:
            kept = stored(record, sent_in=sent_in, kept_in=NEW, refuses_null=refuses_null)
        except RefusedError:
            yield Difference(written, today, "refused", "nothing")
        else:
            seen = served(kept, kept_in=NEW, asked_in=OLD)
            yield Difference(written, today, _word(deletes(kept, NEW)), _word(deletes(seen, OLD)))


def _word(is_delete: bool) -> str:  # noqa: FBT001  (it is what the word says)
    return "delete" if is_delete else "value"
