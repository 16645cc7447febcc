"""The commands of the documentation: fenced blocks ``sh`` of README.md, CONTRIBUTING.md and the pages below docs/.

Every line is a command, continued after a backslash. A block ``output`` directly after it is the output of its last
command, in which ``…`` stands for anything. An HTML comment ``<!-- not run: REASON -->`` directly before a block says
why the tests do not run it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_NOT_RUN: Final = re.compile(r"<!-- not run: (.+?) -->")


@dataclass(frozen=True)
class Command:
    """A command of a page, with the output that the page shows; ``not_run``: why the tests do not run it, or ""."""

    page: Path
    line: int
    text: str
    output: str
    not_run: str

    @property
    def name(self) -> str:
        """Where it is."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def commands(page: Path) -> Iterator[Command]:
    """Yield the commands of a page, in order."""
    tokens = MarkdownIt().parse(page.read_text())
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.type != "fence" or token.info.strip() != "sh":
            continue
        assert token.map is not None
        is_marked = before is not None and before.type == "html_block"
        reason = _NOT_RUN.search(before.content) if before is not None and is_marked else None
        output = after.content.strip("\n") if after is not None and after.info.strip() == "output" else ""
        lines = token.content.splitlines()
        ends = [index for index, line in enumerate(lines, 1) if not line.endswith("\\")]
        for start, end in zip([0, *ends], ends, strict=False):
            text, shown = "\n".join(lines[start:end]), output if end == len(lines) else ""
            yield Command(page, token.map[0] + 2 + start, text, shown, reason[1] if reason else "")


def matches(expected: str, actual: str) -> bool:
    """Return whether an output is the one that a page shows; numbers, ids and line breaks may differ."""
    pieces = [re.escape(_comparable(piece)) for piece in expected.split("…")]
    return re.fullmatch(r"\s*" + r".*?".join(pieces) + r"\s*", _comparable(actual), re.DOTALL) is not None


_RUN_ID: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{4}")
_NUMBER: Final = re.compile(r"\d+([.,]\d+)*")


def _comparable(text: str) -> str:
    return " ".join(_NUMBER.sub("0", _RUN_ID.sub("RUN_ID", text)).split())
