"""The schema of ``verdict.json``: it is one, published verdicts keep to it, and what does not is named."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from verdict_schema import schema, violations

from harness.json_codec import from_json, to_json
from harness.judge.finding import Finding, InternalRecord, ServedState
from harness.judge.guarantees import GuaranteeResult, Violation
from harness.judge.verdict import ScenarioVerdict, Verdict

PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("2*/*/*/*/verdict.json"))


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())


def test_published_verdicts_keep_to_it() -> None:
    assert len(PUBLISHED) > 50
    broken = {str(path): problems for path in PUBLISHED if (problems := violations(json.loads(path.read_text())))}
    assert broken == {}


@pytest.mark.parametrize(
    ("part", "changes", "named"),
    [
        (None, {"verdict": "fine"}, "$.verdict"),
        (None, {"schema": 2}, "$.schema"),
        (None, {"guarantee": []}, "$"),
        ("findings", {"effect": "big"}, "$.findings[0].effect"),
        ("findings", {"unnamed": "x"}, "$.findings[0]"),
        ("scenarios", {"reason": None}, "$.scenarios[0].reason"),
    ],
)
def test_what_does_not_keep_to_it_is_named(part: str | None, changes: dict[str, Any], named: str) -> None:
    verdict = json.loads(PUBLISHED[0].read_text())
    (verdict if part is None else verdict[part][0]).update(changes)
    (violation,) = violations(verdict)
    assert violation.startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("cls", "path"),
    [
        (Verdict, ()), (ScenarioVerdict, ("scenarios",)), (Finding, ("findings",)),
        (InternalRecord, ("findings", "record")), (ServedState, ("findings", "record", "states")),
        (GuaranteeResult, ("guarantees",)), (Violation, ("guarantees", "violations")),
    ],
)  # fmt: skip
def test_classes_have_the_fields_of_the_schema(cls: Any, path: tuple[str, ...]) -> None:
    described = schema()
    for name in path:
        described = described["properties"][name]
        described = described.get("items", described)
    assert {field.name.rstrip("_") for field in fields(cls)} == set(described["properties"])
    always = {field.name.rstrip("_") for field in fields(cls) if field.default is not None or field.default is MISSING}
    assert set(described["required"]) <= always, "a required member is never left out"


def test_published_verdicts_are_read_and_written_unchanged() -> None:
    for path in PUBLISHED:
        content = json.loads(path.read_text())
        for finding in content["findings"]:
            finding.setdefault("decided", True)
        assert to_json(from_json(Verdict, content)) == content, path
