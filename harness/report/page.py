"""``report.html``: one run in one file, which needs no network; its script only adds buttons that copy."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import UndefinedError

from harness.errors import HarnessError
from harness.judge.finding import Finding, Place, brokers_text
from harness.judge.run_verdict import places_of
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, Verdict
from harness.report.headlines import headline, worst_number
from harness.report.logs import side_by_side
from harness.report.pictures.story import Story, read_story
from harness.report.pictures.timeline import timeline, transactions, with_states
from harness.report.pictures.topology import topology
from harness.report.rendering import render
from harness.run_folder.store import RunFolder, begin_of

SENTENCES: Final = {
    ANOMALY: "the replicas disagree, and nothing will bring them together",
    CLEAN: "the replicas agree, and the run shows that they had every reason not to",
    UNKNOWN: "this run shows neither that the replicas agree nor that they do not",
}
"""Headlines of runs without a finding."""
DAMAGED: Final = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
DRAWING_ERRORS: Final = (*DAMAGED, HarnessError, ArithmeticError, UndefinedError)
"""Errors of reading, and of drawing, a folder that is damaged or of another release."""


@dataclass(frozen=True)
class Drawn:
    """The parts of a page that take longest, and need no verdict; ``timelines`` by topic and partition."""

    story: Story
    timelines: Mapping[Place, str]


def draw(folder: RunFolder) -> Drawn:
    """Draw the timelines of all partitions that were observed. Raises `UsageError` for a damaged folder."""
    story = read_story(folder)
    return Drawn(story, {place: timeline(story, *place) for place in story.replicas})


def page(
    folder: RunFolder, manifest: Mapping[str, Any], verdict: Verdict, drawn: Drawn | None = None, site: str = ""
) -> str:
    """Return the page; ``drawn``: parts of this page that were drawn before, if any. ``site``: the site's address."""
    findings = list(enumerate(verdict.findings, 1))
    worst = worst_number(verdict.findings)
    topics = _topics(folder, manifest, verdict, drawn or draw(folder))
    # The topic of the headline comes first, then others with findings.
    topics.sort(key=lambda topic: (worst not in dict(topic["findings"]), not topic["findings"]))
    links, brokers, absent = manifest.get("topology"), manifest["brokers"], manifest["absent_brokers"]
    shown = {number for topic in topics for number, _ in topic["findings"]}
    return render(
        "run.html",
        verdict=verdict,
        sentence=_sentence(verdict),
        began=begin_text(verdict.run_id),
        site=site,
        worst=worst,
        manifest=manifest,
        topics=topics,
        elsewhere=[(number, finding) for number, finding in findings if number not in shown],
        topology=None if links is None else topology(set(map(tuple, links)), brokers, absent),
        has_outcomes=folder.outcomes_path.exists(),
    )


def _sentence(verdict: Verdict) -> str:
    """Return the headline: the finding, or one sentence on all of several."""
    findings = verdict.findings
    if not findings:
        return SENTENCES[verdict.verdict]
    if len(findings) == 1:
        return headline(findings[0])
    kinds = len({finding.names for finding in findings})
    where = brokers_text(sorted({finding.broker for finding in findings}))
    return f"{len(findings)} findings on {where}, {f'in {kinds} kinds' if kinds > 1 else f'all {findings[0].anomaly}'}"


def begin_text(run_id: str) -> str:
    """Return when a run or an audit began, for people."""
    began_at = begin_of(run_id)
    return run_id if began_at is None else f"{began_at:%Y-%m-%d %H:%M:%S} UTC"


def states_of(findings: Iterable[Finding], absent: Collection[int]) -> dict[int, str]:
    """Return how a partition's brokers were: down, wrong by these findings, or both in turn."""
    wrong = {finding.broker for finding in findings if finding.decided}
    states = {**dict.fromkeys(wrong, "wrong"), **dict.fromkeys(absent, "was down")}
    return states | dict.fromkeys(wrong & set(absent), "down, then wrong")


def _topics(folder: RunFolder, manifest: Mapping[str, Any], verdict: Verdict, drawn: Drawn) -> list[dict[str, Any]]:
    """Return the sections of partitions. ``result``: the partition's verdict, None for a control."""
    scenarios = {place: scenario for scenario in manifest["scenarios"] for place in places_of(scenario)}
    by_place = defaultdict(list)
    for number, finding in enumerate(verdict.findings, 1):
        by_place[finding.place].append((number, finding))
    return [
        {
            "table": table,
            "scenario": scenarios[table.place],
            "result": next((scenario for scenario in verdict.scenarios if scenario.has(table.place)), None),
            "findings": by_place[table.place],
            "states": (states := states_of(dict(by_place[table.place]).values(), manifest["absent_brokers"])),
            "timeline": with_states(drawn.timelines.get(table.place) or timeline(drawn.story, *table.place), states),
            "edges": transactions(table, drawn.story.entries.get(table.place, {})),
        }
        for table in side_by_side(folder, manifest, verdict.findings, drawn.story)
    ]
