"""``harness doctor``: finds missing programs and settings of this machine, and their remedies."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from harness.cli.options.common import Group, command, envelope
from harness.cli.options.parameters import TARGET
from harness.console import JSON, ConsoleProgress
from harness.errors import EXIT_CLEAN, EXIT_USAGE
from harness.terminal import stdout, styled

if TYPE_CHECKING:
    from harness.doctor import Check

CACHE = Group("Cache")
STYLES: Final = {"missing": "red", "ok": "green", "optional": "yellow"}
"""Colours of the states of checks, in the order in which they are shown."""
INDENT: Final = " " * 10
WIDTH: Final = 100 - len(INDENT)


@command("harness doctor", "harness doctor --fetch kafka-3.9 --fetch kafka-4.4")
@CACHE.option("--fetch", TARGET, "Download the jars of this target; repeatable.", name="targets", multiple=True)
def doctor(targets: tuple[str, ...], output: str) -> int:
    """Check what this machine is missing, and how to get it.

    Exit codes: 0 nothing that every run needs is missing, 254 something is, 255 failed.
    """
    from harness.doctor import diagnose  # noqa: PLC0415

    if targets:
        _fetch(targets)
    checks = diagnose()
    if output == JSON:
        stdout().json(envelope(checks=[{**vars(check), "status": check.status} for check in checks]))
    else:
        _show(checks)
    return EXIT_CLEAN if all(check.ok for check in checks) else EXIT_USAGE


def _fetch(targets: Sequence[str]) -> None:
    from harness.host.java import find_java  # noqa: PLC0415
    from harness.judge.sessions import CHECKS  # noqa: PLC0415
    from harness.spark import background  # noqa: PLC0415
    from harness.targets import find_target  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    progress = ConsoleProgress()
    for target in [find_target(name) for name in targets]:
        jars = jars_for(target, on_progress=progress.jars, verify=True)
        progress.stage(f"{target.name} ({target.version}): {len(jars.digests)} jars in {jars.directory}")
    archive = background.make_archive(find_java(), CHECKS, wait_s=background.LIMIT_S)
    progress.stage(f"Spark's classes: {archive or 'another process still makes their archive'}")


def _show(checks: Sequence[Check]) -> None:
    out, counts = stdout(), Counter(check.status for check in checks)
    for status, style in STYLES.items():
        for check in checks:
            if check.status == status:
                first, *more = textwrap.wrap(f"{check.name}: {check.found}", WIDTH)
                out.line(styled(f"{status:8}", style), f"  {first}")
                for line in (*more, *textwrap.wrap(check.remedy, WIDTH, initial_indent="-> ", subsequent_indent="   ")):
                    out.line(INDENT, line)
    parts = ", ".join(f"{counts[status]} {status}" for status in STYLES if counts[status])
    out.line(f"{parts}: ", "install what is missing" if counts["missing"] else "ready for `harness run`")
