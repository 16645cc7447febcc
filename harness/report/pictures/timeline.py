"""A picture of one partition's run: operations of clients, absent brokers, and the offsets of each broker's replica."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from math import radians, sin
from typing import TYPE_CHECKING, Any, Final

from matplotlib.markers import TICKLEFT
from matplotlib.ticker import MaxNLocator

from harness.escape import visible
from harness.report.pictures.picture import LABEL_IN, WIDTH_IN, Margins, picture

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from harness.report.pictures.story import Away, Lane, Story, StoryEvent

LANE_IN, CLIENTS_IN, BETWEEN_ROWS_IN = 0.76, 0.79, 0.4
TITLE_IN, AXIS_IN = 0.25, 0.8
"""The space for a title, and for the time axis with its label and the legend at the bottom."""
ROW_SPACE: Final = 0.15
"""Share of a row that is left free below and above its lines."""
LINE_WIDTH: Final = 0.8
FRAME: Final[Any] = {"color": "black", "linewidth": LINE_WIDTH, "markeredgewidth": LINE_WIDTH, "clip_on": False}
TICKS: Final = MaxNLocator(3, steps=(1, 2, 5, 10), integer=True, min_n_ticks=1)
"""Finds round offsets for the ticks of a row."""
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


@dataclass(frozen=True)
class TimelineRow:
    """A row of the picture: its place on the y axis, in inches, and the values at its bottom and its top."""

    bottom_in: float
    height_in: float
    lowest: float
    highest: float

    @property
    def top_in(self) -> float:
        """Where it ends."""
        return self.bottom_in + self.height_in

    def at(self, values: Iterable[float]) -> list[float]:
        """Return where on the y axis the values are, in inches."""
        scale = self.height_in / (self.highest - self.lowest)
        return [self.bottom_in + (value - self.lowest) * scale for value in values]


def timeline(story: Story, topic: str, partition: int) -> str:
    """Return an SVG element without a fixed size, whose text and axes have the colour of the text around it.

    All rows are on one pair of matplotlib's axes: those take most of the time that it draws.
    """
    lanes = story.lanes.get((topic, partition), {})
    background = {offset for offset, what in story.seen.get((topic, partition), {}).items() if what.background}
    brokers = sorted(lanes)
    events = story.events.get((topic, partition), [])
    processes = list(dict.fromkeys(event.process for event in events))
    changed_s = _last_change_s(events, story.away, lanes.values(), background)
    ends_s = min(changed_s * (1 + TAIL), story.ends_s) or 1.0
    margins = _margins(events, ends_s)
    height_in = CLIENTS_IN + (BETWEEN_ROWS_IN + LANE_IN) * len(brokers)
    clients = TimelineRow(height_in - CLIENTS_IN, CLIENTS_IN, len(processes) - 0.5, -0.7)
    rows = [
        _row_of(lanes[broker], clients.bottom_in - (BETWEEN_ROWS_IN + LANE_IN) * number)
        for number, broker in enumerate(brokers, 1)
    ]
    with picture(height_in + margins.top_in + margins.bottom_in, margins) as drawing:
        axes = _axes(drawing.figure, ends_s, height_in)
        _draw_row(axes, clients, "clients", dict(enumerate(map(_client, processes))))
        _draw_events(axes, clients, processes, events)
        for row, broker in zip(rows, brokers, strict=True):
            _draw_row(axes, row, f"broker {broker}: {_last(lanes[broker])}", _names_of_offsets(row))
            _draw_lane(axes, row, lanes[broker], story.ends_s, background)
        for one in story.away:
            to_s = story.ends_s if one.to_s is None else one.to_s
            axes.axvspan(one.from_s, to_s, color=AWAY_COLOUR, alpha=0.15, linewidth=0)
        cut = f"; nothing changes from {changed_s:.1f} to {story.ends_s:.1f}" if story.ends_s > ends_s else ""
        axes.set_xlabel(f"seconds{cut}")
        handles, names = axes.get_legend_handles_labels()
        if legend := dict(zip(names, handles, strict=True)):
            drawing.figure.legend(legend.values(), legend, loc="lower center", ncols=len(legend), frameon=False)
    return drawing.svg


def _row_of(lane: Lane, bottom_in: float) -> TimelineRow:
    """Return the row of a replica, with space below and above all that is drawn."""
    offsets = [offset for field, *_ in LINES for offset in getattr(lane.offsets, field)]
    offsets += [offset for _, offset, _ in lane.removed]
    lowest, highest = min(offsets), max(offsets)
    space = ROW_SPACE * max(highest - lowest, 1)
    return TimelineRow(bottom_in, LANE_IN, lowest - space, highest + space)


def _axes(figure: Figure, ends_s: float, height_in: float) -> Axes:
    """Return axes whose only ticks are those of the time, with faint lines that show the same time in all rows."""
    axes = figure.add_subplot()
    axes.set_xlim(0, ends_s)
    axes.set_ylim(0, height_in)
    axes.spines[:].set_visible(False)
    axes.yaxis.set_visible(False)
    axes.grid(axis="x", color="black", alpha=0.12, linewidth=LINE_WIDTH)
    axes.set_axisbelow(True)
    return axes


def _draw_row(axes: Axes, row: TimelineRow, title: str, names: Mapping[float, str]) -> None:
    """Draw a row's left and lower line, its title, and the names of some values beside it.

    matplotlib's own ticks and titles take several times as long to draw.
    """
    _, ends_s = axes.get_xlim()
    axes.plot([0, 0, ends_s], [row.top_in, row.bottom_in, row.bottom_in], **FRAME)
    axes.annotate(title, (0, row.top_in), xytext=(0, 0.5), textcoords="offset fontsize")
    places_in = row.at(names)
    axes.plot([0] * len(places_in), places_in, marker=TICKLEFT, linestyle="none", **FRAME)
    for at_in, name in zip(places_in, names.values(), strict=True):
        axes.annotate(
            name, (0, at_in), xytext=(-0.8, 0), textcoords="offset fontsize", horizontalalignment="right",
            verticalalignment="center_baseline", parse_math=False,
        )  # fmt: skip


def _names_of_offsets(row: TimelineRow) -> dict[float, str]:
    offsets = TICKS.tick_values(max(row.lowest, 0), row.highest)
    return {offset: f"{offset:.0f}" for offset in offsets if row.lowest <= offset <= row.highest}


def _last_change_s(
    events: Sequence[StoryEvent], away: Sequence[Away], lanes: Collection[Lane], background: Collection[int]
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


def _margins(events: Sequence[StoryEvent], ends_s: float) -> Margins:
    """Return the space for the names of clients, offsets, titles and slanted labels, which may exceed the axes."""
    names_in = min(LABEL_IN * max([OFFSET_DIGITS, *(len(_client(event.process)) for event in events)]), WIDTH_IN / 3)
    across_in = WIDTH_IN - names_in - TICK_IN
    top_in, right_in = TITLE_IN, TICK_IN
    for first, text in _merged_events(events, ends_s * TOGETHER):
        text_in = TEXT_LETTER_IN * len(text)
        top_in = max(top_in, text_in * sin(radians(TEXT_DEGREES)))
        if share := first.at_s / (ends_s or 1.0):
            # The wider the margin, the further left the text begins, too.
            right_in = max(right_in, across_in - (across_in - text_in) / share)
    return Margins(names_in + TICK_IN, min(right_in, WIDTH_IN / 3), top_in, AXIS_IN)


def _draw_events(axes: Axes, row: TimelineRow, processes: Sequence[str], events: Sequence[StoryEvent]) -> None:
    at_in = dict(zip(processes, row.at(range(len(processes))), strict=True))
    axes.plot(
        [event.at_s for event in events], [at_in[event.process] for event in events], "|", color="black", markersize=10
    )
    _, ends_s = axes.get_xlim()
    for first, text in _merged_events(events, ends_s * TOGETHER):
        axes.annotate(
            visible(text), (first.at_s, at_in[first.process]), xytext=(3, 6), textcoords="offset points",
            rotation=TEXT_DEGREES, fontsize=7, parse_math=False,
        )  # fmt: skip


def _client(process: str) -> str:
    return visible(process.rpartition(".")[2])


def _merged_events(events: Sequence[StoryEvent], within_s: float) -> Iterator[tuple[StoryEvent, str]]:
    """Yield the first of each process's events in quick succession, and the texts of all of them."""
    for _, events_of_process in groupby(
        sorted(events, key=lambda event: event.process), key=lambda event: event.process
    ):
        group: list[StoryEvent] = []
        for event in events_of_process:
            if group and event.at_s - group[0].at_s > within_s:
                yield group[0], _text(group)
                group = []
            group.append(event)
        yield group[0], _text(group)


