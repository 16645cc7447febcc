"""Pictures of one partition's run: its timeline, and the graph of its transactions with the markers that end them.

The timeline shows operations of clients, absent brokers, and the offsets of each broker's replica.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final, TypeAlias

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from harness.broker_files.segments.records import first_marker
from harness.escape import visible
from harness.report.logs import SideBySide
from harness.report.pictures.picture import LABEL_IN, WIDTH_IN, annotate, draw_steps, rows_over_time, shade
from harness.report.pictures.story import MARKERS, ObservedEntry, Outage, ReplicaTimeline, Story, StoryEvent

TICK_IN, OFFSET_DIGITS = 0.15, 7
TEXT_LETTER_IN, LANE_IN = 0.062, 0.2
"""The width of a letter of a label, and the height of a line of labels."""
TOGETHER = 0.06
"""Share of the whole width: a process's events within it share one label."""
OUTAGE_COLOUR: Final = "#cc79a7"
LINES: Final = (
    ("log_end", "log end", "#1f5fa8", 2.4),
    ("high_watermark", "high watermark", "#009e73", 0.0),
    ("last_stable_offset", "last stable offset", "#b33c00", -2.4),
)
"""Field, name, colour, and the points by which the line is raised: equal lines are next to each other."""
MARGIN: Final = 0.15
"""Share of the range of offsets that is shown above and below it."""
TAIL: Final = 0.06
"""Share of the time axis that is shown after the last change."""
REMOVED_COLOUR, DIVERGED_COLOUR = "#e69f00", "#7a0177"
Edges: TypeAlias = "dict[tuple[str, str, str], list[int]]"
"""By transaction, marker and kind (`TRUE` or `WRONG`): the brokers that take a wrong marker, none for the true one."""
OPEN: Final = "no marker: open"
TRUE, WRONG = "true", "wrong"
_MARKER_OF: Final = {"committed": "commit", "aborted": "abort"}


def timeline(story: Story, topic: str, partition: int) -> str:
    """Return an SVG element without a fixed size, whose text and axes have the colour of the text around it."""
    place = topic, partition
    replicas = dict(sorted(story.replicas.get(place, {}).items()))
    background = {offset for offset, entry in story.entries.get(place, {}).items() if entry.background}
    events = story.events.get(place, [])
    changed_s = _last_change_s(events, story.outages, replicas.values(), background)
    ends_s = min(changed_s * (1 + TAIL), story.ends_s) or 1.0
    titles = ["clients"]
    for broker, replica in replicas.items():
        offsets = ", ".join(f"{name} {getattr(replica, field)[-1]}" for field, name, *_ in LINES)
        titles.append(f"broker {broker}: {offsets}")
    unshown = f"; nothing changes from {changed_s:.1f} to {story.ends_s:.1f}" if story.ends_s > ends_s else ""
    longest = max([OFFSET_DIGITS, *(len(_client(event.process)) for event in events)])
    left_in = TICK_IN + min(LABEL_IN * longest, WIDTH_IN / 3)
    labels = _labels(events, ends_s, WIDTH_IN - left_in - TICK_IN)
    height_in = LANE_IN * max([2, *(label.lane + 1 for label in labels)])
    with rows_over_time(titles, ends_s, (left_in, TICK_IN), f"seconds{unshown}", height_in) as (drawing, rows):
        _draw_events(rows[0], labels)
        for row, replica in zip(rows[1:], replicas.values(), strict=True):
            _draw_replica(row, replica, story.ends_s, background)
        for outage in story.outages:
            shade(rows, outage.from_s, story.ends_s if outage.to_s is None else outage.to_s, OUTAGE_COLOUR)
        if (diverges_s := story.diverges_s(place)) is not None:
            for row in rows:
                name = "divergence" if row is rows[-1] else None
                row.axvline(diverges_s, color=DIVERGED_COLOUR, linestyle="dashed", linewidth=1.2, label=name)
    return drawing.svg


def with_states(svg: str, states: Mapping[int, str]) -> str:
    """Return a timeline with the states of brokers, such as "down, then wrong", in the titles of their rows."""
    for broker, state in states.items():
        svg = svg.replace(f">broker {broker}: ", f">broker {broker} ({state}): ", 1)
    return svg


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


