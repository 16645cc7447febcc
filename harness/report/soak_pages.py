"""Pages of soaks and their rounds: ``report.html``, with pictures of operations and replicas over time."""

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from matplotlib.axes import Axes

from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN
from harness.report.page import DRAWING_ERRORS
from harness.report.pictures.picture import LABEL_IN, annotate, draw_steps, rows_over_time, shade
from harness.report.rendering import render
from harness.report.stored import ClientOperation, StoredRound, StoredSoak, read_round, read_soak
from harness.run_folder.store import REPORT, ROUND

MOST_FINDINGS: Final = 50
"""On a page; the others are in ``verdict.json``."""
SENTENCES: Final = {
    ANOMALY: "replicas are wrong",
    AS_EXPECTED: "replicas are wrong, as expected",
    CLEAN: "every replica serves the records that clients wrote",
    UNKNOWN: "this round shows neither that the replicas are right nor that they are not",
}
Points: TypeAlias = "tuple[Sequence[float], Sequence[float]]"
"""Times in seconds, and a value at each, up to the next time."""
Curve: TypeAlias = "tuple[Points, str, str, str]"
"""Points, the name in the legend ("" for none), colour, and style of the line."""
DIGITS, RIGHT_IN = 8, 0.2
"""Digits of the numbers on a vertical axis, and the space at the right."""
KINDS: Final = (("ok", "#009e73", "-"), ("fail", "#d55e00", "--"), ("info", "#e69f00", ":"))
QUANTILES: Final = ((0.5, "median", "#1f5fa8", "-"), (0.99, "99 %", "#e69f00", "--"), (1.0, "longest", "#d55e00", ":"))
SHORTEST_S: Final = 0.001
"""Histories have milliseconds, and a logarithmic axis has no zero."""
FAULT_COLOURS: Final = (
    "#cc79a7", "#56b4e9", "#e69f00", "#009e73", "#d55e00", "#0072b2", "#999999", "#b8860b", "#7f3f98", "#2f4f4f",
)  # fmt: skip
BAR: Final = 0.8
REPLICA: Final = ("", "#1f5fa8", "-")


def soak_page(soak: StoredSoak, linked: Collection[str], address: str, up: str = "") -> str:
    """Return the page of a soak. ``linked``: rounds with a page, at ``address`` with {}. ``up``: of all runs, or ""."""
    return render("soak.html", soak=soak, linked=linked, address=address, up=up)


def round_page(soak: StoredSoak, name: str, back: str) -> str:
    """Return the page of a round; ``back``: the address of its soak. Raises an error of `DRAWING_ERRORS` for damage."""
    stored = read_round(soak.path / name)
    findings = stored.verdict.findings
    return render(
        "round.html",
        soak=soak,
        round=stored,
        pictures=draw_round(stored),
        back=back,
        sentence=SENTENCES[stored.verdict.verdict],
        findings=findings[:MOST_FINDINGS],
        omitted=len(findings) - MOST_FINDINGS,
        command=replay_command(soak, stored),
    )


def replay_command(soak: StoredSoak, stored: StoredRound) -> str:
    """Return the command that plays a round again."""
    gate = ("--gate",) if soak.content.gate else ()
    schedule = "--schedule", f"results/{soak.name}/{stored.name}/{ROUND}", "--seed", str(stored.verdict.seed)
    return shlex.join(["harness", "soak", "--target", soak.content.target, *gate, *schedule, "--rounds", "1"])


def write_pages(soak_path: Path, name: str) -> str | None:
    """Write the page of a soak, and of its round if there is evidence. Returns the reason where there is no page."""
    try:
        soak = read_soak(soak_path, "/".join(soak_path.absolute().parts[-3:]))
        if name in soak.with_evidence:
            (soak_path / name / REPORT).write_text(round_page(soak, name, f"../{REPORT}"))
        linked = {name for name in soak.with_evidence if (soak_path / name / REPORT).is_file()}
        (soak_path / REPORT).write_text(soak_page(soak, linked, f"{{}}/{REPORT}"))
    except DRAWING_ERRORS as error:
        return f"{name} has no page: {type(error).__name__}: {error}"
    return None


def draw_round(stored: StoredRound) -> dict[str, str]:
    """Draw a round, as SVG elements, "" without data. A row is an operation or a broker; the first has faults."""
    by_name: dict[str, list[ClientOperation]] = defaultdict(list)
    for operation in stored.operations:
        by_name[operation.name].append(operation)
    operations = sorted(by_name.items())
    rates = {f"{name} (1/s)": _rates(done, stored.ends_s) for name, done in operations}
    latencies = {f"{name} (s)": _latencies(done) for name, done in operations}
    pictures = {"rates": _draw(stored, rates), "latencies": _draw(stored, latencies, is_logarithmic=True)}
    for name, curves in (("lags", lags), ("unstable", unstable)):
        replicas = {broker: [(points, *REPLICA) for points in curves(stored, broker)] for broker in stored.replicas}
        pictures[name] = _draw(stored, {f"broker {broker} (offsets)": lines for broker, lines in replicas.items()})
    return pictures


