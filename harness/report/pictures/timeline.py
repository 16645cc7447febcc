"""Pictures of one partition's run: its timeline, and the graph of its transactions with the markers that end them.

The timeline shows operations of clients, absent brokers, and the offsets of each broker's replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import radians, sin
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from matplotlib.ticker import MaxNLocator

from harness.broker_files.segments.records import first_marker
from harness.escape import visible
from harness.report.pictures.picture import LABEL_IN, TITLE_IN, WIDTH_IN, draw_steps, picture, rows_over_time, shade
from harness.report.pictures.story import MARKERS, ObservedEntry, Outage, ReplicaTimeline, Story, StoryEvent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from harness.report.logs import SideBySide


TICK_IN, OFFSET_DIGITS = 0.15, 7
TEXT_DEGREES, TEXT_LETTER_IN = 10, 0.055
TOGETHER = 0.06
"""Share of the whole width: a process's events within it share one label."""
OUTAGE_COLOUR: Final = "#cc79a7"
LINES: Final = (
    ("log_end", "log end", "#1f5fa8", 7.0),
    ("high_watermark", "high watermark", "#7fd1ae", 4.0),
    ("last_stable_offset", "last stable offset", "#b33c00", 1.6),
)
"""Field, name, colour and width: a line is drawn upon a wider line, so that coinciding lines are all visible."""
TAIL: Final = 0.06
"""Share of the time axis that is shown after the last change."""
REMOVED_COLOUR: Final = "#e69f00"
Edges: TypeAlias = "dict[tuple[str, str, str], list[int]]"
"""By transaction, marker and kind (`TRUE` or `WRONG`): the brokers that take a wrong marker, none for the true one."""
OPEN: Final = "no marker: open"
ROW_IN, EXTRA_IN, BOX_IN = 0.55, 0.7, 0.15
TRUE, WRONG = "true", "wrong"
_MARKER_OF: Final = {"committed": "commit", "aborted": "abort"}
_STYLES: Final = {TRUE: ("#009e73", "solid"), WRONG: ("#d55e00", "dashed")}


def timeline(story: Story, topic: str, partition: int) -> str:
    """Return an SVG element without a fixed size, whose text and axes have the colour of the text around it."""
    place = topic, partition
    replicas = dict(sorted(story.replicas.get(place, {}).items()))
    background = {offset for offset, entry in story.entries.get(place, {}).items() if entry.background}
    events = story.events.get(place, [])
    changed_s = _last_change_s(events, story.outages, replicas.values(), background)
    ends_s = min(changed_s * (1 + TAIL), story.ends_s) or 1.0
    titles = ["clients", *(f"broker {broker}: {_last_offsets(replica)}" for broker, replica in replicas.items())]
    unshown = f"; nothing changes from {changed_s:.1f} to {story.ends_s:.1f}" if story.ends_s > ends_s else ""
    left_in, right_in, top_in = _margins(events, ends_s)
    with rows_over_time(titles, ends_s, (left_in, right_in), top_in, f"seconds{unshown}") as (drawing, rows):
        _draw_events(rows[0], events, ends_s)
        for row, replica in zip(rows[1:], replicas.values(), strict=True):
            _draw_replica(row, replica, story.ends_s, background)
        for outage in story.outages:
            shade(rows, outage.from_s, story.ends_s if outage.to_s is None else outage.to_s, OUTAGE_COLOUR)
    return drawing.svg


def _last_change_s(
    events: Sequence[StoryEvent],
    outages: Sequence[Outage],
    replicas: Collection[ReplicaTimeline],
    background: Collection[int],
) -> float:
    """Return the time after which the picture shows only straight lines."""
    changes = [event.at_s for event in events]
    changes += [outage.from_s if outage.to_s is None else outage.to_s for outage in outages]
    for replica in replicas:
        changes += [at_s for at_s, offset, _ in replica.removed if offset not in background]
        states = zip(replica.log_end, replica.high_watermark, replica.last_stable_offset, strict=True)
        steps = zip(replica.at_s[1:], pairwise(states), strict=True)
        changes += [at_s for at_s, (before, after) in steps if before != after]
    return max(changes, default=0.0)


def _margins(events: Sequence[StoryEvent], ends_s: float) -> tuple[float, float, float]:
    """Return the space left, right and above for names, offsets and slanted labels, which may exceed the axes."""
    names_in = min(LABEL_IN * max([OFFSET_DIGITS, *(len(_client(event.process)) for event in events)]), WIDTH_IN / 3)
    across_in = WIDTH_IN - names_in - TICK_IN
    top_in, right_in = TITLE_IN, TICK_IN
    for first, text in _merged_events(events, ends_s * TOGETHER):
        text_in = TEXT_LETTER_IN * len(text)
        top_in = max(top_in, text_in * sin(radians(TEXT_DEGREES)))
        if share := first.at_s / (ends_s or 1.0):
            # The wider the margin, the further left the text begins, too.
            right_in = max(right_in, across_in - (across_in - text_in) / share)
    return names_in + TICK_IN, min(right_in, WIDTH_IN / 3), top_in


def _draw_events(row: Axes, events: Sequence[StoryEvent], ends_s: float) -> None:
    places = {process: index for index, process in enumerate(dict.fromkeys(event.process for event in events))}
    row.set_yticks(range(len(places)), list(map(_client, places)), parse_math=False)
    row.set_ylim(len(places) - 0.5, -0.9)
    row.plot([event.at_s for event in events], [places[event.process] for event in events], "k|", markersize=10)
    for first, text in _merged_events(events, ends_s * TOGETHER):
        row.annotate(
            visible(text), (first.at_s, places[first.process]), xytext=(3, 6), textcoords="offset points",
            rotation=TEXT_DEGREES, fontsize=7, parse_math=False,
        )  # fmt: skip


def _draw_replica(row: Axes, replica: ReplicaTimeline, ends_s: float, background: Collection[int]) -> None:
    row.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    for field, name, colour, width in LINES:
        style = {"color": colour, "linewidth": width, "label": name, "solid_capstyle": "butt"}
        draw_steps(row, replica.at_s, getattr(replica, field), ends_s, **style)
    if removed := [(at_s, offset) for at_s, offset, _ in replica.removed if offset not in background]:
        times, offsets = zip(*removed, strict=True)
        name = "removed from the payload"
        row.plot(times, offsets, "x", color=REMOVED_COLOUR, label=name, markersize=6, markeredgewidth=2)


def _client(process: str) -> str:
    return visible(process.rpartition(".")[2])


def _merged_events(events: Sequence[StoryEvent], within_s: float) -> Iterator[tuple[StoryEvent, str]]:
    """Yield the first of each process's events in quick succession, and the texts of all of them."""
    process_of = attrgetter("process")
    for _, events_of_process in groupby(sorted(events, key=process_of), key=process_of):
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
        texts.append(event.text if is_named else f"{event.text} in transaction {event.transaction}")
        named.add(event.transaction)
    return ", ".join(texts)


def _last_offsets(replica: ReplicaTimeline) -> str:
    return ", ".join(f"{name} {getattr(replica, field)[-1]}" for field, name, *_ in LINES)


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
    sides_in = (LABEL_IN * max(map(len, nodes)) + BOX_IN for nodes in sides)
    with picture(EXTRA_IN + ROW_IN * rows, (*sides_in, 0, 0)) as drawing:
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
