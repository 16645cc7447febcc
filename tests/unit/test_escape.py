"""Escaping, also in sentences of checkers; different values stay different."""

import json
import logging
import unicodedata
from xml.etree import ElementTree as ET

import pytest
from hostile import HOSTILE, raise_if_forged, raise_if_raw
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from checkers.finding import completed, sentence
from harness.escape import CONTINUED, UNSEEN, LogFormatter, escape, shortened, to_json, visible
from harness.judge.check import collected

BY_NAME = {
    "ESC": ("\x1b[31m", r"\x1b[31m"), "NUL": ("a\0b", r"a\x00b"), "line breaks": ("a\r\nb", r"a\x0d\x0ab"),
    "DEL": ("\x7f", r"\x7f"), "C1": ("\x9b31m\x85", r"\u009b31m\u0085"), "nothing": ("", ""),
    "direction": ("\u202eabc\u202c\u2066\u2069", r"\u202eabc\u202c\u2066\u2069"),
    "line separators": ("\u2028\u2029", r"\u2028\u2029"), "no width": ("a\u200b\ufeff\u00ad", r"a\u200b\ufeff\u00ad"),
    "tags": ("\U000e0041", r"\U000e0041"), "no characters": ("\ufffe\uffff", r"\ufffe\uffff"),
    "backslash": (r"\x1b", r"\\x1b"),
    "text": ("é 日本 😀 [red] %s {0} $1 'q' \"", "é 日本 😀 [red] %s {0} $1 'q' \""),
}  # fmt: skip
IN_SENTENCE = {
    b"\xff\x00a": r"\xff\x00\x61", b"\0\1\xff": r"\x00\x01\xff", b"\xed\xa0\x80": r"\xed\xa0\x80",
    b"x" * 100: "x" * 60 + "…", b"\xff" * 100: r"\xff" * 60 + "…", b"\x1b" * 60: r"\x1b" * 60,
    "é".encode() * 60: "é" * 60, b"a\\b" * 30: r"a\\b" * 20 + "…",
    "ü\U0001f600".encode() * 40: "ü\U0001f600" * 30 + "…",
}  # fmt: skip
"""Bytes that are not text, and cut values, as `in_sentence` writes them."""


@pytest.mark.parametrize(("value", "written"), BY_NAME.values(), ids=BY_NAME)
def test_a_value_is_escaped(value: str, written: str) -> None:
    assert escape(value) == written
    assert escape(value.encode()) == written


def test_keys_in_a_sentence_of_spark(spark: SparkSession) -> None:
    written = {value.encode(): shown for value, shown in BY_NAME.values()} | IN_SENTENCE
    rows = spark.createDataFrame(list(enumerate([*written, None])), "number int, key binary").orderBy("number")
    told = sentence("key {key!r}, {number}, {key!r:none}")
    assert [row["explanation"] for row in collected(rows.select(told.alias("explanation")))] == [
        *(f"key {shown}, {number}, {shown}" for number, shown in enumerate(written.values())),
        f"key (no key), {len(written)}, none",
    ]


def test_a_sentence_has_values_of_columns_and_given_ones_and_alone_is_completed(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(5, None, "wrong")], "offset long, key string, name string")
    written = sentence("100 % of {offset} and {key}: {name}, {offset}", name=f.upper(f.lit("given")))
    assert rows.select(written).first() == ("100 % of 5 and null: GIVEN, 5",)
    row = {"reason": "\x004B\0", "explanation": None, "key": "\x004B\0"}
    assert completed(row) == {**row, "reason": "K"}


def test_spark_hands_on_every_code_point(spark: SparkSession) -> None:
    # Code points around every border of the table; surrogates are not text in Spark.
    near = {code for span in UNSEEN for end in span for code in (end - 1, end, end + 1) if code >= 0}
    texts = [chr(code) for code in sorted(near | {0x5C}) if not 0xD800 <= code <= 0xDFFF]
    texts += [value for value, _ in BY_NAME.values()]
    rows = spark.createDataFrame([(text,) for text in texts], "key string")
    shown = collected(rows.select("key", sentence("{key!r}").alias("explanation")))
    assert {row["key"]: row["explanation"] for row in shown} == {text: escape(text) for text in texts}


def test_bytes_that_are_no_text_differ_from_characters_and_what_is_escaped_is_not_escaped_again() -> None:
    assert (escape(b"\xff\x80a"), escape("ÿ\x80a")) == (r"\xff\x80a", r"ÿ\u0080a")
    assert escape("\ud800") == r"\ud800"
    assert visible(escape(HOSTILE)) == escape(HOSTILE)
    raise_if_raw(escape(HOSTILE))
    raise_if_raw(visible(HOSTILE))
    assert visible("a\nCLEAN\x1b", line_break=CONTINUED) == "a\n    CLEAN\\x1b", "lines of one message are indented"


def test_every_escaped_text_is_text_for_xml_that_neither_controls_nor_reverses() -> None:
    text = visible("".join(map(chr, range(0x110000))))
    controls = [character for character in text if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}]
    directions = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    turned = [character for character in text if unicodedata.bidirectional(character) in directions]
    assert (controls, turned) == ([], [])
    element = ET.Element("a")
    element.text = text
    assert ET.fromstring(ET.tostring(element)).text == text  # noqa: S314  (written one line above)


@pytest.mark.parametrize(("value", "expected"), [
    (None, None), (b"K", "K"), (b"\\", r"\\"), (b"\x00\x80", r"\x00\x80"), ("\u202e".encode(), r"\u202e"),
    (b"x" * 300, f"{'x' * 200}… (300 bytes)"),
    (b"x" * 100_000, f"{'x' * 200}… (100,000 bytes)"),
])  # fmt: skip
def test_long_values_are_cut(value: bytes | None, expected: str | None) -> None:
    assert shortened(value) == expected


def test_json_is_ascii_and_loses_nothing() -> None:
    value = {"key": f"{HOSTILE}\ud800\x7f", "list": [HOSTILE]}
    text = to_json(value, indent=2)
    assert json.loads(text) == value
    assert text.isascii()
    raise_if_raw(text)


def test_a_log_record_forges_no_other(caplog: pytest.LogCaptureFixture) -> None:
    formatter = LogFormatter("harness: %(message)s")
    with caplog.at_level(logging.WARNING):
        try:
            json.loads(HOSTILE)
        except ValueError:
            logging.getLogger("harness").exception("broker says %s", HOSTILE)
    text = formatter.format(caplog.records[0])
    raise_if_raw(text)
    raise_if_forged(text)
    first, *more = text.splitlines()
    assert first.startswith("harness: broker says ")
    assert "    Traceback (most recent call last):" in more
    assert all(line.startswith("    ") for line in more)
