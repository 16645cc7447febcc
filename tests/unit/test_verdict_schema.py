"""The schema of ``verdict.json``: it is one, published verdicts keep to it, and what does not is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from verdict_schema import schema, violations

PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("2*/*/*/*/verdict.json"))


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())


def test_published_verdicts_keep_to_it() -> None:
    assert len(PUBLISHED) > 50
    broken = {str(path): found for path in PUBLISHED if (found := violations(json.loads(path.read_text())))}
    assert broken == {}


def change(verdict: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed: Any = json.loads(json.dumps(verdict))
    *parents, last = path.split(".")
    place = changed
    for name in parents:
        place = place[int(name)] if name.isdigit() else place[name]
    place[last] = value
    return dict(changed)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("verdict", "fine", "$.verdict"),
        ("schema", 2, "$.schema"),
        ("findings.0.effect", "big", "$.findings[0].effect"),
        ("findings.0.unnamed", "x", "$.findings[0]"),
        ("scenarios.0.reason", None, "$.scenarios[0].reason"),
        ("guarantee", [], "$"),
    ],
)
def test_what_does_not_keep_to_it_is_named(path: str, value: Any, named: str) -> None:
    verdict = json.loads(PUBLISHED[0].read_text())
    (violation,) = violations(change(verdict, path, value))
    assert violation.startswith(f"{named}: ")
