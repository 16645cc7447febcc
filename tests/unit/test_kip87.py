"""KIP-87, rule by rule: what a flag makes of a record on its way from a producer over brokers to a consumer."""

from dataclasses import replace

import pytest

from harness.broker_files.segments.records import Record
from harness.models.log.kip87 import (
    NEW,
    OLD,
    Difference,
    Format,
    RejectedError,
    constructed,
    deletes,
    differences,
    down_converted,
    flagged,
    is_flagged,
    served,
    stored,
)

VALUE = Record(0, 0, b"K", b"v")
NULL = replace(VALUE, value=None)
DELETE = flagged(VALUE)


def test_the_flag_is_bit_5_and_nothing_else_changes() -> None:
    assert replace(VALUE, attributes=0b100000) == DELETE
    assert is_flagged(DELETE)
    assert not is_flagged(NULL)


@pytest.mark.parametrize(
    ("record", "written_in", "is_delete"),
    [(VALUE, OLD, False), (NULL, OLD, True), (DELETE, OLD, False), (VALUE, NEW, False), (NULL, NEW, False),
     (DELETE, NEW, True), (flagged(NULL), NEW, True)],
)  # fmt: skip
def test_cleaners_go_by_null_in_old_formats_and_by_the_flag_in_the_new_one(
    record: Record, written_in: Format, *, is_delete: bool
) -> None:
    assert deletes(record, written_in) is is_delete


def test_the_flag_deletes_nothing_where_a_topic_is_not_compacted() -> None:
    assert not deletes(DELETE, NEW, compacted=False)
    assert stored(DELETE, sent_in=NEW, kept_in=NEW) == DELETE


def test_the_old_constructor_flags_a_null_and_the_new_one_does_as_it_is_reported() -> None:
    assert constructed(NULL) == flagged(NULL)
    assert constructed(VALUE) == VALUE
    assert constructed(NULL, tombstone=False) == NULL
    assert constructed(VALUE, tombstone=True) == DELETE


def test_down_conversion_gives_a_delete_a_null_and_takes_the_flag() -> None:
    assert down_converted(DELETE) == NULL
    assert down_converted(VALUE) == VALUE


@pytest.mark.parametrize(
    ("record", "sent_in", "kept_in", "stored_record"),
    [(DELETE, NEW, OLD, NULL), (DELETE, NEW, NEW, DELETE), (NULL, OLD, OLD, NULL), (NULL, OLD, NEW, flagged(NULL)),
     (VALUE, OLD, NEW, VALUE)],
)  # fmt: skip
def test_what_brokers_store(record: Record, sent_in: Format, kept_in: Format, stored_record: Record) -> None:
    assert stored(record, sent_in=sent_in, kept_in=kept_in) == stored_record


@pytest.mark.parametrize("kept_in", [OLD, NEW])
def test_a_null_without_the_flag_is_refused_of_producers_that_know_it(kept_in: Format) -> None:
    with pytest.raises(RejectedError, match="consumers of the old format"):
        stored(NULL, sent_in=NEW, kept_in=kept_in)


def test_why_it_is_refused() -> None:
    stored_record = stored(NULL, sent_in=NEW, kept_in=NEW, refuses_null=False)
    assert not deletes(stored_record, NEW)
    assert deletes(served(stored_record, kept_in=NEW, asked_in=OLD), OLD)


@pytest.mark.parametrize("asked_in", [OLD, NEW])
def test_what_consumers_are_served(asked_in: Format) -> None:
    assert served(DELETE, kept_in=NEW, asked_in=asked_in) == (NULL if asked_in == OLD else DELETE)
    assert served(NULL, kept_in=OLD, asked_in=asked_in) == NULL


def test_what_differs() -> None:
    assert [row for row in differences(VALUE) if row.today != row.kip_87] == [
        Difference("a value with the flag", "value", "delete", "delete"),
        Difference("a null without the flag", "delete", "refused", "nothing"),
        Difference("… if it were allowed", "delete", "value", "delete"),
    ]
