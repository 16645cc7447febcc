"""A matplotlib figure of the pages' width and style, which becomes an SVG element of a page."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH_IN: Final = 9.0
LABEL_IN: Final = 0.075
"""The width of a letter of the style's size; the average is a bit less."""
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


@dataclass(frozen=True)
class Margins:
    """The space around a figure's axes, and between stacked axes, in inches."""

    left_in: float = 0.0
    right_in: float = 0.0
    top_in: float = 0.0
    bottom_in: float = 0.0
    between_in: float = 0.0


@contextmanager
def picture(height_in: float, margins: Margins | None = None, rows: int = 1) -> Iterator[Picture]:
    """Yield a figure to draw on; it is rendered when the block ends.

    With ``margins``, for so many ``rows`` of axes, they define the layout. Otherwise matplotlib computes the space for
    all labels by drawing them, which takes several times as long.
    """
    with _DRAWING, mpl.rc_context(STYLE):
        drawing = Picture(Figure(figsize=(WIDTH_IN, height_in), layout=None if margins else "constrained"))
        if margins:
            _set_margins(drawing.figure, margins, height_in, rows)
        FigureCanvasSVG(drawing.figure)
        yield drawing
        buffer = io.StringIO()
        drawing.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    document = buffer.getvalue()
    drawing.svg = _BLACK.sub("currentColor", _SIZE.sub(r"\1", document[document.index("<svg") :], count=2))


def _set_margins(figure: Figure, margins: Margins, height_in: float, rows: int) -> None:
    """Lay the figure out; matplotlib takes fractions, and the space between axes in heights of an axes."""
    between_in = margins.between_in * (rows - 1)
    axes_in = (height_in - margins.top_in - margins.bottom_in - between_in) / rows
    figure.subplots_adjust(
        left=margins.left_in / WIDTH_IN,
        right=1 - margins.right_in / WIDTH_IN,
        top=1 - margins.top_in / height_in,
        bottom=margins.bottom_in / height_in,
        hspace=margins.between_in / axes_in,
    )
