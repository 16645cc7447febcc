"""The results of audits: as text and tables for people, and as JSON for programs."""

from dataclasses import asdict
from typing import Any

from rich.text import Text

from harness.audit.live.broker_reports import ReplicaStatuses
from harness.audit.live.exposure import Exposure, Level
from harness.audit.live.prefilter import Prefiltered
from harness.console import WIDTH, show_findings, show_paragraphs
from harness.judge.finding import name_of
from harness.judge.verdict import Verdict
from harness.report.audits import FILE, audit_text
from harness.terminal import Table, Terminal, styled

STYLES = {Level.OK: "green", Level.AT_RISK: "yellow", Level.TOO_LATE: "red"}
UNKNOWN = "?"


def replica_table(statuses: ReplicaStatuses) -> Table:
    """Return a table of the status of every replica."""
    names = ("partition", "broker", "log start", "last stable", "high watermark", "log end", "open transactions")
    rows = []
    for broker, tp, status in statuses.in_order:
        opened = (f"producer {t.producer_id} from {t.first_offset}" for t in status.open or ())
        transactions = UNKNOWN if status.open is None else ", ".join(opened)
        log_end = UNKNOWN if status.log_end is None else status.log_end
        offsets = map(str, (broker, status.log_start, status.last_stable_offset, status.high_watermark, log_end))
        rows.append((name_of(tp), *offsets, transactions))
    return Table(names, rows)


def exposure_table(exposure: Exposure) -> Table:
    """Return a table of every topic, each with its exposed replicas; the worst first."""
    rows: list[tuple[str, Text, str]] = []
    for topic in sorted(exposure.topics, key=lambda topic: (-topic.level, topic.topic)):
        rows.append((topic.topic, styled(topic.level.label, STYLES[topic.level]), topic.sentence))
        for replica in sorted(topic.replicas, key=lambda replica: (-replica.level, replica.partition, replica.broker)):
            name = f"  {replica.topic}-{replica.partition}"
            rows.append((name, styled(replica.level.label, STYLES[replica.level]), replica.sentence))
    return Table(("topic", "level", "exposure"), rows)


def prefiltered_json(prefiltered: Prefiltered) -> dict[str, Any]:
    """Return ``{suspicions, replicas, notes}``; offsets, and null where a broker does not report them."""
    return {
        "suspicions": [asdict(suspicion, dict_factory=_json_fields) for suspicion in prefiltered.suspicions],
        "replicas": [
            {"broker": broker, "topic": topic, "partition": partition, **asdict(status, dict_factory=_json_fields)}
            for (broker, (topic, partition)), status in sorted(prefiltered.statuses.replicas.items())
        ],
        "notes": list(prefiltered.notes),
    }


def exposure_json(exposure: Exposure) -> dict[str, Any]:
    """Return ``{level, topics, notes}``; levels by name, times in milliseconds, null where they are unknown."""
    return {"level": exposure.level.label, **asdict(exposure, dict_factory=_json_fields)}


def _json_fields(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: value.label if isinstance(value, Level) else sorted(value) if isinstance(value, frozenset) else value
        for name, value in fields
    }


def show_audit(out: Terminal, verdict: Verdict, repair: str, *, file: str | None, is_verbose: bool) -> None:
    """Print an audit's summary, then one paragraph for each kind of finding, the worst first.

    ``repair``: options of `harness repair` for this cluster. ``file``: where the verdict was written. With
    ``is_verbose`` every finding is printed with its evidence, advice and commands.
    """
    text = audit_text(verdict, repair, file)
    out.line(text.summary)
    show_paragraphs(out, text.paragraphs)
    if is_verbose:
        show_findings(out, verdict)
    notes = list(text.notes)
    if verdict.findings and file is None:
        notes.append(("", f"{FILE}: run the audit with --output {FILE}; --verbose prints every finding"))
    if notes:
        out.fields(notes, width=WIDTH)
