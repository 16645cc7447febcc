"""The transaction graph of a partition: the marker that ended each transaction, and a broker's wrong marker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import networkx as nx

from harness.report.picture import LABEL_IN, Margins, picture
from harness.report.story import MARKERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.report.logs import SideBySide
    from harness.report.story import Seen

Graph: TypeAlias = "nx.MultiDiGraph[str]"
OPEN: Final = "no marker: open"
ROW_IN, BESIDE_IN, BOX_IN = 0.55, 0.7, 0.15
TRUE, WRONG = "true", "wrong"
_MARKER_OF: Final = {"committed": "commit", "aborted": "abort"}
_COLOURS: Final = {TRUE: "#009e73", WRONG: "#d55e00"}
_DASHES: Final = {TRUE: "solid", WRONG: "dashed"}


def transactions(table: SideBySide, seen: Mapping[int, Seen]) -> Graph:
    """Return the graph: transactions with an edge to the marker that ended them, and one to a broker's wrong marker.

    The true marker is the first marker of the producer after the transaction's data that any replica ever showed; its
    edge has ``kind`` true. An edge with ``kind`` wrong leads to another marker; ``brokers`` lists the brokers that
    assign it.
    """
    graph: Graph = nx.MultiDiGraph()
    for row in table.rows:
        for broker, cell in row.cells.items():
            if row.background or cell.transaction is None or cell.producer_id is None:
                continue
            ended_at = min(
                (at for at, what in seen.items() if at > row.offset and _ends(what, cell.producer_id)), default=None
            )
            true = OPEN if ended_at is None else _name(seen[ended_at].kind, ended_at)
            graph.add_node(cell.transaction, side="transaction")
            graph.add_node(true, side="marker")
            if not graph.has_edge(cell.transaction, true, TRUE):
                graph.add_edge(cell.transaction, true, TRUE, kind=TRUE, brokers=[])
            if cell.outcome is None:
                continue
            taken = OPEN if cell.decided_by is None else _name(_MARKER_OF[cell.outcome], cell.decided_by)
            if taken != true:
                graph.add_node(taken, side="marker")
                if not graph.has_edge(cell.transaction, taken, WRONG):
                    graph.add_edge(cell.transaction, taken, WRONG, kind=WRONG, brokers=[])
                brokers = graph.edges[cell.transaction, taken, WRONG]["brokers"]
                if broker not in brokers:
                    brokers.append(broker)
    return graph


def draw_graph(graph: Graph) -> str:
    """Return an SVG element, "" where there is no transaction."""
    sides: dict[str, list[str]] = {"transaction": [], "marker": []}
    for node, data in graph.nodes(data=True):
        sides[data["side"]].append(node)
    if not sides["transaction"]:
        return ""
    rows = max(map(len, sides.values()))
    places = {
        node: (x, -(number + 0.5) * rows / len(nodes))
        for x, nodes in enumerate(sides.values())
        for number, node in enumerate(nodes)
    }
    with picture(BESIDE_IN + ROW_IN * rows, Margins(*(_room_in(nodes) for nodes in sides.values()))) as drawing:
        axes = drawing.figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(-rows, 0)
        for source, target, data in graph.edges(data=True):
            _draw_edge(axes, places[source], places[target], data)
        for node, (x, y) in places.items():
            box = {"boxstyle": "round", "facecolor": "none", "edgecolor": "black"}
            axes.text(x, y, node, ha="right" if x == 0 else "left", va="center", bbox=box, parse_math=False)
    return drawing.svg


def _room_in(names: Sequence[str]) -> float:
    return LABEL_IN * max(map(len, names)) + BOX_IN


def _draw_edge(axes: Any, start: tuple[float, float], end: tuple[float, float], data: Mapping[str, Any]) -> None:
    kind = data["kind"]
    arrow = {
        "arrowstyle": "->", "color": _COLOURS[kind], "linestyle": _DASHES[kind], "linewidth": 1.8, "shrinkA": 8,
        "shrinkB": 8,
    }  # fmt: skip
    axes.annotate("", end, start, arrowprops=arrow)
    label = "ended by" if kind == TRUE else f"taken so by broker {', '.join(map(str, data['brokers']))}"
    middle = (start[0] + (end[0] - start[0]) * 0.5, start[1] + (end[1] - start[1]) * 0.5)
    axes.annotate(
        label, middle, xytext=(0, 4), textcoords="offset points", color=_COLOURS[kind], ha="center", va="bottom",
        fontsize=8, parse_math=False,
    )  # fmt: skip


def _ends(what: Seen, producer_id: int) -> bool:
    return what.kind in MARKERS and what.producer_id == producer_id


def _name(kind: str, offset: int) -> str:
    return f"{kind.upper()} at {offset}"
