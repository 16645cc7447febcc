"""The schema of ``verdict.json``, against which every verdict of a test may be held."""

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator


def schema() -> dict[str, Any]:
    """Return the schema, as it is installed."""
    content: dict[str, Any] = json.loads((files("harness.judge") / "verdict.schema.json").read_text())
    return content


def violations(verdict: object) -> list[str]:
    """Return the violations of the schema: place and reason."""
    errors = Draft202012Validator(schema()).iter_errors(verdict)
    return [f"{error.json_path}: {error.message}" for error in errors]
