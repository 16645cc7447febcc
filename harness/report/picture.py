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


@contextmanager
def picture(height_in: float) -> Iterator[Picture]:
    """Give a figure to draw on; it is drawn when the block ends."""
    with mpl.rc_context(STYLE):
        drawing = Picture(Figure(figsize=(WIDTH_IN, height_in), layout="constrained"))
        FigureCanvasSVG(drawing.figure)
        yield drawing
        told = io.StringIO()
        drawing.figure.savefig(told, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    document = told.getvalue()
    drawing.svg = _BLACK.sub("currentColor", _SIZE.sub(r"\1", document[document.index("<svg") :], count=2))
