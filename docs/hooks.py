"""Tables of the site, made from the code when the site is built: a line ``<!-- table: NAME -->`` becomes a table."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File

sys.path.append(str(Path(__file__).parent))
import command_pages

from harness.cli.config_file import SETTINGS
from harness.cli.machine import VARIABLES
from harness.judge.verdict import EXIT_CODES
from harness.model_checking.explore.cases import PROPOSALS
from harness.models.faults import state as faults
from harness.models.log import redpanda
from harness.models.world import coordination
from harness.runtimes.base import Need
from harness.schedules import catalog
from harness.targets import TARGETS
from nemesis import FAULTS, SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
SOAKS: Final = ROOT / "results" / "soaks.jsonl"
_MARK: Final = re.compile(r"^<!-- table: ([\w-]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the marks of a page; mkdocs calls this. Raises KeyError for a table that does not exist."""
    return _MARK.sub(lambda mark: TABLES[mark[1]](), markdown)


def on_config(config: Any) -> Any:
    """Add the pages of the commands below their index; mkdocs calls this."""
    pages = [{f"harness {name}": command_pages.address(name)} for _, name, _ in command_pages.commands()]

    def extended(entry: Any) -> Any:
        if isinstance(entry, list):
            return list(map(extended, entry))
        if isinstance(entry, dict):
            return {title: extended(inner) for title, inner in entry.items()}
        return [entry, *pages] if entry == command_pages.INDEX else entry

    config.nav = extended(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Make the pages of the commands; mkdocs calls this."""
    for _, name, command in command_pages.commands():
        text = command_pages.page(name, command)
        files.append(File.generated(config, command_pages.address(name), content=text))
    return files


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _needs(needs: Iterable[str]) -> str:
    return "; ".join(sorted(needs)) or "nothing"


def _faults() -> str:
    return table(
        ("nemesis", "what happens", "outage", "needs"),
        [
            (f"`{name}`", script.summary, "yes" if script.is_outage else "no", _needs(script.needs))
            for name, script in SCRIPTS.items()
        ],
    )


def _soak_faults() -> str:
    return table(
        ("fault", "what happens", "needs"),
        [
            (f"`{name}`", fault.summary, _needs(fault.needs))
            for name, fault in FAULTS.items()
            if not fault.soak_excluded
        ],
    )


def _anomalies() -> str:
    return table(
        ("anomaly", "payload", "what happens"),
        [(f"`{one.anomaly}`", str(one.payload), one.summary) for one in catalog.all_scenarios()],
    )


def _targets() -> str:
    return table(
        ("target", "version", "status", "note"),
        [(f"`{one.name}`", one.version, one.status, one.note) for one in TARGETS.values()],
    )


def _settings() -> str:
    every = "every command with this option"
    return table(
        ("setting", "option", "commands"),
        [
            (f"`{one.name}`", f"`{one.option}`", ", ".join(f"`{name}`" for name in one.commands or ()) or every)
            for one in SETTINGS
        ],
    )


def _variables() -> str:
    return table(("variable", "meaning"), [(f"`{name}`", meaning) for name, meaning in VARIABLES])


def _needs_table() -> str:
    return table(("need", "ability of a runtime"), [(need.name.lower(), str(need)) for need in Need])


def _proposals() -> str:
    return table(
        ("proposal", "targets", "meaning"),
        [
            (f"`{name}`", ", ".join(f"`{target}`" for target, known in PROPOSALS.items() if name in known), meaning)
            for name, meaning in {name: text for known in PROPOSALS.values() for name, text in known.items()}.items()
        ],
    )


def _named(names: Mapping[str, str], kind: str) -> Callable[[], str]:
    """Return what describes names of one kind by their meaning."""
    return lambda: table((kind, "meaning"), [(f"`{name}`", meaning) for name, meaning in names.items()])


def _schema(name: str | None = None) -> Callable[[], str]:
    """Return the fields of ``verdict.json`` with descriptions, or those of the entries of a list."""

    def described() -> str:
        schema = json.loads((files("harness.judge") / "verdict.schema.json").read_text())
        fields: Mapping[str, Any] = schema if name is None else schema["properties"][name]["items"]
        required = fields.get("required", ())
        return table(
            ("field", "type", "always", "meaning"),
            [
                (f"`{key}`", _type(value), "yes" if key in required else "no", value.get("description", ""))
                for key, value in fields["properties"].items()
            ],
        )

    return described


def _soaks() -> str:
    """Describe the recorded rounds of soaks by what their brokers were (`bench/soak_rounds.py --record`)."""
    kinds: dict[tuple[str, bool], list[dict[str, Any]]] = defaultdict(list)
    for one in map(json.loads, SOAKS.read_text(encoding="utf-8").splitlines()):
        kinds[one["target"], one["gate"]].append(one)

    def row(of: Sequence[Mapping[str, Any]]) -> list[str]:
        verdicts = Counter(one["verdict"] for one in of)
        findings = sum((Counter(one["findings"]) for one in of), Counter[str]())
        hours = sum(second for one in of for second in one["took_s"].values()) / 3600
        named = ", ".join(f"{count} `{name}`" for name, count in sorted(findings.items())) or "nothing"
        return [str(len(of)), f"{hours:.1f}", *(str(verdicts[name]) for name in EXIT_CODES), named]

    return table(
        ("brokers", "rounds", "hours", *EXIT_CODES, "findings"),
        [[f"`{target}`{' with the gate' if gate else ''}", *row(of)] for (target, gate), of in sorted(kinds.items())],
    )


def _changelog() -> str:
    """Return the changelog with links that begin at its page."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")


def _type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "enum" in value or "const" in value:
        return ", ".join(f"`{json.dumps(one)}`" for one in value.get("enum", [value.get("const")]))
    kind = value["type"]
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "commands": command_pages.index,
    "faults": _faults,
    "soak-faults": _soak_faults,
    "anomalies": _anomalies,
    "targets": _targets,
    "needs": _needs_table,
    "settings": _settings,
    "soaks": _soaks,
    "changelog": _changelog,
    "variables": _variables,
    "proposals": _proposals,
    "walked-faults": _named(faults.FAULTS, "fault"),
    "rules-of-faults": _named({**faults.KAFKAS_RULES, **faults.GATE_RULES}, "rule"),
    "rules-of-coordination": _named(coordination.RULES, "rule"),
    "rules-of-redpanda": _named(redpanda.RULES, "rule"),
    "verdict": _schema(),
    "verdict-scenarios": _schema("scenarios"),
    "verdict-findings": _schema("findings"),
    "verdict-guarantees": _schema("guarantees"),
    "verdict-applications": _schema("applications"),
    "verdict-doubts": _schema("doubts"),
    "verdict-partial": _schema("partial"),
}
