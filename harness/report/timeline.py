"""A picture of one partition's run: operations of clients, absent brokers, and the offsets of each broker's replica."""

from __future__ import annotations

from itertools import groupby, pairwise, product
from math import radians, sin
from typing import TYPE_CHECKING, Final

from harness.escape import visible
from harness.report.picture import LABEL_IN, WIDTH_IN, Margins, picture

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from harness.report.story import Away, Event, Lane, Story

LANE_IN, CLIENTS_IN = 1.25, 1.3
TITLE_IN, AXIS_IN = 0.25, 0.8
"""The space for a title, and for the time axis with its label and the legend at the bottom."""
TICK_IN, OFFSET_DIGITS = 0.15, 7
TEXT_DEGREES, TEXT_LETTER_IN = 10, 0.055
TOGETHER = 0.06
"""Share of the whole width: a process's events within it share one label."""
AWAY_COLOUR: Final = "#cc79a7"
LINES: Final = (
    ("log_end", "log end", "#1f5fa8", 7.0),
    ("high_watermark", "high watermark", "#7fd1ae", 4.0),
    ("last_stable_offset", "last stable offset", "#b33c00", 1.6),
)
"""Field, name, colour and width: a line is drawn upon a wider one, so that all are seen where they coincide."""
TAIL: Final = 0.06
"""Share of the time axis that is shown after the last change."""
REMOVED_COLOUR: Final = "#e69f00"


def timeline(story: Story, topic: str, partition: int) -> str:
    """Return an SVG element without a fixed size, whose text and axes have the colour of the text around it."""
    lanes = story.lanes.get((topic, partition), {})
    background = {offset for offset, what in story.seen.get((topic, partition), {}).items() if what.background}
    brokers = sorted(lanes)
    events = story.events.get(topic, [])
    changed_s = _last_change_s(events, story.away, lanes.values(), background)
    ends_s = min(changed_s * (1 + TAIL), story.ends_s) or 1.0
    ratios = [CLIENTS_IN, *(LANE_IN for _ in brokers)]
    margins = _margins(events, ends_s)
    with picture(sum(ratios) + margins.top_in, margins, len(ratios)) as drawing:
        figure = drawing.figure
        rows: list[Axes] = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[
            :, 0
        ].tolist()
        _draw_clients(rows[0], events, ends_s)
        for axes, broker in zip(rows[1:], brokers, strict=True):
            _draw_lane(axes, broker, lanes[broker], story.ends_s, background)
        for axes, one in product(rows, story.away):
            to_s = story.ends_s if one.to_s is None else one.to_s
            axes.axvspan(one.from_s, to_s, color=AWAY_COLOUR, alpha=0.15, linewidth=0)
        rows[0].set_xlim(0, ends_s)
        cut = f"; nothing changes from {changed_s:.1f} to {story.ends_s:.1f}" if story.ends_s > ends_s else ""
        rows[-1].set_xlabel(f"seconds{cut}")
        handles, names = _legend(rows[1:])
        if handles:
            figure.legend(handles, names, loc="lower center", ncols=len(names), frameon=False)
    return drawing.svg


def _last_change_s(
    events: Sequence[Event], away: Sequence[Away], lanes: Collection[Lane], background: Collection[int]
) -> float:
    """Return the time after which the picture shows only straight lines."""
    changes = [event.at_s for event in events]
    changes += [one.from_s if one.to_s is None else one.to_s for one in away]
    for lane in lanes:
        changes += [at_s for at_s, offset, _ in lane.removed if offset not in background]
        seen = lane.offsets
        states = zip(seen.log_end, seen.high_watermark, seen.last_stable_offset, strict=True)
        changes += [
            at_s for at_s, (one, next_one) in zip(seen.at_s[1:], pairwise(states), strict=True) if one != next_one
        ]
    return max(changes, default=0.0)


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
    last = ", ".join(f"{name} {getattr(lane.offsets, field)[-1]}" for field, name, *_ in LINES)
    axes.set_title(f"broker {broker}: {last}", loc="left", fontsize=9)
    for field, name, colour, width in LINES:
        values = getattr(lane.offsets, field)
        axes.step(
            [*lane.offsets.at_s, ends_s], [*values, *values[-1:]], where="post", color=colour, linewidth=width,
            label=name, solid_capstyle="butt",
        )  # fmt: skip
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
