"""Every `harness` command of a page can be parsed: its name, its options, and the form of their values."""

import importlib
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from documentation import PAGES, ROOT, Command, commands, matches
from markdown_it import MarkdownIt

from harness.cli.main import cli
from harness.cli.options.parameters import FilePath, Text
from harness.targets import find_target, is_of_build

COMMANDS = [command for page in PAGES for command in commands(page) if re.search(r"(^|[\s/])harness ", command.text)]


def arguments(text: str) -> list[str]:
    """Return the arguments of the first `harness` of a command."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    first = next(index for index, word in enumerate(words) if Path(word).name == "harness")
    end = words.index(">") if ">" in words else None
    return words[first + 1 : end]


def names_a_build(parameter: click.Parameter, value: object) -> bool:
    of_targets = isinstance(parameter.type, Text) and parameter.type.check is find_target
    return of_targets and any(map(is_of_build, str(value).split(",")))


def parse(words: list[str]) -> None:
    """Parse arguments as the command line does, but for files, which need not exist. Raises Click's exceptions."""
    command: click.Command = cli
    context = click.Context(cli, info_name="harness")
    while isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if command.invoke_without_command and not rest:
            break
        words = rest
        name, inner, words = command.resolve_command(context, words)
        assert inner is not None
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    values, rest, _ = command.make_parser(context).parse_args(list(words))
    assert rest == [], "more arguments than the command has"
    for parameter in command.params:
        value = values.get(parameter.name)
        given = value is not None and not parameter.value_is_missing(value)
        if given and not isinstance(parameter.type, FilePath) and not names_a_build(parameter, value):
            parameter.type_cast_value(context, value)
        is_in_file = parameter.name == "bootstrap" and "cluster" in values  # --cluster NAME
        assert not parameter.required or given or is_in_file, f"{parameter.opts[0]} is missing"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_of_a_page_can_be_parsed(command: Command) -> None:
    parse(arguments(command.text))


@pytest.mark.parametrize("text", [
    "harness runs --target kafka-3.9",
    "harness run --target kafka-1.0 --anomaly all",
    "harness run --targets kafka-3.9",
    "harness run --target kafka-3.9 --anomaly all --seed x",
    "harness check",
    "harness audit disk --brokers 1=a",
    "harness check a b",
])  # fmt: skip
def test_a_wrong_command_is_found(text: str) -> None:
    with pytest.raises((click.ClickException, AssertionError)):
        parse(arguments(text))


def test_a_block_is_read_with_its_output_and_its_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```sh\nharness targets\nharness run \\\n    --seed 1\n```\n\n```output\nCLEAN 0.1 s\n```\n\n"
        "<!-- not run: it takes a cluster -->\n```sh\nharness audit live\n```\n\n```python\nno\n```\n"
    )
    assert [(one.line, one.text, one.output, one.not_run) for one in commands(page)] == [
        (4, "harness targets", "", ""),
        (5, "harness run \\\n    --seed 1", "CLEAN 0.1 s", ""),
        (15, "harness audit live", "", "it takes a cluster"),
    ]


@pytest.mark.parametrize(("expected", "actual", "is_same"), [
    ("boot 0.1 s\n  at 12", "boot 7.25 s at\n3\n", True),
    ("results/2026-11-21T20-29-10Z-0c7f/", "results/2027-01-01T00-00-00Z-abcd/", True),
    ("a\n…\nb", "a\nx\ny\nb", True),
    ("a …", "b", False),
    ("clean", "unknown", False),
    ("clean", "clean and more", False),
])  # fmt: skip
def test_outputs_are_compared_but_for_numbers(expected: str, actual: str, is_same: bool) -> None:  # noqa: FBT001
    assert matches(expected, actual) is is_same


def test_pages_are_those_of_the_checkout_and_have_commands() -> None:
    assert ROOT / "docs" / "tutorial.md" in PAGES
    assert len({command.page for command in COMMANDS}) > 10


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "results").rglob("*.md"))], ids=lambda page: page.name)
def test_a_row_of_a_table_is_one_line(page: Path) -> None:
    """A row that continues in the next line is cut off there: the next line is a row with one cell."""
    blocks = page.read_text(encoding="utf-8").split("```")[::2]
    rows = [line for text in blocks for line in text.splitlines() if line.startswith("|")]
    assert [row for row in rows if not row.rstrip().endswith("|")] == []


def test_links_of_the_readme_are_absolute_and_lead_to_files_of_the_checkout() -> None:
    """A package index shows the README without the checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    raw = project.replace("github.com", "raw.githubusercontent.com")
    blocks = MarkdownIt().parse((ROOT / "README.md").read_text())
    tokens = [token for block in blocks for token in block.children or () if token.type in {"link_open", "image"}]
    links = [str(token.attrs.get("href") or token.attrs["src"]) for token in tokens]
    assert [link for link in links if not link.startswith("https://")] == []
    paths = [link.removeprefix(f"{project}/blob/main/").removeprefix(f"{raw}/main/") for link in links]
    assert {path for path in paths if not (ROOT / path).is_file()} == {
        "https://www.redpanda.com/blog/kafka-log-compaction-bug-fix-streaming"
    }


def test_the_first_finding_of_the_readme_is_what_the_log_of_its_bench_has() -> None:
    rows = list(map(json.loads, (ROOT / "results" / "dependable-days.jsonl").read_text().splitlines()))
    with_fault = [row for row in rows if row["nemesis"] != "none"]
    found, all_clean = sum(row["ok"] for row in with_fault), len(rows) - len(with_fault)
    assert [row["verdict"] for row in rows if row["nemesis"] == "none"] == ["clean"] * all_clean
    runs = f"{found} of {len(with_fault)} runs"
    assert f"| {runs} | {runs} | 0 of {all_clean} runs |" in (ROOT / "README.md").read_text()


def test_every_command_has_a_page_without_words_of_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    pages: Any = importlib.import_module("command_pages")
    index = pages.index()
    for _, name, command in pages.commands():
        page = pages.page(name, command)
        assert [word for word in ("Sentinel", "INTEGER RANGE", "<=x<=", "\b") if word in page] == []
        assert all(option.opts[0] in page for option in command.params if isinstance(option, click.Option))
        assert f"(commands/{name.replace(' ', '-')}.md)" in index
