"""The pages of the commands: one for each command, made from its declaration, and the table of all commands."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Final

import click

from harness.cli.main import SECTIONS
from harness.cli.options.common import summary

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = "reference/commands"
INDEX: Final = f"{FOLDER}.md"


def commands() -> Iterator[tuple[str, str, click.Command]]:
    """Yield section, name and declaration of every command; a group that only has subcommands is no command."""
    for section in SECTIONS:
        for name, command in section.commands.items():
            yield from ((str(section.title), path, each) for path, each in _leaves(name, command))


def _leaves(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _leaves(f"{path} {name}", inner)


def address(name: str) -> str:
    """Return the file of a command's page."""
    return f"{FOLDER}/{name.replace(' ', '-')}.md"


def index() -> str:
    """Return the tables of all commands, by section."""
    lines, last = [], ""
    for section, name, command in commands():
        if section != last:
            lines += ["", f"## {section}", "", "| Command | Purpose |", "|---|---|"]
        link = f"[`harness {name}`]({address(name).removeprefix('reference/')})"
        lines.append(f"| {link} | {_cell(summary(command.help))} |")
        last = section
    return "\n".join(lines)


def page(name: str, command: click.Command) -> str:
    """Return the page of a command."""
    arguments = [
        each.make_metavar(click.Context(command)) for each in command.params if isinstance(each, click.Argument)
    ]
    usage = " ".join(["harness", name, *arguments, "[OPTIONS]"])
    lines = [f"# harness {name}", "", _prose(inspect.cleandoc(command.help or "")), "", "```text", usage, "```"]
    groups: dict[str, list[click.Option]] = {}
    for option in command.params:
        if isinstance(option, click.Option):
            groups.setdefault(getattr(getattr(option, "group", None), "title", "Options"), []).append(option)
    for title, options in groups.items():
        lines += ["", f"## {title}", "", "| Option | Meaning |", "|---|---|"]
        lines += [f"| {_names(option)} | {_meaning(option)} |" for option in options]
    _, *examples = (command.epilog or "").split("\n  ")
    lines += ["", "## Examples", "", "```sh", *examples, "```", ""]
    return "\n".join(lines)


def _names(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('x')))}"
    names = " / ".join([*option.opts, *option.secondary_opts])
    return _cell(f"`{names}{value}`")


def _meaning(option: click.Option) -> str:
    """Return the help of an option, with its default as a sentence."""
    text = _prose(
        re.sub(r"  \[default: (.+)\]$", r" Default: \1.", option.help or "").replace("  [required]", " Required.")
    )
    if option.required and "Required." not in text:
        text += " Required."
    if option.show_default and option.default is not None:
        text += f" Default: `{option.default}`."
    return _cell(text)


def _prose(text: str) -> str:
    """Return a help text as Markdown, in which words with brackets and stars are code."""
    return re.sub(r"(?<![`\w-])(--[a-z][\w-]*)", r"`\1`", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
