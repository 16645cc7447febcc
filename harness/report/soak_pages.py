"""Pages of soaks: ``report.html`` of a soak, and of each of its rounds whose evidence is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN
from harness.report.page import SIGNS, environment
from harness.report.pictures.soak_round import draw_round
from harness.report.stored.soaks import read_round, read_soak
from harness.run_folder.store import REPORT, ROUND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from harness.report.stored.soaks import StoredRound, StoredSoak

MOST_FINDINGS: Final = 50
"""On a page; the others are in ``verdict.json``."""
DRAWING_ERRORS: Final = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""Errors of a folder that is damaged or of another release."""
SENTENCES: Final = {
    ANOMALY: "replicas are wrong",
    AS_EXPECTED: "replicas are wrong, as it is expected",
    CLEAN: "every replica serves what clients wrote",
    UNKNOWN: "this round shows neither that the replicas are right nor that they are not",
}


def soak_page(soak: StoredSoak, linked: Collection[str], link: Callable[[str], str], up: str = "") -> str:
    """Return the page of a soak. ``linked``: rounds that have a page; ``link``: its address, by the round's name.

    ``up``: the address of the page of all runs, "" where there is none.
    """
    return environment().get_template("soak.html").render(soak=soak, signs=SIGNS, linked=linked, link=link, up=up)


def round_page(soak: StoredSoak, one: StoredRound, back: str) -> str:
    """Return the page of a round, with its pictures. ``back``: the address of the page of its soak."""
    return environment().get_template("round.html").render(
        soak=soak, one=one, pictures=draw_round(one), signs=SIGNS, back=back,
        sentence=SENTENCES[one.verdict.verdict], findings=one.verdict.findings[:MOST_FINDINGS],
        left=len(one.verdict.findings) - MOST_FINDINGS,
        command=replay_command(soak, one),
    )  # fmt: skip


def replay_command(soak: StoredSoak, one: StoredRound) -> str:
    """Return the command that plays a round again."""
    gate = " --gate" if soak.content.gate else ""
    schedule = f"results/{soak.name}/{one.name}/{ROUND} --seed {one.verdict.seed}"
    return f"harness soak --target {soak.content.target}{gate} --schedule {schedule} --rounds 1"


def write_pages(soak_path: Path, name: str) -> str | None:
    """Write the page of a soak, and of one of its rounds if its evidence is kept, into their folders.

    Returns why there is none: evidence counts more than its pictures.
    """
    try:
        soak = read_soak(soak_path, "/".join(soak_path.absolute().parts[-3:]))
        if name in soak.kept:
            (soak_path / name / REPORT).write_text(round_page(soak, read_round(soak_path / name), f"../{REPORT}"))
        linked = {one for one in soak.kept if (soak_path / one / REPORT).is_file()}
        (soak_path / REPORT).write_text(soak_page(soak, linked, lambda one: f"{one}/{REPORT}"))
    except DRAWING_ERRORS as error:
        return f"{name} has no page: {type(error).__name__}: {error}"
    return None


def write_site_pages(soak: StoredSoak, folder: Path) -> Mapping[str, str]:
    """Write the pages of a soak and of its rounds into a folder of a site; return what could not be drawn, and why."""
    problems: dict[str, str] = {}
    place = folder / soak.name
    place.mkdir(parents=True, exist_ok=True)
    for name in soak.kept:
        try:
            (place / f"{name}.html").write_text(round_page(soak, read_round(soak.path / name), "index.html"))
        except DRAWING_ERRORS as error:
            problems[f"{soak.name}/{name}"] = f"{type(error).__name__}: {error}"
    linked = {name for name in soak.kept if f"{soak.name}/{name}" not in problems}
    up = "../" * (len(soak.name.split("/")) + 1)
    (place / "index.html").write_text(soak_page(soak, linked, lambda name: f"{name}.html", f"{up}index.html"))
    return problems
