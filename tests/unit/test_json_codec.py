"""Dataclasses as JSON, and back: every kind of field, and what is wrong with other content."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from harness.json_codec import from_json, to_json


@dataclass(frozen=True, kw_only=True)
class Inner:
    is_: bool
    key: bytes | None


@dataclass(frozen=True, kw_only=True)
class Outer:
    number: int
    share: float | None
    names: tuple[str, ...] = ()
    inner: Inner | None = None
    inners: tuple[Inner, ...] | None = None
    pair: tuple[str, int] = ("", 0)
    counts: Mapping[str, int]
    anything: Any = None


FULL = Outer(
    number=1, share=0.5, names=("a", "b"), inner=Inner(is_=True, key=b"text"),
    inners=(Inner(is_=False, key=b"\xff"), Inner(is_=False, key=None)), counts={"x": 2}, anything=[{"y": None}],
    pair=("t", 1),
)  # fmt: skip
CONTENT: dict[str, Any] = {
    "number": 1, "share": 0.5, "names": ["a", "b"], "inner": {"is": True, "key": {"text": "text"}},
    "inners": [{"is": False, "key": {"base64": "/w=="}}, {"is": False, "key": None}],
    "counts": {"x": 2}, "anything": [{"y": None}], "pair": ["t", 1],
}  # fmt: skip


def test_all_fields_and_those_without_a_value_which_are_left_out_where_they_may_be() -> None:
    assert to_json(FULL) == CONTENT
    assert from_json(Outer, json.loads(json.dumps(CONTENT))) == FULL
    least = Outer(number=1, share=None, counts={})
    assert to_json(least) == {"number": 1, "share": None, "names": [], "counts": {}, "pair": ["", 0]}
    assert from_json(Outer, {"number": 1, "share": None, "counts": {}}) == least
    assert from_json(Outer, {"number": 1, "share": 2, "counts": {}, "of a later version": 1}).share == 2


@pytest.mark.parametrize("key", [b"", b"a\x00", "\u202e".encode(), b"\xed\xa0\x80", bytes(range(256))])
def test_every_key_survives(key: bytes) -> None:
    content = json.loads(json.dumps(to_json(Inner(is_=True, key=key))))
    assert from_json(Inner, content).key == key


@pytest.mark.parametrize(("change", "message"), [
    ({"number": "1"}, "Outer.number is str"),
    ({"number": True}, "Outer.number is bool"),
    ({"share": True}, "Outer.share is bool"),
    ({"names": "ab"}, "Outer.names is str"),
    ({"names": [1]}, r"Outer.names\[0\] is int"),
    ({"pair": ["t", "1"]}, r"Outer.pair\[1\] is str"),
    ({"pair": ["t"]}, "Outer.pair has 1 entries instead of 2"),
    ({"inner": []}, "Outer.inner is list"),
    ({"inner": {"is": True}}, "Outer.inner has no key"),
    ({"inner": {"is": True, "key": {"hex": "00"}}}, "Outer.inner.key has neither text nor base64"),
    ({"counts": {"x": None}}, "Outer.counts.x is NoneType"),
    (None, "Outer is "),
    ([], "Outer is "),
    ("text", "Outer is "),
    (1, "Outer is "),
])  # fmt: skip
def test_other_content_is_rejected_with_its_place(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(Outer, {**CONTENT, **change} if isinstance(change, dict) else change)
