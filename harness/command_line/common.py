"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from harness.command_line.console import JSON, TEXT
from harness.command_line.parameters import FilePath

format_option = click.option(
    "--format", "output", type=click.Choice([TEXT, JSON]), default=TEXT, help="What goes to stdout."
)
results_option = click.option(
    "--results",
    type=FilePath(file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Where run folders are.",
)
