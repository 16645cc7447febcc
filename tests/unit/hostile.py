"""Words that would like to be more than text wherever they are shown, and what may never be printed."""

import re

HOSTILE = (
    "\x00\x07\x1b]0;mine\x07\x1b[2J\x9b31m\x7f\u202e\u2066\u2028\u200b\ufeff\U000e0041\r\n\tCLEAN t-0: forged\n"
    "harness: forged [red]x[/red][link=https://e/]y[/link] :skull: <script>alert(1)</script> ]]> $\\frac{$"
    " \\x1b | `x` é"
)
"""Escape sequences of all kinds, line breaks, direction, markup of rich, HTML, XML, Markdown and TeX, a backslash."""
LITERAL = "[red]x[/red][link=https://e/]y[/link] :skull:"
"""What of it has to be there as it is, as it is text."""
NAME = "t[red]\x1b[31m\u202e[/red]:x:"
"""A topic as nobody can name one, but for who edits files."""

_RAW = re.compile(
    "[^\\n\\x20-\\x7e\\xa1-\\xac\\xae-\\u0600\\u2010-\\u2027\\u2030-\\u205f\\u2070-\\ud7ff\\U0001f000-\\U0001ffff]"
)


def raise_if_raw(text: str) -> None:
    """Raise where something is left that acts on a terminal or on the text around it, or that nobody sees."""
    found = _RAW.search(text)
    assert found is None, f"{found[0]!r} in {text[max(found.start() - 60, 0) : found.end() + 20]!r}"


def raise_if_forged(text: str) -> None:
    """Raise where somebody else has written a line that looks like one of the harness's."""
    forged = [line for line in text.splitlines() if line.strip().startswith(("CLEAN t-0: forged", "harness: forged"))]
    assert not forged or all(line.startswith("    ") for line in forged), forged
