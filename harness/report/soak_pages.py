"""Pages of soaks: ``report.html`` of a soak, and of each of its rounds whose evidence is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN
from harness.report.page import DRAWING_ERRORS, SIGNS, environment
from harness.report.pictures.round_pictures import draw_round
from harness.report.stored import read_round, read_soak
from harness.run_folder.store import REPORT, ROUND

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from harness.report.stored import StoredRound, StoredSoak

MOST_FINDINGS: Final = 50
"""On a page; the others are in ``verdict.json``."""
SENTENCES: Final = {
    ANOMALY: "replicas are wrong",
    AS_EXPECTED: "replicas are wrong, as expected",
    CLEAN: "every replica serves the records that clients wrote",
    UNKNOWN: "this round shows neither that the replicas are right nor that they are not",
}


def soak_page(soak: StoredSoak, linked: Collection[str], address: str, up: str = "") -> str:
    """Return the page of a soak. ``linked``: rounds that have a page; ``address``: its form, with {} for the name.

    ``up``: the address of the page of all runs, "" where there is none.
    """
    template = environment().get_template("soak.html")
    return template.render(soak=soak, signs=SIGNS, linked=linked, address=address, up=up)


def round_page(soak: StoredSoak, stored: StoredRound, back: str) -> str:
    """Return the page of a round, with its pictures. ``back``: the address of the page of its soak."""
    findings = stored.verdict.findings
    return environment().get_template("round.html").render(
        soak=soak, round=stored, pictures=draw_round(stored), signs=SIGNS, back=back,
        sentence=SENTENCES[stored.verdict.verdict], findings=findings[:MOST_FINDINGS],
        omitted=len(findings) - MOST_FINDINGS, command=replay_command(soak, stored),
    )  # fmt: skip


def replay_command(soak: StoredSoak, stored: StoredRound) -> str:
    """Return the command that plays a round again."""
    gate = " --gate" if soak.content.gate else ""
    schedule = f"results/{soak.name}/{stored.name}/{ROUND} --seed {stored.verdict.seed}"
    return f"harness soak --target {soak.content.target}{gate} --schedule {schedule} --rounds 1"


def write_pages(soak_path: Path, name: str) -> str | None:
    """Write the page of a soak, and of one of its rounds if its evidence is stored, into their folders.

    Returns the reason where there is no page: evidence counts more than its pictures.
    """
    try:
        soak = read_soak(soak_path, "/".join(soak_path.absolute().parts[-3:]))
        if name in soak.with_evidence:
            (soak_path / name / REPORT).write_text(round_page(soak, read_round(soak_path / name), f"../{REPORT}"))
        linked = {name for name in soak.with_evidence if (soak_path / name / REPORT).is_file()}
        (soak_path / REPORT).write_text(soak_page(soak, linked, f"{{}}/{REPORT}"))
    except DRAWING_ERRORS as error:
        return f"{name} has no page: {type(error).__name__}: {error}"
    return None
