"""Draws the slow parts of a run's report, which need no verdict, while the checkers run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from harness.run_folder.store import REPORT, RunFolder

if TYPE_CHECKING:
    from harness.judge.verdict import Verdict
    from harness.report.page import Drawn

log = logging.getLogger("harness")


@contextmanager
def drawing_ahead(folder: RunFolder) -> Iterator[Callable[[], Drawn | None]]:
    """Draw in a thread meanwhile. Yields a function that waits for the result, None if the page has to draw it."""

    def draw_parts() -> Drawn | None:
        with suppress(Exception):
            from harness.report.page import draw  # noqa: PLC0415  (slow imports, and only this thread waits for them)

            return draw(folder)
        return None

    with ThreadPoolExecutor(1, thread_name_prefix="draw") as pool:
        yield pool.submit(draw_parts).result


def write_if_possible(folder: RunFolder, verdict: Verdict, drawn: Drawn | None) -> None:
    """Write the page; an error is logged, and does not affect the verdict."""
    try:
        from harness.report.page import page  # noqa: PLC0415  (slow imports, only needed here)

        manifest = json.loads(folder.manifest_path.read_text())
        (folder.path / REPORT).write_text(page(folder, manifest, verdict, drawn))
    except Exception as error:  # noqa: BLE001
        log.warning("%s is not written: %s: %s", folder.path / REPORT, type(error).__name__, error)
