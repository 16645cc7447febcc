"""Prints the result of an audit: the summary, then one paragraph for each kind of finding, the worst first."""

from __future__ import annotations

from typing import Final

from harness.console import show_findings, verdict_word
from harness.judge.verdict import Verdict
from harness.report.audits import FILE, audit_text
from harness.terminal import Terminal

WIDTH: Final = 12
"""The column in which sentences begin."""


def show_audit(out: Terminal, verdict: Verdict, repair: str, *, file: str | None, is_verbose: bool) -> None:
    """Print an audit's verdict.

    ``repair``: options of `harness repair` for this cluster. ``file``: where the verdict was written. With
    ``is_verbose`` every finding is printed with its evidence, advice and commands.
    """
    text = audit_text(verdict, repair, file)
    out.line(text.summary)
    for paragraph in text.paragraphs:
        out.fields([(verdict_word(paragraph.verdict), paragraph.title)], width=WIDTH)
        out.fields([(f"  {name}", sentence) for name, sentence in paragraph.rows], width=WIDTH)
    if is_verbose:
        show_findings(out, verdict)
    notes = list(text.notes)
    if verdict.findings and file is None:
        notes.append(("", f"{FILE}: run the audit with --output {FILE}; --verbose prints every finding"))
    if notes:
        out.fields(notes, width=WIDTH)
