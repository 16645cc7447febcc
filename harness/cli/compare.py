"""``harness compare``: what differs between two stored runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloup

from harness.cli.options.common import command, envelope, format_option
from harness.cli.options.parameters import RUN_FOLDER
from harness.console import JSON
from harness.errors import EXIT_CLEAN, UsageError
from harness.terminal import Table, stdout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.report.differences import ComparedText

OLD = "results/kafka-4.4/all/2026-11-22T17-49-05Z-e334"
NEW = "results/kafka-4.4/all/latest"


@command(f"harness compare {OLD} {NEW}", f"harness compare {OLD} {NEW} --format json")
@cloup.argument("before", type=RUN_FOLDER)
@cloup.argument("after", type=RUN_FOLDER)
@format_option
def compare(before: Path, after: Path, output: str) -> int:
    """Compare two runs: verdicts, findings, and the settings that differ. The exit code is 0, whatever differs."""
    from harness.report.differences import difference  # noqa: PLC0415  (slow imports, only where needed)
    from harness.report.stored import stored_run  # noqa: PLC0415

    try:
        runs = [stored_run(path) for path in (before, after)]
    except ValueError as error:
        raise UsageError(str(error)) from error
    differences = difference(*runs)
    kinds = {"verdicts": differences.verdicts, "findings": differences.findings, "settings": differences.settings}
    if output == JSON:
        names = {"before": str(before), "after": str(after)}
        stdout().json(envelope(**names, **{kind: _as_json(changes) for kind, changes in kinds.items()}))
        return EXIT_CLEAN
    for kind, changes in kinds.items():
        rows = [
            (change.name, change.before or "none", change.after or "none", "differs" if change.is_change else "")
            for change in changes
        ]
        if rows:
            stdout().table(Table((kind, "before", "after", ""), rows))
        else:
            stdout().line(f"{kind}: none differ" if kind == "settings" else f"{kind}: none in either run")
    return EXIT_CLEAN


def _as_json(changes: Sequence[ComparedText]) -> list[dict[str, Any]]:
    return [
        {
            "name": change.name,
            "before": change.before or None,
            "after": change.after or None,
            "differs": change.is_change,
        }
        for change in changes
    ]