@dataclass(frozen=True)
class _Label:
    """The text of events, beside their marks; ``lane``: its line from above. ``at_s``: where it begins, or ends."""

    process: str
    text: str
    lane: int
    at_s: float
    is_left: bool
    marks_s: tuple[float, ...]


def _labels(events: Sequence[StoryEvent], ends_s: float, across_in: float) -> list[_Label]:
    """Return labels that are inside of the axes, ``across_in`` wide, and do not overlap."""
    labels: list[_Label] = []
    letter_s, lanes, process = ends_s / across_in * TEXT_LETTER_IN, 0, None
    for group, whole in _merged_events(events, ends_s * TOGETHER):
        if group[0].process != process:
            process, first, free_s = group[0].process, lanes, list[float]()
        most = int(across_in / TEXT_LETTER_IN / 2)
        text = whole if len(whole) <= most else f"{whole[: most - 1]}…"
        marks_s = tuple(event.at_s for event in group)
        is_left = marks_s[-1] + letter_s * (len(text) + 1) > ends_s
        begin_s, end_s = marks_s[0], marks_s[-1] + letter_s * (len(text) + 1)
        if is_left:
            begin_s, end_s = marks_s[0] - letter_s * (len(text) + 1), marks_s[-1]
        lane = next((lane for lane, until_s in enumerate(free_s) if until_s <= begin_s), len(free_s))
        free_s[lane:] = [end_s, *free_s[lane + 1 :]]
        lanes = max(lanes, first + lane + 1)
        labels.append(_Label(process, text, first + lane, marks_s[0] if is_left else marks_s[-1], is_left, marks_s))
    return labels


def _draw_events(row: Axes, labels: Sequence[_Label]) -> None:
    first_lanes = {label.process: label.lane for label in reversed(labels)}
    row.set_yticks(list(first_lanes.values()), list(map(_client, first_lanes)), parse_math=False)
    row.set_ylim(max([1, *(label.lane for label in labels)]) + 0.5, -0.5)
    for label in labels:
        row.plot(label.marks_s, [label.lane] * len(label.marks_s), "k|", markersize=8)
        side, offset_pt = ("right", -5) if label.is_left else ("left", 5)
        annotate(row, label.text, (label.at_s, label.lane), (offset_pt, 0), ha=side)


def _draw_replica(row: Axes, replica: ReplicaTimeline, ends_s: float, background: Collection[int]) -> None:
    row.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    least, most = min(replica.last_stable_offset), max(replica.log_end)
    margin = MARGIN * max(most - least, 1)
    row.set_ylim(least - margin, most + margin)
    for field, name, colour, raised_pt in LINES:
        style = {"color": colour, "linewidth": 1.8, "label": name, "solid_capstyle": "butt"}
        # The limits of axes ignore such a line.
        style["transform"] = offset_copy(row.transData, row.get_figure(root=True), y=raised_pt, units="points")
        draw_steps(row, replica.at_s, getattr(replica, field), ends_s, **style)
    if removed := [(at_s, offset) for at_s, offset, _ in replica.removed if offset not in background]:
        times, offsets = zip(*removed, strict=True)
        name = "test record compacted away"
        row.plot(times, offsets, "x", color=REMOVED_COLOUR, label=name, markersize=6, markeredgewidth=2)


def _client(process: str) -> str:
    return visible(process.rpartition(".")[2])


def _merged_events(events: Sequence[StoryEvent], within_s: float) -> Iterator[tuple[Sequence[StoryEvent], str]]:
    """Yield each process's events in quick succession, and their text."""
    process_of = attrgetter("process")
    for _, events_of_process in groupby(sorted(events, key=process_of), key=process_of):
        group: list[StoryEvent] = []
        for event in events_of_process:
            if group and event.at_s - group[0].at_s > within_s:
                yield group, _text(group)
                group = []
            group.append(event)
        yield group, _text(group)


def _text(events: Sequence[StoryEvent]) -> str:
    """Return the texts of events of one client, which name a transaction with the first of its events."""
    texts: list[str] = []
    named: set[int | None] = {None}
    for event in events:
        is_named = event.names_transaction or event.transaction in named
        texts.append(event.text if is_named else f"{event.text} in transaction {event.transaction}")
        named.add(event.transaction)
    return ", ".join(texts)


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


def _name(kind: str, offset: int) -> str:
    return f"{kind.upper()} at {offset}"
