"""The result of an audit in words, for texts and pages: one paragraph for each kind of finding, the worst first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from checkers.finding import HANGING_TRANSACTION, LATENT
from harness.judge.finding import Finding, Place, brokers_text, by_place, name_of
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, ScenarioVerdict, Verdict
from harness.report.headlines import headline
from harness.report.page import begin_text
from harness.report.rendering import render

SHOWN: Final = 8
"""The most partitions that a paragraph names."""
LINES: Final = 3
"""The most different sentences about the same thing in a paragraph."""
PAGE_LIMITS: Final = {"most": 50, "most_partitions": 1000}
"""Of a page: the most findings of a kind, and the most partitions with the offsets of their replicas."""
FILE: Final = "audit.json"
ANY_CLUSTER: Final = "--bootstrap-server HOST:PORT"
"""Options of `harness repair` where the cluster's address is unknown."""

Kind: TypeAlias = "tuple[str, bool, int | None]"
"""Names, whether it is decided who is wrong, and the wrong broker; None for findings that accuse no single broker."""
Rows: TypeAlias = "list[tuple[str, str]]"
"""Titles and sentences; a title is empty where the row continues the one above."""


@dataclass(frozen=True)
class Paragraph:
    """The findings of a kind, or the partitions that are undecided for the same causes."""

    verdict: str
    title: str
    rows: Rows
    findings: Sequence[Finding] = ()


@dataclass(frozen=True)
class AuditText:
    """An audit in words. ``notes``: notes, and the next step."""

    summary: str
    paragraphs: Sequence[Paragraph]
    notes: Rows


def audit_text(verdict: Verdict, repair: str, file: str | None) -> AuditText:
    """Return an audit in words. ``repair``: options of `harness repair`. ``file``: where the verdict was written."""
    repair = f"harness repair {file or FILE} {repair} --plan"
    kinds = _kinds(verdict.findings)
    notes = [("note", note) for note in verdict.notes or ()]
    if any(broker is not None for (_, _, broker), _ in kinds):
        notes.append(("next", repair))
    paragraphs = [_of_kind(kind, findings, repair) for kind, findings in kinds]
    return AuditText(summary_line(verdict), [*paragraphs, *_undecided(verdict.scenarios)], notes)


def run_paragraphs(verdict: Verdict) -> list[Paragraph]:
    """Return a paragraph for each kind of finding of a run, and for the clean and the unknown scenarios."""
    paragraphs = [_of_kind(kind, findings, "") for kind, findings in _kinds(verdict.findings)]
    for name in (UNKNOWN, CLEAN):
        if scenarios := [scenario for scenario in verdict.scenarios if scenario.verdict == name]:
            names = ", ".join(scenario.scenario for scenario in scenarios)
            paragraphs.append(Paragraph(name, names, _distinct("Why", [scenario.reason for scenario in scenarios])))
    return paragraphs


def audit_page(verdict: Verdict, file: str, repair: str = ANY_CLUSTER, index: str = "") -> str:
    """Return the page of an audit. ``index``: the address of the page of all runs, if the page is part of a site."""
    text, began_at = audit_text(verdict, repair, file), begin_text(verdict.run_id)
    return render("audit.html", verdict=verdict, text=text, index=index, began_at=began_at, **PAGE_LIMITS)


def summary_line(verdict: Verdict) -> str:
    """Return how many partitions diverged, are undecided and agree."""
    verdicts = [scenario.verdict for scenario in verdict.scenarios]
    counts = {name: verdicts.count(name) for name in (ANOMALY, UNKNOWN, CLEAN)}
    total = f"{counts[ANOMALY]:,} of {len(verdicts):,} partition{'s' if len(verdicts) != 1 else ''} diverged"
    undecided = f", {counts[UNKNOWN]:,} undecided" if counts[UNKNOWN] else ""
    agree = f", {counts[CLEAN]:,} agree{'s' if counts[CLEAN] == 1 else ''}"
    cluster = verdict.target.get("cluster_id")
    where = f"cluster {cluster}, " if cluster else ""
    return f"{total}{undecided}{agree}   ({where}{sum(verdict.timings_s.values()):.0f} s)"


def _kinds(findings: Iterable[Finding]) -> list[tuple[Kind, list[Finding]]]:
    """Return findings by kind: visible before latent, decided before undecided, then kinds with most partitions."""
    kinds: dict[Kind, list[Finding]] = {}
    for finding in findings:
        is_everywhere = finding.anomaly == HANGING_TRANSACTION or not finding.decided
        kind = " or ".join(finding.names), finding.decided, None if is_everywhere else finding.broker
        kinds.setdefault(kind, []).append(finding)

    def rank(item: tuple[Kind, list[Finding]]) -> tuple[bool, bool, int]:
        (_, is_decided, _), mine = item
        return all(finding.effect == LATENT for finding in mine), not is_decided, -len(by_place(mine))

    return sorted(kinds.items(), key=rank)


def _of_kind(kind: Kind, findings: Sequence[Finding], repair: str) -> Paragraph:
    names, is_decided, broker = kind
    if broker is not None:
        who = f"{brokers_text([broker])} is wrong"
    else:
        who = "on every replica" if is_decided else "cannot tell which replica is wrong"
    rows = _distinct("Impact now", [finding.impact for finding in findings])
    rows += _distinct("Consequence", [finding.consequence for finding in findings])
    rows += _distinct("Cause", [finding.cause for finding in findings])
    rows += _distinct("Consumers", [each.record.consumers if each.record else None for each in findings])
    rows += _distinct("Meaning", [finding.means or headline(finding) for finding in findings])
    rows += _distinct("Evidence", [f"{finding.where}: {finding.explanation}" for finding in findings], most=1)
    if findings[0].anomaly == HANGING_TRANSACTION:
        rows += _distinct("First", [finding.do for finding in findings])
        # All of them, as the first ones set variables.
        rows += _distinct("Next", [command for finding in findings for command in finding.commands or ()], LINES + 2)
    elif not is_decided:
        rows.append(("Next", f"decide which replica is right, then {repair} --right TOPIC-PARTITION=BROKER"))
    return Paragraph(ANOMALY, f"{names}: {_names(by_place(findings))}: {who}", rows, findings)


def _undecided(scenarios: Iterable[ScenarioVerdict]) -> Iterable[Paragraph]:
    """Yield the undecided partitions by their causes, the commonest cause first."""
    causes: dict[str, list[ScenarioVerdict]] = {}
    for scenario in scenarios:
        if scenario.verdict == UNKNOWN:
            causes.setdefault(", ".join(scenario.causes or ("unknown",)), []).append(scenario)
    for cause, undecided in sorted(causes.items(), key=lambda item: -len(item[1])):
        names = _names([(scenario.topic, scenario.partition or 0) for scenario in undecided])
        yield Paragraph(UNKNOWN, f"{cause}: {names}", _distinct("Why", [scenario.reason for scenario in undecided]))


def _distinct(title: str, sentences: Iterable[str | None], most: int = LINES) -> Rows:
    """Return different sentences below each other, and how many more there are."""
    distinct = list(dict.fromkeys(filter(None, sentences)))
    shown = [*distinct[:most], *([f"and {len(distinct) - most:,} more"] if len(distinct) > most else [])]
    return [("" if number else title, sentence) for number, sentence in enumerate(shown)]


def _names(places: Iterable[Place]) -> str:
    names = [name_of(place) for place in sorted(set(places))]
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
