"""The links between brokers while a nemesis partitions them, as an SVG document."""

import math
from collections.abc import Collection, Sequence

from harness.report.rendering import render

SIZE, RADIUS, NODE = 320, 110, 24
ABSENT = "#c0392b"


def topology(links: Collection[tuple[int, int]], brokers: Sequence[int], absent: Collection[int]) -> str:
    """Draw brokers in a circle, and a line for each link (from, to); an arrow, if it works in that direction only."""
    angles = {broker: 2 * math.pi * index / len(brokers) - math.pi / 2 for index, broker in enumerate(brokers)}
    places = {b: (SIZE / 2 + RADIUS * math.cos(a), SIZE / 2 + RADIUS * math.sin(a)) for b, a in angles.items()}
    lines = []
    for (source, receiver), is_mutual in {link: link[::-1] in links for link in sorted(links)}.items():
        if not is_mutual or source < receiver:
            # A line ends where it meets the circles around its brokers.
            (x1, y1), (x2, y2) = places[source], places[receiver]
            dx, dy = (NODE * length / math.dist((x1, y1), (x2, y2)) for length in (x2 - x1, y2 - y1))
            lines.append(((x1 + dx, y1 + dy), (x2 - dx, y2 - dy), is_mutual))
    values = {"places": places, "absent": absent, "absent_colour": ABSENT, "size": SIZE, "radius": NODE}
    return render("topology.svg", lines=lines, **values)
