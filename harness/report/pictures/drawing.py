"""Pictures in a run folder, as SVG: text that any browser shows and a report can contain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from harness.escape import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SIZE, RADIUS, NODE = 320, 110, 24
AWAY, THERE, LINK = "#c0392b", "#2c3e50", "#7f8c8d"


def topology(links: Collection[tuple[int, int]], brokers: Sequence[int], absent: Collection[int]) -> str:
    """Draw the links between brokers: brokers in a circle, the absent ones in red, a line for each working link.

    ``links`` are (from, to); a link that works in one direction only has an arrow. Returns an SVG document.
    """
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {SIZE} {SIZE}", width=str(SIZE))
    svg.set("font-family", "sans-serif")
    marker = ET.SubElement(ET.SubElement(svg, "defs"), "marker", id="arrow", viewBox="0 0 10 10")
    marker.attrib |= {"refX": "10", "refY": "5", "markerWidth": "8", "markerHeight": "8", "orient": "auto"}
    ET.SubElement(marker, "path", d="M0 0 L10 5 L0 10 z", fill=LINK)
    places = {broker: _place(index, len(brokers)) for index, broker in enumerate(brokers)}
    for source, receiver in sorted(links):
        is_mutual = (receiver, source) in links
        if is_mutual and source > receiver:
            continue
        (x1, y1), (x2, y2) = _trimmed(places[source], places[receiver])
        ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        line = ET.SubElement(svg, "line", {name: f"{value:.1f}" for name, value in ends.items()}, stroke=LINK)
        line.set("stroke-width", "2")
        if not is_mutual:
            line.set("marker-end", "url(#arrow)")
    for broker, (x, y) in places.items():
        colour = AWAY if broker in absent else THERE
        ET.SubElement(svg, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=str(NODE), fill=colour)
        label = ET.SubElement(svg, "text", {"text-anchor": "middle"}, x=f"{x:.1f}", y=f"{y + 6:.1f}", fill="white")
        label.text = visible(str(broker))
    return ET.tostring(svg, encoding="unicode")


def _place(index: int, count: int) -> tuple[float, float]:
    angle = 2 * math.pi * index / count - math.pi / 2
    return SIZE / 2 + RADIUS * math.cos(angle), SIZE / 2 + RADIUS * math.sin(angle)


def _trimmed(start: tuple[float, float], end: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return a line's ends where they meet the circles around them."""
    length = math.dist(start, end)
    dx, dy = (NODE * (e - s) / length for s, e in zip(start, end, strict=True))
    return (start[0] + dx, start[1] + dy), (end[0] - dx, end[1] - dy)
