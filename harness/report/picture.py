"""One way to draw: a figure of the pages' width and style, which ends as an SVG element of a page."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH_IN: Final = 9.0
LABEL_IN: Final = 0.075
"""The width of a letter of the style's size, on average a bit less."""
STYLE: Final[Any] = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "compaction-harness",
    "axes.spines.top": False, "axes.spines.right": False, "path.simplify": True,
}  # fmt: skip
_BLACK = re.compile(r"#000000|black")
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*"| height="[^"]*"(?=[^>]*viewBox)')


@dataclass
class Picture:
    """A figure, and once it is drawn an SVG element as wide as there is room, in which black is the text's colour."""

    figure: Figure
    svg: str = ""


@dataclass(frozen=True)
class Margins:
    """The room around a figure's axes, and between them where they stand on top of each other, in inches."""

    left_in: float = 0.0
    right_in: float = 0.0
    top_in: float = 0.0
    bottom_in: float = 0.0
    between_in: float = 0.0


@contextmanager
def picture(height_in: float, margins: Margins | None = None, rows: int = 1) -> Iterator[Picture]:
    """Give a figure to draw on; it is drawn when the block ends.

    With ``margins``, for so many ``rows`` of axes, it is laid out by them. Otherwise matplotlib finds out what room all
    that is drawn takes, by drawing it: that takes several times as long.
    """
    with mpl.rc_context(STYLE):
        drawing = Picture(Figure(figsize=(WIDTH_IN, height_in), layout=None if margins else "constrained"))
        if margins:
            _set_margins(drawing.figure, margins, height_in, rows)
        FigureCanvasSVG(drawing.figure)
        yield drawing
        told = io.StringIO()
        drawing.figure.savefig(told, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    document = told.getvalue()
    drawing.svg = _BLACK.sub("currentColor", _SIZE.sub(r"\1", document[document.index("<svg") :], count=2))


def _set_margins(figure: Figure, margins: Margins, height_in: float, rows: int) -> None:
    """Lay the figure out; matplotlib wants fractions, and the room between axes in heights of one."""
    between_in = margins.between_in * (rows - 1)
    axes_in = (height_in - margins.top_in - margins.bottom_in - between_in) / rows
    figure.subplots_adjust(
        left=margins.left_in / WIDTH_IN,
        right=1 - margins.right_in / WIDTH_IN,
        top=1 - margins.top_in / height_in,
        bottom=margins.bottom_in / height_in,
        hspace=margins.between_in / axes_in,
    )
