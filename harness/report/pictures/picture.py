"""Matplotlib figures of the pages' width and style, which become SVG elements of a page; rows of axes over time."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from harness.escape import visible

WIDTH_IN: Final = 9.0
LABEL_IN: Final = 0.075
"""The width of a letter of the style's size; the average is a bit less."""
ROW_IN, BETWEEN_ROWS_IN, TITLE_IN, AXIS_IN = 0.8, 0.38, 0.3, 0.85
"""Heights of rows over time: a row, the space between rows, a title, and the time axis with the legend below."""
STYLE: Final[Any] = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "compaction-harness",
    "axes.spines.top": False, "axes.spines.right": False, "path.simplify": True,
    # Otherwise matplotlib measures all ticks and labels, in case one is above the title.
    "axes.titley": 1.0,
}  # fmt: skip
_DRAWING = Lock()
"""Settings of matplotlib belong to the process, and `harness serve` answers requests in threads."""
_BLACK = re.compile(r"#000000|black")
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*"| height="[^"]*"(?=[^>]*viewBox)')


@dataclass
class Picture:
    """A figure, and after drawing an SVG element as wide as its container, in which black is the text's colour."""

    figure: Figure
    svg: str = ""


@contextmanager
def picture(height_in: float, margins_in: Sequence[float] = (), between_rows: float = 0.0) -> Iterator[Picture]:
    """Yield a figure to draw on; it is rendered when the block ends.

    ``margins_in`` (left, right, top, bottom) define the layout, and ``between_rows`` the space between stacked axes, in
    heights of an axes. Without margins, matplotlib computes the space for all labels by drawing them, which takes
    several times as long.
    """
    with _DRAWING, mpl.rc_context(STYLE):
        drawing = Picture(Figure(figsize=(WIDTH_IN, height_in), layout=None if margins_in else "constrained"))
        if margins_in:
            left, right, top, bottom = margins_in
            drawing.figure.subplots_adjust(
                left=left / WIDTH_IN,
                right=1 - right / WIDTH_IN,
                top=1 - top / height_in,
                bottom=bottom / height_in,
                hspace=between_rows,
            )
        FigureCanvasSVG(drawing.figure)
        yield drawing
        buffer = io.StringIO()
        drawing.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    document = buffer.getvalue()
    drawing.svg = _BLACK.sub("currentColor", _SIZE.sub(r"\1", document[document.index("<svg") :], count=2))


@contextmanager
def rows_over_time(
    titles: Sequence[str],
    ends_s: float,
    sides_in: tuple[float, float],
    time_label: str = "seconds",
    first_row_in: float = ROW_IN,
) -> Iterator[tuple[Picture, Sequence[Axes]]]:
    """Yield a picture and a row for each title, from 0 to ``ends_s``, with one legend. ``sides_in``: margins."""
    heights_in = [first_row_in, *[ROW_IN] * (len(titles) - 1)]
    height_in = TITLE_IN + AXIS_IN + sum(heights_in) + BETWEEN_ROWS_IN * (len(titles) - 1)
    between = BETWEEN_ROWS_IN * len(titles) / sum(heights_in)
    with picture(height_in, (*sides_in, TITLE_IN, AXIS_IN), between) as drawing:
        grid = drawing.figure.subplots(len(titles), 1, sharex=True, squeeze=False, height_ratios=heights_in)
        rows: list[Axes] = grid[:, 0].tolist()
        for row, title in zip(rows, titles, strict=True):
            # matplotlib would draw the ticks of all axes again to find a place for its own titles.
            row.text(0, 1.05, visible(title), transform=row.transAxes, fontsize=9, parse_math=False)
        rows[0].set_xlim(0, ends_s or 1.0)
        for row in rows[:-1]:
            row.xaxis.set_visible(False)
        rows[-1].set_xlabel(time_label)
        yield drawing, rows
        handles = {name: h for row in rows for h, name in zip(*row.get_legend_handles_labels(), strict=True)}
        if handles:
            drawing.figure.legend(handles.values(), handles, loc="lower center", ncols=len(handles), frameon=False)


def annotate(row: Axes, text: str, at: tuple[float, float], offset_pt: tuple[float, float], **style: Any) -> None:
    """Write a text next to a point."""
    style = {"fontsize": 8, "va": "center", **style}
    row.annotate(visible(text), at, xytext=offset_pt, textcoords="offset points", parse_math=False, **style)


def draw_steps(row: Axes, times: Sequence[float], values: Sequence[float], ends_s: float, **style: Any) -> None:
    """Draw a line that keeps each value until the next time, and the last one until ``ends_s``."""
    row.step([*times, max(ends_s, times[-1])], [*values, values[-1]], where="post", **style)


def shade(rows: Iterable[Axes], from_s: float, to_s: float, colour: str) -> None:
    """Shade the same time in all rows."""
    for row in rows:
        row.axvspan(from_s, to_s, color=colour, alpha=0.14, linewidth=0)
