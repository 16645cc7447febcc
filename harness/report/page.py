"""``report.html``: one run in one file, which needs no network and no script."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.escape import to_json, visible
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, finding_line
from harness.report.drawing import topology
from harness.report.graph import draw_graph, transactions
from harness.report.logs import side_by_side
from harness.report.story import read_story
from harness.report.timeline import timeline
from harness.run_folder.store import REPORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.report.story import Story
    from harness.run_folder.store import RunFolder

SENTENCES: Final = {
    ANOMALY: "The replicas disagree, and nothing will bring them together.",
    CLEAN: "The replicas agree, and the run shows that they had every reason not to.",
    UNKNOWN: "This run shows neither that the replicas agree nor that they do not.",
}
OUTCOME_SIGNS: Final = {"committed": "✓", "aborted": "✗", "open": "…"}
"""Distinguish outcomes without colours."""

_READ_LOG: Final = (
    "kafka-dump-log.sh --print-data-log --files {folder}/brokers/{broker}/after-rejoin/{topic}-{partition}/*.log"
)
_READ_COMMITTED: Final = (
    "kafka-console-consumer.sh --bootstrap-server HOST:PORT --topic {topic} --partition {partition} --offset earliest"
    " --isolation-level read_committed --property print.key=true --property print.offset=true --timeout-ms 10000"
)


@dataclass(frozen=True)
class Drawn:
    """The parts of a page that take longest, and need no verdict; ``timelines`` by topic and partition."""

    story: Story
    timelines: Mapping[tuple[str, int], str]


def draw(folder: RunFolder) -> Drawn:
    """Draw the timelines of all partitions that were observed. Raises `UsageError` for a damaged folder."""
    story = read_story(folder)
    return Drawn(story, {place: timeline(story, *place) for place in story.lanes})


def write_report(folder: RunFolder, verdict: Mapping[str, Any], drawn: Drawn | None = None) -> None:
    """Write the page of a run whose manifest and evidence are in its folder. Raises `UsageError` where they are not."""
    manifest = json.loads(folder.manifest_path.read_text())
    (folder.path / REPORT).write_text(page(folder, manifest, verdict, drawn))


def page(folder: RunFolder, manifest: Mapping[str, Any], verdict: Mapping[str, Any], drawn: Drawn | None = None) -> str:
    """Return the page; ``drawn``: parts of this page that were drawn before, if any."""
    drawn = drawn or Drawn(read_story(folder), {})
    story, findings, links = drawn.story, verdict["findings"], manifest.get("topology")
    tables = side_by_side(folder, manifest, findings, story)
    brokers, absent = manifest["brokers"], manifest["absent_brokers"]
    return (
        environment()
        .get_template("run.html")
        .render(
            verdict=verdict,
            sentence=SENTENCES[verdict["verdict"]],
            manifest=manifest,
            scenarios={scenario["topic"]: scenario for scenario in manifest["scenarios"]},
            results={scenario["topic"]: scenario for scenario in verdict["scenarios"]},
            findings=list(enumerate(findings, 1)),
            lines=[finding_line(finding) for finding in findings],
            tables=tables,
            timelines={one.place: drawn.timelines.get(one.place) or timeline(story, *one.place) for one in tables},
            graphs={one.place: draw_graph(transactions(one, story.seen.get(one.place, {}))) for one in tables},
            topology=None if links is None else topology(set(map(tuple, links)), brokers, absent),
            signs=OUTCOME_SIGNS,
            has_outcomes=folder.outcomes_path.exists(),
            command=manifest.get("command"),
            read_log=_READ_LOG,
            read_committed=_READ_COMMITTED,
        )
    )


def environment() -> Environment:
    """Return the templates' environment: every value is text, never markup."""
    loaded = Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_as_text,
    )  # fmt: skip
    loaded.filters["pretty"] = lambda value: to_json(value, indent=2)
    return loaded


def _as_text(value: Any) -> Any:
    """Return a value for a page: our own markup unchanged, texts with their control characters visible."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value, line_break="\n")
