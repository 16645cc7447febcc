"""The links between brokers while a nemesis partitions them, as an SVG document."""

import math
from collections.abc import Collection, Sequence
from xml.etree import ElementTree as ET

from harness.escape import visible

SIZE, RADIUS, NODE = 320, 110, 24
ABSENT, PRESENT, LINK = "#c0392b", "#2c3e50", "#7f8c8d"


def topology(links: Collection[tuple[int, int]], brokers: Sequence[int], absent: Collection[int]) -> str:
    """Draw brokers in a circle, the absent brokers in red, and a line for each working link.

    ``links`` are (from, to); a link that works in one direction only has an arrow.
    """
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {SIZE} {SIZE}", width=str(SIZE))
    svg.set("font-family", "sans-serif")
    marker = ET.SubElement(ET.SubElement(svg, "defs"), "marker", id="arrow", viewBox="0 0 10 10")
    marker.attrib |= {"refX": "10", "refY": "5", "markerWidth": "8", "markerHeight": "8", "orient": "auto"}
    ET.SubElement(marker, "path", d="M0 0 L10 5 L0 10 z", fill=LINK)
    angles = {broker: 2 * math.pi * index / len(brokers) - math.pi / 2 for index, broker in enumerate(brokers)}
    places = {b: (SIZE / 2 + RADIUS * math.cos(a), SIZE / 2 + RADIUS * math.sin(a)) for b, a in angles.items()}
    for source, receiver in sorted(links):
        is_mutual = (receiver, source) in links
        if is_mutual and source > receiver:
            continue
        start, end = places[source], places[receiver]
        # A line ends where it meets the circles around its brokers.
        dx, dy = (NODE * (e - s) / math.dist(start, end) for s, e in zip(start, end, strict=True))
        ends = {"x1": start[0] + dx, "y1": start[1] + dy, "x2": end[0] - dx, "y2": end[1] - dy}
        line = ET.SubElement(svg, "line", {name: f"{value:.1f}" for name, value in ends.items()}, stroke=LINK)
        line.set("stroke-width", "2")
        if not is_mutual:
            line.set("marker-end", "url(#arrow)")
    for broker, (x, y) in places.items():
        colour = ABSENT if broker in absent else PRESENT
        ET.SubElement(svg, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=str(NODE), fill=colour)
        label = ET.SubElement(svg, "text", {"text-anchor": "middle"}, x=f"{x:.1f}", y=f"{y + 6:.1f}", fill="white")
        label.text = visible(str(broker))
    return ET.tostring(svg, encoding="unicode")
