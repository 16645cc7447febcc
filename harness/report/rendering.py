"""Renders the templates of pages: every value is text, never markup."""

import base64
import hashlib
import shlex
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.escape import to_json, visible
from harness.json_codec import to_json as as_json
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN
from harness.judge.verdict import worst as worst_verdict
from harness.report.headlines import headline
from harness.run_folder.store import login_file

DOCS: Final = "https://github.com/compaction-harness/compaction-harness/blob/main/docs/explanation"
"""The pages that explain anomalies and guarantees, where a page is not part of a site."""
SCRIPTS: Final = ("copy.js", "table.js", "live.js")
SIGNS: Final = {ANOMALY: "✗", UNKNOWN: "?", AS_EXPECTED: "≈", CLEAN: "✓"}
OUTCOME_SIGNS: Final = {"committed": "✓", "aborted": "✗", "open": "…"}
"""Distinguish verdicts and outcomes without colours."""
_SHOWN_APART: Final = frozenset({"explanation", "impact", "cause", "means", "do", "commands"})
"""Fields of a finding that pages show next to its witness."""
_COMMANDS: Final = (
    'kafka-dump-log.sh --print-data-log --files "$(printf %s, {folder}/*.log)"\n'
    "kafka-console-consumer.sh --bootstrap-server HOST:PORT --topic {topic} --partition {partition} --offset earliest"
    " --isolation-level read_committed --property print.key=true --property print.offset=true --timeout-ms 10000{login}"
)


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
        "commands": commands, "headline": headline, "worst": worst_verdict,
        "without_sentences": lambda it: {name: v for name, v in as_json(it).items() if name not in _SHOWN_APART},
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


def _as_text(value: Any) -> Any:
    """Return a value for a page: our own markup unchanged, texts with their control characters visible."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value, line_break="\n")
