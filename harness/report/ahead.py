"""What takes longest of a report, and needs no verdict, is drawn while the checkers run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.report.page import Drawn
    from harness.run_folder.store import RunFolder


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
