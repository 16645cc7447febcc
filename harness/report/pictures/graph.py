"""The transaction graph of a partition: the marker that ended each transaction, and a broker's wrong marker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from checkers.replay.first_marker import first_marker
from harness.report.pictures.picture import LABEL_IN, Margins, picture
from harness.report.pictures.story import MARKERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.report.logs import SideBySide
    from harness.report.pictures.story import ObservedEntry

Edges: TypeAlias = "dict[tuple[str, str, str], list[int]]"
"""By transaction, marker and kind (`TRUE` or `WRONG`): the brokers that take a wrong marker, none for the true one."""
OPEN: Final = "no marker: open"
ROW_IN, EXTRA_IN, BOX_IN = 0.55, 0.7, 0.15
TRUE, WRONG = "true", "wrong"
_MARKER_OF: Final = {"committed": "commit", "aborted": "abort"}
_STYLES: Final = {TRUE: ("#009e73", "solid"), WRONG: ("#d55e00", "dashed")}


def transactions(table: SideBySide, entries: Mapping[int, ObservedEntry]) -> Edges:
    """Return the graph: transactions with an edge to the marker that ended them, and one to a broker's wrong marker.

    The true marker is the first one of the producer after the transaction's data that any replica ever showed. A wrong
    edge leads to another marker, with the brokers that assign it.
    """
    edges: Edges = {}
    markers = [(at, entry.producer_id) for at, entry in entries.items() if entry.kind in MARKERS]
    for row in table.rows:
        for broker, cell in row.cells.items():
            if row.background or cell.transaction is None or cell.producer_id is None:
                continue
            ended_at = first_marker(markers, cell.producer_id, row.offset)
            true = OPEN if ended_at is None else _name(entries[ended_at].kind, ended_at)
            edges.setdefault((cell.transaction, true, TRUE), [])
            if cell.outcome is not None:
                taken = OPEN if cell.decided_by is None else _name(_MARKER_OF[cell.outcome], cell.decided_by)
                brokers = edges.setdefault((cell.transaction, taken, WRONG), []) if taken != true else [broker]
                if broker not in brokers:
                    brokers.append(broker)
    return edges


def draw_graph(edges: Edges) -> str:
    """Return an SVG element, "" without transactions."""
    if not edges:
        return ""
    sides = [list(dict.fromkeys(edge[side] for edge in edges)) for side in (0, 1)]
    rows = max(map(len, sides))
    places = {
        node: (x, -(number + 0.5) * rows / len(nodes))
        for x, nodes in enumerate(sides)
        for number, node in enumerate(nodes)
    }
    margins = Margins(*(LABEL_IN * max(map(len, nodes)) + BOX_IN for nodes in sides))
    with picture(EXTRA_IN + ROW_IN * rows, margins) as drawing:
        axes = drawing.figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(-rows, 0)
        for (transaction, marker, kind), brokers in edges.items():
            start, end = places[transaction], places[marker]
            colour, dashes = _STYLES[kind]
            arrow = {"arrowstyle": "->", "color": colour, "linestyle": dashes, "linewidth": 1.8}
            axes.annotate("", end, start, arrowprops=arrow | {"shrinkA": 8, "shrinkB": 8})
            label = "ended by" if kind == TRUE else f"taken so by broker {', '.join(map(str, brokers))}"
            middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            axes.annotate(
                label, middle, xytext=(0, 4), textcoords="offset points", color=colour, ha="center", va="bottom",
                fontsize=8, parse_math=False,
            )  # fmt: skip
        for node, (x, y) in places.items():
            box = {"boxstyle": "round", "facecolor": "none", "edgecolor": "black"}
            axes.text(x, y, node, ha="right" if x == 0 else "left", va="center", bbox=box, parse_math=False)
    return drawing.svg


def _name(kind: str, offset: int) -> str:
    return f"{kind.upper()} at {offset}"
