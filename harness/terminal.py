"""The only way to stdout and stderr. Every text is escaped here (`harness.escape`), or it is JSON.

A style is passed separately from the text, so that text is never read as markup. Off a terminal there is no colour, and
a table is as wide as its longest cells: nothing is cut off or wrapped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import click
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from harness.escape import CONTINUED, to_json, visible

NOBODY_CUTS = 100_000
"""Characters of a line that goes to a file or a pipe."""

Piece: TypeAlias = "str | Text"
"""Text as it is, or escaped already, with a style (`styled`)."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head, which are printed as `str` gives them; every row has as many cells as the head."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Terminal:
    """Stdout or stderr."""

    console: Console

    def line(self, *pieces: Piece) -> None:
        """Print one line; pieces follow each other without a space. Line breaks in them are escaped, too."""
        self._put(Text.assemble(*map(_text, pieces)), soft_wrap=True)

    def message(self, text: str) -> None:
        """Print a text that may have several lines, all but the first of which are indented."""
        self._put(Text(visible(text, line_break=CONTINUED)), soft_wrap=True)

    def table(self, table: Table) -> None:
        """Print a table; on a narrow terminal cells are folded, and never cut."""
        drawn = Drawn(box=None)
        for name in table.head:
            drawn.add_column(_text(name), overflow="fold")
        for row in table.rows:
            drawn.add_row(*map(_text, row))
        self._put(drawn)

    def fields(self, rows: Sequence[tuple[Piece, Piece]], *, width: int) -> None:
        """Print names, each beside its text, from column ``width`` on; on a terminal texts are wrapped at words."""
        drawn = Drawn(box=None, show_header=False, padding=(0, 1, 0, 0))
        drawn.add_column(min_width=width, no_wrap=True)
        drawn.add_column(overflow="fold")
        for name, text in rows:
            drawn.add_row(_text(name), _text(text))
        self._put(drawn)

    def json(self, value: Any) -> None:
        """Print JSON, from which every value can be read back."""
        self._write(f"{to_json(value, indent=2)}\n")

    def _put(self, drawn: Text | Drawn, *, soft_wrap: bool = False) -> None:
        with self.console.capture() as captured:
            self.console.print(drawn, soft_wrap=soft_wrap)
        lines = captured.get().splitlines()
        self._write("".join(f"{line if self.console.is_terminal else line.rstrip()}\n" for line in lines))

    def _write(self, text: str) -> None:
        click.echo(text, file=self.console.file, nl=False, color=self.console.is_terminal)


def styled(text: str, style: str) -> Text:
    """Return a text with a style of rich's."""
    return Text(visible(text), style)


def _text(piece: object) -> Text:
    return piece if isinstance(piece, Text) else Text(visible(str(piece)))


def stdout(*, is_stderr: bool = False) -> Terminal:
    """Return the terminal for results."""
    console = Console(stderr=is_stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = NOBODY_CUTS
    return Terminal(console)


def stderr() -> Terminal:
    """Return the terminal for progress and messages."""
    return stdout(is_stderr=True)
