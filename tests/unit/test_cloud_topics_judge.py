"""The name of each error in a log of Cloud Topics, on logs made by hand."""

from dataclasses import replace

from cloud_logs import cloud_of, compact, log_of

from harness.broker_files.segments.records import Record
from harness.models.cloud_topics.judge import Reader, deduplicated, wrong_for_reader, wrong_in_log
from harness.models.cloud_topics.metastore import L1Object, Log
from harness.models.log.batch import ModelBatch

A1, NO_A, B1 = Record(0, 0, b"A", b"1"), Record(1, 0, b"A", None), Record(2, 0, b"B", b"1")
WRITTEN = [A1, NO_A, B1]


def an_object(base: int, end: int, *records: Record) -> L1Object:
    return L1Object(base, end, (ModelBatch(base, end - 1, records, 0),))


def a_log(*records: Record, cleaned: tuple[tuple[int, int], ...] = ()) -> Log:
    return Log((an_object(0, 3, *records),), 3, cleaned=cleaned)


def test_logs_with_nothing_wrong() -> None:
    for records in ((A1, NO_A, B1), (NO_A, B1), (B1,)):
        assert wrong_in_log(a_log(*records), WRITTEN) == set()
    assert wrong_in_log(a_log(NO_A, B1, cleaned=((0, 3),)), WRITTEN) == set()
    assert wrong_in_log(a_log(A1, NO_A, B1, cleaned=((0, 1), (2, 3))), WRITTEN) == set()
    assert wrong_in_log(Log(), []) == set()


def test_each_name_of_a_log() -> None:
    apart = Log((an_object(0, 2, A1, NO_A), an_object(2, 3, B1)), 3)
    cases = {
        "lost-value": [a_log(NO_A)],
        "undeleted": [a_log(A1, B1)],
        "out-of-order": [
            a_log(A1, B1, NO_A),
            a_log(NO_A, NO_A, B1),
            replace(apart, end_offset=4),
            replace(apart, objects=(apart.objects[0], an_object(1, 3, B1))),
            Log((an_object(1, 3, NO_A, B1),), 3),
        ],
        "offset-changed": [a_log(NO_A, replace(B1, value=b"2")), a_log(replace(NO_A, offset=0), NO_A, B1)],
        "false-clean": [a_log(A1, NO_A, B1, cleaned=((1, 3),))],
    }
    for name, logs in cases.items():
        for log in logs:
            assert wrong_in_log(log, WRITTEN) == {name}


def reading(*records: Record, position: int = 3) -> Reader:
    return Reader(10, position, records)


def wrong(reader: Reader, now_ms: int = 20) -> set[str]:
    return wrong_for_reader(reader, a_log(B1), WRITTEN, now_ms=now_ms, delete_retention_ms=50)


def test_what_a_reader_was_given() -> None:
    assert wrong(reading(NO_A, B1)) == wrong(reading(B1)) == set()
    assert wrong(reading(A1, B1)) == {"missed-tombstone"}
    assert wrong(reading(NO_A)) == {"lost-value"}


def test_a_reader_is_judged_at_the_end_and_in_time_only() -> None:
    assert wrong(reading(A1, position=2)) == set()
    assert wrong(reading(A1, B1), now_ms=59) == {"missed-tombstone"}
    assert wrong(reading(A1, B1), now_ms=60) == set()


def test_a_reader_goes_on_in_the_log_as_it_is_then() -> None:
    cloud = cloud_of("A=1 B=1", "A=2")
    reader = Reader(0).next(log_of(cloud))
    assert (reader.position, [record.value for record in reader.latest]) == (1, [b"1"])
    compact(cloud)
    for position in (2, 3, 3):
        reader = reader.next(log_of(cloud))
        assert reader.position == position
    assert [(record.key, record.offset) for record in reader.latest] == [(b"A", 2), (b"B", 1)]


def test_a_reader_gets_past_offsets_that_are_gone() -> None:
    bare = Log((L1Object(0, 2, ()), an_object(2, 3, B1)), 3)
    assert Reader(0).next(bare) == Reader(0, 3, (B1,))
    assert Reader(0).next(Log((L1Object(0, 2, ()),), 2)) == Reader(0, 2)


def test_what_a_log_comes_to() -> None:
    later = Record(3, 0, b"A", b"2")
    assert deduplicated(WRITTEN) == [B1]
    assert deduplicated([*WRITTEN, later]) == [B1, later]
