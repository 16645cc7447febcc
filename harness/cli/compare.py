"""``harness compare``: the differences between two stored runs."""

from pathlib import Path

import cloup

from harness.cli.options.common import command, envelope
from harness.cli.options.parameters import RUN_FOLDER
from harness.console import JSON
from harness.errors import EXIT_CLEAN, UsageError
from harness.terminal import Table, stdout

OLD = "results/kafka-4.4/all/2026-11-22T17-49-05Z-e334"
NEW = "results/kafka-4.4/all/latest"


@command(f"harness compare {OLD} {NEW}", f"harness compare {OLD} {NEW} --format json")
@cloup.argument("before", type=RUN_FOLDER, metavar="BEFORE")
@cloup.argument("after", type=RUN_FOLDER, metavar="AFTER")
def compare(before: Path, after: Path, output: str) -> int:
    """Compare verdicts, findings and settings of two runs. The exit code is 0 in any case."""
    from harness.report.differences import difference  # noqa: PLC0415  (slow imports, only where needed)
    from harness.report.stored import stored_run  # noqa: PLC0415

    try:
        runs = [stored_run(path) for path in (before, after)]
    except ValueError as error:
        raise UsageError(str(error)) from error
    kinds = difference(*runs)
    if output == JSON:
        content = {
            kind: [
                {"name": c.name, "before": c.before or None, "after": c.after or None, "differs": c.is_change}
                for c in changes
            ]
            for kind, changes in kinds.items()
        }
        stdout().json(envelope(before=str(before), after=str(after), **content))
        return EXIT_CLEAN
    for kind, changes in kinds.items():
        rows = [(c.name, c.before or "none", c.after or "none", "differs" if c.is_change else "") for c in changes]
        if rows:
            stdout().table(Table((kind, "before", "after", ""), rows))
        else:
            stdout().line(f"{kind}: none differ" if kind == "settings" else f"{kind}: none in either run")
    return EXIT_CLEAN
