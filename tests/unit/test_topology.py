"""Drawings of topologies: every broker and every link, and which way it works."""

from xml.etree import ElementTree as ET

from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.report.pictures.topology import ABSENT, topology

SVG = "{http://www.w3.org/2000/svg}"


def drawn(nemesis: str, **shape: int) -> tuple[ET.Element, int]:
    """Return the picture of a nemesis, and how many links it leaves."""
    test = plan_run(RunOptions("kafka-4.4", "stuck-lso", nemesis=nemesis, **shape))  # type: ignore[arg-type]
    assert test.nemesis.shape is not None
    links = test.nemesis.shape(test.placement)
    return ET.fromstring(topology(links, test.placement.brokers, test.placement.absent)), len(links)  # noqa: S314


def test_a_link_in_both_directions_is_one_line_and_one_in_one_direction_has_an_arrow() -> None:
    svg, links = drawn("ring", brokers=5, replication_factor=4, absent=2)
    assert links == 10
    assert len(svg.findall(f"{SVG}line")) == 5
    assert not [line for line in svg.findall(f"{SVG}line") if line.get("marker-end")]
    assert [text.text for text in svg.findall(f"{SVG}text")] == ["1", "2", "3", "4", "5"]
    svg, links = drawn("one-way")
    assert links == 4, "two that stay hear each other, and the absent one hears both"
    arrows = [line for line in svg.findall(f"{SVG}line") if line.get("marker-end")]
    assert (len(svg.findall(f"{SVG}line")), len(arrows)) == (3, 2)
    assert [circle.get("fill") == ABSENT for circle in svg.findall(f"{SVG}circle")] == [False, True, False]