def lags(stored: StoredRound, broker: int) -> list[Points]:
    """Return for each replica of a broker by how many offsets its log end is behind the longest of the partition.

    A replica that is not observed for a while counts with its last log end.
    """
    lags_of_replicas: list[Points] = []
    for place, replica in stored.replicas[broker].items():
        replicas = [places[place] for places in stored.replicas.values() if place in places]
        times = sorted({at_s for each in replicas for at_s in each.at_s})
        longest = (max(each.log_end_at(at_s) for each in replicas) - replica.log_end_at(at_s) for at_s in times)
        lags_of_replicas.append((times, list(map(float, longest))))
    return lags_of_replicas


def unstable(stored: StoredRound, broker: int) -> list[Points]:
    """Return for each replica of a broker how many offsets its last stable offset is behind its high watermark."""
    return [
        (r.at_s, [float(h - s) for h, s in zip(r.high_watermark, r.last_stable_offset, strict=True)])
        for r in stored.replicas[broker].values()
    ]


def _rates(operations: Sequence[ClientOperation], ends_s: float) -> list[Curve]:
    seconds = range(math.floor(ends_s) + 2)
    counts = Counter((operation.kind, int(operation.ended_s)) for operation in operations)
    kinds = [row for row in KINDS if any(operation.kind == row[0] for operation in operations)]
    return [((seconds, [counts[kind, at] for at in seconds]), kind, colour, style) for kind, colour, style in kinds]


def _latencies(operations: Sequence[ClientOperation]) -> list[Curve]:
    took_s: dict[int, list[float]] = defaultdict(list)
    for operation in operations:
        took_s[int(operation.ended_s)].append(max(operation.took_s, SHORTEST_S))
    seconds = sorted(took_s)
    return [
        ((seconds, [np.quantile(took_s[at], share, method="inverted_cdf") for at in seconds]), name, colour, style)
        for share, name, colour, style in QUANTILES
    ]


def _draw(stored: StoredRound, curves: Mapping[str, Sequence[Curve]], *, is_logarithmic: bool = False) -> str:
    """Draw a row of faults, and a row for each title with its curves, all over the same time."""
    if not curves:
        return ""
    faults = dict.fromkeys(span.fault for span in stored.faults)
    colours = {fault: FAULT_COLOURS[index % len(FAULT_COLOURS)] for index, fault in enumerate(faults)}
    sides_in = LABEL_IN * DIGITS + RIGHT_IN, RIGHT_IN
    with rows_over_time(["faults", *curves], stored.ends_s, sides_in) as (drawing, (fault_row, *rows)):
        _draw_faults(fault_row, stored, colours)
        for row, curves_of_row in zip(rows, curves.values(), strict=True):
            _draw_curves(row, curves_of_row, stored.ends_s)
            row.set_yscale("log" if is_logarithmic else "linear")
            row.set_ylim(bottom=SHORTEST_S / 2 if is_logarithmic else 0)
        for span in stored.faults:
            shade(rows, span.from_s, stored.ends_s if span.to_s is None else span.to_s, colours[span.fault])
    return drawing.svg


def _draw_faults(row: Axes, stored: StoredRound, colours: Mapping[str, str]) -> None:
    brokers = sorted({span.broker for span in stored.faults} | set(stored.replicas))
    row.set_yticks(range(len(brokers)), [f"broker {broker}" for broker in brokers], fontsize=7)
    row.set_ylim(len(brokers) - 0.5, -0.5)
    for span in stored.faults:
        ends_s, at = stored.ends_s if span.to_s is None else span.to_s, brokers.index(span.broker)
        bar = [(span.from_s, ends_s - span.from_s)]
        row.broken_barh(bar, (at - BAR / 2, BAR), color=colours[span.fault], alpha=0.5)
        annotate(row, span.fault, (span.from_s, at), (2, 0), fontsize=7)


def _draw_curves(row: Axes, curves: Sequence[Curve], ends_s: float) -> None:
    for (times, values), name, colour, style in curves:
        # A replica that was never behind would only add to the line at zero.
        if times and (name or any(values)):
            width, alpha = (1.2, 1.0) if name else (0.8, 0.6)
            look = {"color": colour, "linestyle": style, "label": name or None, "linewidth": width, "alpha": alpha}
            draw_steps(row, times, values, ends_s, **look)
