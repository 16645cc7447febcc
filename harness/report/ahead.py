"""The report of a run: what takes longest of it, and needs no verdict, is drawn while the checkers run."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from harness.run_folder.store import REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.report.page import Drawn
    from harness.run_folder.store import RunFolder

log = logging.getLogger("harness")


@contextmanager
def drawing_ahead(folder: RunFolder) -> Iterator[Callable[[], Drawn | None]]:
    """Draw in a thread while the block runs. Gives what waits for it, and returns None where it cannot be drawn.

    Then it is drawn with the page, and that says why it cannot be.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="draw") as pool:
        yield pool.submit(_draw, folder).result


def _draw(folder: RunFolder) -> Drawn | None:
    with suppress(Exception):
        from harness.report.page import draw  # noqa: PLC0415  (slow imports, and only this thread waits for them)

        return draw(folder)
    return None


def write_if_possible(folder: RunFolder, verdict: Mapping[str, Any], drawn: Drawn | None) -> None:
    """Write the page; where it cannot be drawn, the log says so: that takes nothing from the verdict."""
    try:
        from harness.report.page import write_report  # noqa: PLC0415  (slow imports, and nothing else needs them)

        write_report(folder, verdict, drawn)
    except Exception as error:  # noqa: BLE001
        log.warning("%s is not written: %s: %s", folder.path / REPORT, type(error).__name__, error)
