"""Draw who imports whom: the folders and modules of `harness/` and the other packages, in layers, as one SVG.

    python docs/pictures/imports.py docs/pictures/imports.svg
    PYTHONPATH=OTHER_CHECKOUT python docs/pictures/imports.py before.svg

Imports for type checkers count too, as in import-linter's contracts, whose library reads them here. An entry stands
above everything that it imports. A line is drawn only where no longer way through other entries says the same
(transitive reduction). Entries that import each other, over however many others, share a red frame: a folder circle.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final, TypeAlias

import grimp
import networkx as nx

PACKAGES: Final = ("harness", "checkers", "workloads", "nemesis", "compose")
BOX_WIDTH, BOX_HEIGHT, GAP, LAYER_GAP, MARGIN = 118, 26, 14, 44, 24
"""Pixels."""
BOXES_PER_ROW: Final = 9
STYLE: Final = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central; fill: #1b1f24 }
  .box { fill: #eef2f7; stroke: #57606a } .circle { fill: #fff0f0; stroke: #cf222e; stroke-width: 2 }
  .import { stroke: #8c959f; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .box { fill: #21262d; stroke: #8b949e } .circle { fill: #3a1518; stroke: #f85149 }
    .import { stroke: #6e7681 } }
"""


@dataclass(frozen=True)
class Box:
    """The left upper corner of an entry."""

    x: float
    y: float

    @property
    def middle(self) -> float:
        """The ends of lines."""
        return self.x + BOX_WIDTH / 2


Frame: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def entry_of(module: str) -> str:
    """Return the folder or module directly in `harness/`, or in `harness/protect/`, else the package."""
    first, *rest = module.split(".")
    depth = 1 if rest[:1] == ["protect"] and len(rest) > 1 else 0
    return rest[depth] if first == "harness" and rest else first


def imports() -> nx.DiGraph[str]:
    """Return the imports between entries; an entry's imports of itself are left out."""
    modules = grimp.build_graph(*PACKAGES)
    entries: nx.DiGraph[str] = nx.DiGraph()
    for module in sorted(modules.modules):
        if module == "harness":  # The package's own docstring: no entry.
            continue
        entries.add_node(entry_of(module))
        for imported in sorted(modules.find_modules_directly_imported_by(module)):
            if entry_of(imported) not in (entry_of(module), "harness"):
                entries.add_edge(entry_of(module), entry_of(imported))
    return entries


def layers(circles: nx.DiGraph[int]) -> list[list[int]]:
    """Return the nodes of a graph without circles, the upper layer first: each above everything that it imports."""
    return [sorted(layer) for layer in nx.topological_generations(circles.reverse())][::-1]


def draw(entries: nx.DiGraph[str]) -> str:
    """Return the SVG."""
    circles = nx.condensation(entries)
    placed = [_row(circles, layer) for layer in layers(circles)]
    width = max(row_width for _, row_width, _ in placed) + 2 * MARGIN
    boxes: dict[str, Box] = {}
    frames: list[str] = []
    y = float(MARGIN)
    for row, row_width, height in placed:
        x = (width - row_width) / 2
        for names, frame in row:
            for name, box in names.items():
                boxes[name] = Box(x + box.x, y + box.y)
            if len(names) > 1:
                left, top, right, bottom = frame
                frames.append(
                    f'<rect class="circle" x="{x + left - 7}" y="{y + top - 7}" '
                    f'width="{right - left + 14}" height="{bottom - top + 14}"/>'
                )
        y += height + LAYER_GAP
    heads = {circle: min(names, key=lambda name: (boxes[name].y, boxes[name].x)) for circle, names in _members(circles)}
    lines = [
        _line(boxes[heads[above]], boxes[heads[below]])
        for above, below in sorted(nx.transitive_reduction(circles).edges)
    ]
    labels = [
        f'<rect class="box" x="{box.x}" y="{box.y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"/>'
        f'<text x="{box.middle}" y="{box.y + BOX_HEIGHT / 2}">{escape(name)}</text>'
        for name, box in sorted(boxes.items())
    ]
    body = "\n".join([*frames, *lines, *labels])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y - LAYER_GAP + MARGIN:.0f}" role="img">\n'
        f"<title>Imports between the folders of the source</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _members(circles: nx.DiGraph[int]) -> list[tuple[int, list[str]]]:
    return [(circle, sorted(names)) for circle, names in circles.nodes(data="members")]


def _row(circles: nx.DiGraph[int], layer: list[int]) -> tuple[list[tuple[dict[str, Box], Frame]], float, float]:
    """Return a layer's groups of boxes with frames, from the layer's own corner; its width and height."""
    members = dict(_members(circles))
    row: list[tuple[dict[str, Box], Frame]] = []
    x = height = 0.0
    for circle in layer:
        boxes = {
            name: Box(x + index % BOXES_PER_ROW * (BOX_WIDTH + GAP), index // BOXES_PER_ROW * (BOX_HEIGHT + GAP))
            for index, name in enumerate(members[circle])
        }
        right = max(box.x for box in boxes.values()) + BOX_WIDTH
        bottom = max(box.y for box in boxes.values()) + BOX_HEIGHT
        row.append((boxes, (x, 0.0, right, bottom)))
        x, height = right + 2 * GAP, max(height, bottom)
    return row, x - 2 * GAP, height


def _line(above: Box, below: Box) -> str:
    start, end = above.y + BOX_HEIGHT, below.y
    bend = (start + end) / 2
    return (
        f'<path class="import" d="M{above.middle:.0f} {start:.0f} C{above.middle:.0f} {bend:.0f} '
        f'{below.middle:.0f} {bend:.0f} {below.middle:.0f} {end:.0f}"/>'
    )


def main(out: str) -> None:
    """Write the picture, and print how many imports there are and which circles."""
    entries = imports()
    Path(out).write_text(draw(entries))
    circles = [sorted(names) for names in nx.strongly_connected_components(entries) if len(names) > 1]
    sys.stdout.write(
        f"{len(entries)} entries, {entries.number_of_edges()} imports between them, circles: {circles or 'none'}\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