def _text(events: Sequence[StoryEvent]) -> str:
    """Return the texts of events of one client, which name a transaction with the first of its events."""
    texts: list[str] = []
    named: set[int | None] = {None}
    for event in events:
        is_named = event.names_transaction or event.transaction in named
        texts.append(event.what if is_named else f"{event.what} in transaction {event.transaction}")
        named.add(event.transaction)
    return ", ".join(texts)


def _last(lane: Lane) -> str:
    return ", ".join(f"{name} {getattr(lane.offsets, field)[-1]}" for field, name, *_ in LINES)


def _draw_lane(axes: Axes, row: TimelineRow, lane: Lane, ends_s: float, background: set[int]) -> None:
    for field, name, colour, width in LINES:
        places_in = row.at(getattr(lane.offsets, field))
        axes.step(
            [*lane.offsets.at_s, ends_s], [*places_in, *places_in[-1:]], where="post", color=colour, linewidth=width,
            label=name, solid_capstyle="butt",
        )  # fmt: skip
    removed = [(at_s, offset) for at_s, offset, _ in lane.removed if offset not in background]
    if removed:
        axes.plot(
            [at_s for at_s, _ in removed], row.at(offset for _, offset in removed), "x", color=REMOVED_COLOUR,
            label="removed from the payload", markersize=6, markeredgewidth=2,
        )  # fmt: skip
