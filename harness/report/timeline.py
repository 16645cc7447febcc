"""A picture of one partition's run: operations of clients, absent brokers, and the offsets of each broker's replica."""

from __future__ import annotations

from itertools import groupby, product
from math import radians, sin
from typing import TYPE_CHECKING, Final

from harness.escape import visible
from harness.report.picture import LABEL_IN, WIDTH_IN, Margins, picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from harness.report.story import Event, Lane, Story

LANE_IN, CLIENTS_IN = 1.25, 1.3
TITLE_IN, AXIS_IN = 0.25, 0.8
"""The space for a title, and for the time axis with its label and the legend at the bottom."""
TICK_IN, OFFSET_DIGITS = 0.15, 7
TEXT_DEGREES, TEXT_LETTER_IN = 10, 0.055
TOGETHER = 0.06
"""Share of the whole width: a process's events within it share one label."""
AWAY_COLOUR: Final = "#cc79a7"
LINES: Final = (
    ("log_end", "log end", "-", "#56b4e9"),
    ("high_watermark", "high watermark", "--", "#009e73"),
    ("last_stable_offset", "last stable offset", ":", "#d55e00"),
)
"""Field, name, dash and colour; the dash alone distinguishes them, too."""
REMOVED_COLOUR: Final = "#e69f00"


def timeline(story: Story, topic: str, partition: int) -> str:
    """Return an SVG element without a fixed size, whose text and axes have the colour of the text around it."""
    lanes = story.lanes.get((topic, partition), {})
    background = {offset for offset, what in story.seen.get((topic, partition), {}).items() if what.background}
    brokers = sorted(lanes)
    events = story.events.get(topic, [])
    ratios = [CLIENTS_IN, *(LANE_IN for _ in brokers)]
    margins = _margins(events, story.ends_s)
    with picture(sum(ratios) + margins.top_in, margins, len(ratios)) as drawing:
        figure = drawing.figure
        rows: list[Axes] = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[
            :, 0
        ].tolist()
        _draw_clients(rows[0], events, story.ends_s)
        for axes, broker in zip(rows[1:], brokers, strict=True):
            _draw_lane(axes, broker, lanes[broker], story.ends_s, background)
        for axes, one in product(rows, story.away):
            to_s = story.ends_s if one.to_s is None else one.to_s
            axes.axvspan(one.from_s, to_s, color=AWAY_COLOUR, alpha=0.15, linewidth=0)
        rows[0].set_xlim(0, story.ends_s or 1.0)
        rows[-1].set_xlabel("seconds")
        handles, names = _legend(rows[1:])
        if handles:
            figure.legend(handles, names, loc="lower center", ncols=len(names), frameon=False)
    return drawing.svg


def _margins(events: Sequence[Event], ends_s: float) -> Margins:
    """Return the space for the names of clients, offsets, titles and slanted labels, which may exceed the axes."""
    names_in = min(LABEL_IN * max([OFFSET_DIGITS, *(len(_client(event.process)) for event in events)]), WIDTH_IN / 3)
    across_in = WIDTH_IN - names_in - TICK_IN
    top_in, right_in = TITLE_IN, TICK_IN
    for first, text in _merged_events(events, ends_s * TOGETHER):
        text_in = TEXT_LETTER_IN * len(text)
        top_in = max(top_in, text_in * sin(radians(TEXT_DEGREES)))
        right_in = max(right_in, text_in - across_in * (1 - first.at_s / (ends_s or 1.0)))
    return Margins(names_in + TICK_IN, min(right_in, WIDTH_IN / 3), top_in, AXIS_IN, TITLE_IN + TICK_IN)


def _draw_clients(axes: Axes, events: Sequence[Event], ends_s: float) -> None:
    processes = list(dict.fromkeys(event.process for event in events))
    axes.set_yticks(range(len(processes)), [_client(name) for name in processes], parse_math=False)
    axes.set_ylim(len(processes) - 0.5, -0.7)
    axes.set_title("clients", loc="left", fontsize=9)
    for event in events:
        axes.plot(event.at_s, processes.index(event.process), marker="|", color="black", markersize=10)
    for first, text in _merged_events(events, ends_s * TOGETHER):
        axes.annotate(
            visible(text), (first.at_s, processes.index(first.process)), xytext=(3, 6), textcoords="offset points",
            rotation=TEXT_DEGREES, fontsize=7, parse_math=False,
        )  # fmt: skip


def _client(process: str) -> str:
    return visible(process.rpartition(".")[2])


def _merged_events(events: Sequence[Event], within_s: float) -> Iterator[tuple[Event, str]]:
    """Yield the first of each process's events in quick succession, and the texts of all of them."""
    for _, events_of_process in groupby(
        sorted(events, key=lambda event: event.process), key=lambda event: event.process
    ):
        group: list[Event] = []
        for event in events_of_process:
            if group and event.at_s - group[0].at_s > within_s:
                yield group[0], ", ".join(one.what for one in group)
                group = []
            group.append(event)
        yield group[0], ", ".join(one.what for one in group)


def _draw_lane(axes: Axes, broker: int, lane: Lane, ends_s: float, background: set[int]) -> None:
    axes.set_title(f"broker {broker}", loc="left", fontsize=9)
    for field, name, dash, colour in LINES:
        values = getattr(lane, field)
        axes.step([*lane.at_s, ends_s], [*values, *values[-1:]], dash, where="post", color=colour, label=name)
    removed = [(at_s, offset, kind) for at_s, offset, kind in lane.removed if offset not in background]
    if removed:
        axes.plot(
            [at_s for at_s, *_ in removed], [offset for _, offset, _ in removed], "x", color=REMOVED_COLOUR,
            label="removed from the payload", markersize=6, markeredgewidth=2,
        )  # fmt: skip
    axes.margins(y=0.15)


def _legend(lanes: Sequence[Axes]) -> tuple[list[Artist], list[str]]:
    artists: Mapping[str, Artist] = {
        name: handle for axes in lanes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    return list(artists.values()), list(artists)
