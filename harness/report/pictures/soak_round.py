"""Pictures of a soak's round: rate and latency by operation, and the offsets of all replicas, with faults as bands."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.escape import visible
from harness.report.pictures.picture import LABEL_IN, Margins, picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from harness.report.stored.soaks import ClientOperation, StoredRound

Points: TypeAlias = "tuple[list[float], list[float]]"
"""Times in seconds, and a value at each, up to the next time."""
Curve: TypeAlias = "tuple[Points, str, str, str]"
"""Points, the name in the legend ("" for none), colour, and style of the line."""

ROW_IN, BETWEEN_IN, TITLE_IN, AXIS_IN, RIGHT_IN = 0.8, 0.38, 0.3, 0.85, 0.2
DIGITS: Final = 8
"""Of the numbers beside a row."""
BIN_S: Final = 1.0
KINDS: Final = (("ok", "#009e73", "-"), ("fail", "#d55e00", "--"), ("info", "#e69f00", ":"))
QUANTILES: Final = ((0.5, "median", "#1f5fa8", "-"), (0.99, "99 %", "#e69f00", "--"), (1.0, "longest", "#d55e00", ":"))
SHORTEST_S: Final = 0.001
"""Histories have milliseconds, and a logarithmic axis has no zero."""
FAULT_COLOURS: Final = (
    "#cc79a7", "#56b4e9", "#e69f00", "#009e73", "#d55e00", "#0072b2", "#999999", "#b8860b", "#7f3f98", "#2f4f4f",
)  # fmt: skip
BAND_ALPHA: Final = 0.14
BAR: Final = 0.8
REPLICA: Final = ("", "#1f5fa8", "-")


@dataclass(frozen=True)
class RoundPictures:
    """SVG elements, "" where the round has no such data; the first row of each has the faults of every broker.

    ``rates``, ``latencies``: a row an operation. ``lags``, ``unstable``: a row a broker, and a line a replica.
    """

    rates: str
    latencies: str
    lags: str
    unstable: str


def draw_round(one: StoredRound) -> RoundPictures:
    """Draw a round."""
    by_name: dict[str, list[ClientOperation]] = defaultdict(list)
    for operation in one.operations:
        by_name[operation.name].append(operation)
    return RoundPictures(
        rates=_draw(one, {f"{name} (1/s)": _rates(of, one.ends_s) for name, of in sorted(by_name.items())}),
        latencies=_draw(
            one, {f"{name} (s)": _latencies(of) for name, of in sorted(by_name.items())}, is_logarithmic=True
        ),
        lags=_draw(one, {_title(broker): _curves(lags(one, broker)) for broker in one.replicas}),
        unstable=_draw(one, {_title(broker): _curves(unstable(one, broker)) for broker in one.replicas}),
    )


def lags(one: StoredRound, broker: int) -> list[Points]:
    """Return for each replica of a broker by how many offsets its log end is behind the longest of the partition.

    A replica of which nothing is seen counts with its last log end.
    """
    return [
        (times, [float(max(0, _head(one, place, at_s) - _log_end(one, broker, place, at_s))) for at_s in times])
        for place in one.replicas[broker]
        for times in (_times(one, place),)
    ]


def unstable(one: StoredRound, broker: int) -> list[Points]:
    """Return for each replica of a broker how many offsets its last stable offset is behind its high watermark."""
    return [
        (
            offsets.at_s,
            [
                float(high_watermark - last_stable)
                for high_watermark, last_stable in zip(offsets.high_watermark, offsets.last_stable_offset, strict=True)
            ],
        )
        for offsets in one.replicas[broker].values()
    ]


def _times(one: StoredRound, place: str) -> list[float]:
    """Return when any replica of a partition was seen to change."""
    return sorted({at_s for places in one.replicas.values() if place in places for at_s in places[place].at_s})


def _log_end(one: StoredRound, broker: int, place: str, at_s: float) -> int:
    offsets = one.replicas[broker].get(place)
    index = None if offsets is None else offsets.last(at_s)
    return 0 if offsets is None or index is None else offsets.log_end[index]


def _head(one: StoredRound, place: str, at_s: float) -> int:
    return max(_log_end(one, broker, place, at_s) for broker in one.replicas)


def _title(broker: int) -> str:
    return f"broker {broker} (offsets)"


def _curves(replicas: Sequence[Points]) -> list[Curve]:
    return [(points, *REPLICA) for points in replicas]


def _rates(operations: Sequence[ClientOperation], ends_s: float) -> list[Curve]:
    bins = range(math.floor(ends_s / BIN_S) + 2)
    counts = {kind: Counter(int(one.ended_s // BIN_S) for one in operations if one.kind == kind) for kind, *_ in KINDS}
    return [
        (([at * BIN_S for at in bins], [counts[kind][at] / BIN_S for at in bins]), kind, colour, style)
        for kind, colour, style in KINDS
        if counts[kind]
    ]


def _latencies(operations: Sequence[ClientOperation]) -> list[Curve]:
    took_s: dict[int, list[float]] = defaultdict(list)
    for one in operations:
        took_s[int(one.ended_s // BIN_S)].append(max(one.took_s, SHORTEST_S))
    bins = sorted(took_s)
    return [
        (([at * BIN_S for at in bins], [_quantile(sorted(took_s[at]), share) for at in bins]), name, colour, style)
        for share, name, colour, style in QUANTILES
    ]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _draw(one: StoredRound, rows: Mapping[str, Sequence[Curve]], *, is_logarithmic: bool = False) -> str:
    """Draw a row of faults, and a row for each title with its curves, all on the same time."""
    if not rows:
        return ""
    count = len(rows) + 1
    brokers = sorted({span.broker for span in one.faults} | set(one.replicas))
    margins = Margins(LABEL_IN * DIGITS + RIGHT_IN, RIGHT_IN, TITLE_IN, AXIS_IN, BETWEEN_IN)
    height_in = TITLE_IN + AXIS_IN + ROW_IN * count + BETWEEN_IN * (count - 1)
    with picture(height_in, margins, count) as drawing:
        axes: list[Axes] = drawing.figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0].tolist()
        colours = _colours(one)
        _draw_faults(axes[0], one, brokers, colours)
        for row, (title, curves) in zip(axes[1:], rows.items(), strict=True):
            _entitle(row, title)
            _draw_curves(row, curves, one.ends_s)
            if is_logarithmic:
                row.set_yscale("log")
                row.set_ylim(bottom=SHORTEST_S / 2)
            else:
                row.set_ylim(bottom=0)
            for span in one.faults:
                ends_s = one.ends_s if span.to_s is None else span.to_s
                row.axvspan(span.from_s, ends_s, color=colours[span.fault], alpha=BAND_ALPHA, linewidth=0)
        axes[0].set_xlim(0, one.ends_s or 1.0)
        axes[-1].set_xlabel("seconds")
        handles = {name: h for row in axes for h, name in zip(*row.get_legend_handles_labels(), strict=True)}
        if handles:
            drawing.figure.legend(handles.values(), handles, loc="lower center", ncols=len(handles), frameon=False)
    return drawing.svg


def _colours(one: StoredRound) -> dict[str, str]:
    names = dict.fromkeys(span.fault for span in one.faults)
    return {name: FAULT_COLOURS[at % len(FAULT_COLOURS)] for at, name in enumerate(names)}


def _draw_faults(axes: Axes, one: StoredRound, brokers: Sequence[int], colours: Mapping[str, str]) -> None:
    _entitle(axes, "faults")
    axes.set_yticks(range(len(brokers)), list(map(_name_of, brokers)), fontsize=7)
    axes.set_ylim(len(brokers) - 0.5, -0.5)
    for span in one.faults:
        ends_s = one.ends_s if span.to_s is None else span.to_s
        at = brokers.index(span.broker)
        axes.broken_barh(
            [(span.from_s, ends_s - span.from_s)], (at - BAR / 2, BAR), color=colours[span.fault], alpha=0.5
        )
        axes.annotate(
            visible(span.fault), (span.from_s, at), xytext=(2, 0), textcoords="offset points", fontsize=7,
            verticalalignment="center", parse_math=False,
        )  # fmt: skip


def _entitle(axes: Axes, title: str) -> None:
    # matplotlib would draw the ticks of all axes once more to find a place for a title of its own.
    axes.text(0, 1.05, visible(title), transform=axes.transAxes, fontsize=9, parse_math=False)


def _name_of(broker: int) -> str:
    return f"broker {broker}"


def _draw_curves(axes: Axes, curves: Sequence[Curve], ends_s: float) -> None:
    is_one_of_many = all(not name for _, name, *_ in curves)
    for (times, values), name, colour, style in curves:
        # A replica that was never behind would only add to the line at zero.
        if times and (name or any(values)):
            axes.step(
                [*times, max(ends_s, times[-1])], [*values, values[-1]], where="post", color=colour, linestyle=style,
                label=name or None, linewidth=0.8 if is_one_of_many else 1.2, alpha=0.6 if is_one_of_many else 1.0,
            )  # fmt: skip
