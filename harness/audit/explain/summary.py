"""Prints the result of an audit: the summary, then one paragraph for each kind of finding, the worst first."""

from harness.console import WIDTH, show_findings, show_paragraphs
from harness.judge.verdict import Verdict
from harness.report.audits import FILE, audit_text
from harness.terminal import Terminal


def show_audit(out: Terminal, verdict: Verdict, repair: str, *, file: str | None, is_verbose: bool) -> None:
    """Print an audit's verdict.

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
