"""The result of an audit as text: the summary, then one paragraph for each kind of finding, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from junitparser import Error, Failure
from junitparser.xunit2 import JUnitXml, TestCase, TestSuite

from checkers.finding import HANGING_TRANSACTION, LATENT
from harness.console import show_findings, verdict_word
from harness.escape import visible
from harness.judge.finding import Finding, Place, brokers_text, by_place, name_of
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, ScenarioVerdict, Verdict
from harness.terminal import Terminal

SHOWN: Final = 8
"""The most partitions that a paragraph names."""
LINES: Final = 3
"""The most different sentences about the same thing in a paragraph."""
WIDTH: Final = 12
"""The column in which sentences begin."""
FILE: Final = "audit.json"
SUITE: Final = "harness audit"

Kind: TypeAlias = "tuple[str, bool, int | None]"
"""Names, whether it is decided who is wrong, and the wrong broker; None for findings that accuse no single broker."""


def show_audit(out: Terminal, verdict: Verdict, repair: str, *, file: str | None, is_verbose: bool) -> None:
    """Print an audit's verdict.

    ``repair``: options of `harness repair` for this cluster. ``file``: where the verdict was written. With
    ``is_verbose`` every finding is printed with its evidence, advice and commands.
    """
    repair = f"harness repair {file or FILE} {repair} --plan"
    out.line(_summary(verdict))
    kinds = _kinds(verdict.findings)
    for kind, findings in kinds:
        _show_kind(out, kind, findings, repair)
    for cause, scenarios in _causes(verdict.scenarios).items():
        reasons = [scenario.reason for scenario in scenarios]
        names = _names([(scenario.topic, scenario.partition or 0) for scenario in scenarios])
        out.fields([(verdict_word(UNKNOWN), f"{cause}: {names}")], width=WIDTH)
        out.fields([(f"  {name}", text) for name, text in _distinct("Why", reasons)], width=WIDTH)
    if is_verbose:
        show_findings(out, verdict)
    notes = [("note", note) for note in verdict.notes or ()]
    if verdict.findings:
        if any(broker is not None for (_, _, broker), _ in kinds):
            notes.append(("next", repair))
        if file is None:
            notes.append(("", f"{FILE}: run the audit with --output {FILE}; --verbose prints every finding"))
    if notes:
        out.fields(notes, width=WIDTH)


def _summary(verdict: Verdict) -> str:
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


def _show_kind(out: Terminal, kind: Kind, findings: Sequence[Finding], repair: str) -> None:
    names, is_decided, broker = kind
    if broker is not None:
        who = f"{brokers_text([broker])} is wrong"
    else:
        who = "on every replica" if is_decided else "which replica is wrong is undecided"
    out.fields([(verdict_word(ANOMALY), f"{names}: {_names(by_place(findings))}: {who}")], width=WIDTH)
    rows = _distinct("Impact now", [finding.impact for finding in findings if finding.impact])
    rows += _distinct("Consumers", [f.record.consumers for f in findings if f.record and f.record.consumers])
    rows += _distinct("Meaning", [finding.means for finding in findings if finding.means])
    rows += _distinct("Evidence", [f"{finding.where}: {finding.explanation}" for finding in findings], most=1)
    if findings[0].anomaly == HANGING_TRANSACTION:
        rows += _distinct("Next", [command for finding in findings for command in (finding.commands or ())[1:]])
    elif not is_decided:
        rows.append(("Next", f"decide which replica is right, then {repair} --right TOPIC-PARTITION=BROKER"))
    out.fields([(f"  {name}", text) for name, text in rows], width=WIDTH)


def _distinct(title: str, sentences: Sequence[str], most: int = LINES) -> list[tuple[str, str]]:
    """Return different sentences below each other, and how many more there are."""
    distinct = list(dict.fromkeys(sentences))
    shown = [*distinct[:most], *([f"and {len(distinct) - most:,} more"] if len(distinct) > most else [])]
    return [("" if number else title, sentence) for number, sentence in enumerate(shown)]


def _names(places: Iterable[Place]) -> str:
    names = [name_of(place) for place in sorted(set(places))]
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _causes(scenarios: Iterable[ScenarioVerdict]) -> Mapping[str, Sequence[ScenarioVerdict]]:
    """Return the undecided partitions by their causes, the commonest cause first."""
    causes: dict[str, list[ScenarioVerdict]] = {}
    for scenario in scenarios:
        if scenario.verdict == UNKNOWN:
            causes.setdefault(", ".join(scenario.causes or ("unknown",)), []).append(scenario)
    return dict(sorted(causes.items(), key=lambda item: -len(item[1])))


def write_junit(path: Path, verdict: Verdict) -> None:
    """Write a test case for each partition: a diverged one is a failure, an undecided one an error. Raises OSError."""
    suite, findings = TestSuite(SUITE), by_place(verdict.findings)
    for scenario in verdict.scenarios:
        case = TestCase(scenario.scenario, scenario.topic)
        if scenario.verdict != CLEAN:
            problem = (Failure if scenario.verdict == ANOMALY else Error)(visible(scenario.reason), scenario.verdict)
            mine = findings.get((scenario.topic, scenario.partition or 0), [])
            problem.text = "\n".join(visible(str(finding)) for finding in mine)
            case.result = [problem]
        suite.add_testcase(case)
    document = JUnitXml(SUITE)
    document.add_testsuite(suite)
    document.update_statistics()
    document.write(str(path), pretty=True)
