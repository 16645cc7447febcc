"""``report.html``: one run in one file, which needs no network; its script only adds buttons that copy."""

import base64
import hashlib
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.errors import HarnessError
from harness.escape import to_json, visible
from harness.json_codec import to_json as as_json
from harness.judge.finding import Finding, Place, brokers_text
from harness.judge.run_verdict import places_of
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN, Verdict
from harness.judge.verdict import worst as worst_verdict
from harness.report.headlines import headline, worst_number
from harness.report.logs import side_by_side
from harness.report.pictures.story import Story, read_story
from harness.report.pictures.timeline import timeline, transactions, with_states
from harness.report.pictures.topology import topology
from harness.run_folder.store import RunFolder, begin_of, login_file

SENTENCES: Final = {
    ANOMALY: "the replicas disagree, and nothing will bring them together",
    CLEAN: "the replicas agree, and the run shows that they had every reason not to",
    UNKNOWN: "this run shows neither that the replicas agree nor that they do not",
}
"""Headlines of runs without a finding."""
DOCS: Final = "https://github.com/compaction-harness/compaction-harness/blob/main/docs/explanation"
"""The pages that explain anomalies and guarantees, where a page is not part of a site."""
SCRIPTS: Final = ("copy.js", "table.js", "live.js")
SIGNS: Final = {ANOMALY: "✗", UNKNOWN: "?", AS_EXPECTED: "≈", CLEAN: "✓"}
OUTCOME_SIGNS: Final = {"committed": "✓", "aborted": "✗", "open": "…"}
"""Distinguish verdicts and outcomes without colours."""
DRAWING_ERRORS: Final = (HarnessError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""Errors of drawing a folder that is damaged or of another release."""
_SHOWN_APART: Final = frozenset({"explanation", "impact", "cause", "means", "do", "commands"})
"""Fields of a finding that pages show next to its witness."""
_COMMANDS: Final = (
    'kafka-dump-log.sh --print-data-log --files "$(printf %s, {folder}/*.log)"\n'
    "kafka-console-consumer.sh --bootstrap-server HOST:PORT --topic {topic} --partition {partition} --offset earliest"
    " --isolation-level read_committed --property print.key=true --property print.offset=true --timeout-ms 10000{login}"
)


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


def render(template: str, **values: Any) -> str:
    """Return a template's text: every value is text, never markup."""
    return _environment().get_template(template).render(values)


@cache
def policy() -> str:
    """Return the content security policy of all pages: no source but the page itself, and no script but ours."""
    digests = (hashlib.sha256(render(script).encode()).digest() for script in SCRIPTS)
    scripts = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; script-src {scripts}"


@cache
def _environment() -> Environment:
    loaded = Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_as_text,
    )  # fmt: skip
    loaded.globals |= {"signs": SIGNS, "outcome_signs": OUTCOME_SIGNS, "policy": policy, "docs": DOCS}
    loaded.filters |= {
        "commands": commands, "headline": headline, "worst": worst_verdict, "without_sentences": _without_sentences,
        "pretty": lambda value: to_json(as_json(value), indent=2),
    }  # fmt: skip
    return loaded


def commands(broker: int, topic: str, partition: int, run_command: str | None = None) -> str:
    """Return the commands that show a broker's copy of a partition by Kafka's own tools, for a shell."""
    login = login_file(run_command or "")
    # Until KIP-1147 this tool calls the option so.
    login = "" if login is None else f" --consumer.config {shlex.quote(login)}"
    folder = f"./brokers/{broker}/after-rejoin/{topic}-{partition}"
    return _COMMANDS.format(folder=shlex.quote(folder), topic=shlex.quote(topic), partition=partition, login=login)


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


def _without_sentences(finding: Finding) -> Mapping[str, Any]:
    return {name: value for name, value in as_json(finding).items() if name not in _SHOWN_APART}


def _as_text(value: Any) -> Any:
    """Return a value for a page: our own markup unchanged, texts with their control characters visible."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value, line_break="\n")
