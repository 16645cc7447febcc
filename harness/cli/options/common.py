"""Declaration of commands: examples, option groups, and the options that most commands have."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import cloup
from click.core import ParameterSource

from harness import DISTRIBUTION
from harness.cli.options.parameters import FilePath
from harness.console import JSON, QUIET, TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

Callback = TypeVar("Callback", bound="Callable[..., Any]")

ENVELOPE_SCHEMA: Final = 1
"""Version of the format that `envelope` returns."""

OUTPUT: Final = cloup.OptionGroup("Output")


def command(*examples: str, name: str | None = None) -> Callable[[Callable[..., int]], cloup.Command]:
    """Return a decorator that makes a command, with these command lines as its examples."""
    epilog = "\n".join(["\b", "Examples:", *(f"  $ {example}" for example in examples)])

    def made(callback: Callable[..., int]) -> cloup.Command:
        # Cloup stores the options of a command in its groups: each command needs separate groups.
        groups: dict[str, cloup.OptionGroup] = {}
        for option in getattr(callback, "__click_params__", ()):
            if getattr(option, "group", None) is not None:
                title = option.group.title
                option.group = groups.setdefault(title, cloup.OptionGroup(title))
        return cloup.command(name, epilog=epilog)(callback)

    return made


def verbosity_options(callback: Callback) -> Callback:
    """Add ``-v`` and ``-q``."""
    loud = cloup.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_be_loud, group=OUTPUT,
        help="Also print what the harness logs.",
    )  # fmt: skip
    quiet = cloup.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_be_quiet, group=OUTPUT,
        help="Print no progress.",
    )  # fmt: skip
    return loud(quiet(callback))


def _be_loud(_context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:  # noqa: FBT001
    if is_given:
        logging.getLogger("harness").setLevel(logging.DEBUG)
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.DEBUG)


def _be_quiet(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:  # noqa: FBT001
    if is_given:
        context.meta[QUIET] = True


def format_option(callback: Callback) -> Callback:
    """Add ``--format``, of which a command gets ``output``, ``-v`` and ``-q``."""
    option = cloup.option(
        "--format", "output", type=click.Choice([TEXT, JSON]), default=TEXT, show_default=True, group=OUTPUT,
        help="Output format.",
    )  # fmt: skip
    return option(verbosity_options(callback))


results_option = cloup.option(
    "--results", type=FilePath(file_okay=False), default=Path("results"), show_default=True, group=OUTPUT,
    help="The folder of run folders.",
)  # fmt: skip


def given_on_command_line(context: click.Context) -> frozenset[str]:
    """Return the names of the parameters that the command line itself has: no defaults, and nothing of harness.toml."""
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def envelope(**content: Any) -> dict[str, Any]:
    """Return the JSON of a command that does not print ``verdict.json``: ``content`` after three fields.

    ``schema``: 1. ``version``: the version of the harness. ``time``: when it was printed, UTC, ISO 8601.
    """
    return {
        "schema": ENVELOPE_SCHEMA,
        "version": version(DISTRIBUTION),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **content,
    }
