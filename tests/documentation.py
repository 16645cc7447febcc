"""The commands of the documentation: fenced blocks ``sh`` of README.md, CONTRIBUTING.md and the pages below docs/.

Every line is a command, continued after a backslash. A block ``output`` directly after it is the output of its last
command, in which ``…`` stands for anything. An HTML comment ``<!-- not run: REASON -->`` directly before a block says
why the tests do not run it. Blocks ``console`` have commands after ``$ ``, and their outputs.
"""

import re
from collections.abc import Iterator, Sequence
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
        if token.type != "fence" or token.info.strip() not in {"console", "sh"}:
            continue
        assert token.map is not None
        is_marked = before is not None and before.type == "html_block"
        reason = _NOT_RUN.search(before.content) if before is not None and is_marked else None
        prompt = "$ " if token.info.strip() == "console" else ""
        shown = after.content.strip("\n") if after is not None and after.info.strip() == "output" else ""
        found = list(_commands(token.content.splitlines(), prompt))
        for index, (line, text, output) in enumerate(found):
            own = output or (shown if index == len(found) - 1 else "")
            yield Command(page, token.map[0] + 2 + line, text, own, reason[1] if reason else "")


def _commands(lines: Sequence[str], prompt: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, text and output of each command of a block. A prompt is "" where every line is a command."""
    start = 0
    while start < len(lines):
        after = start + 1
        while lines[after - 1].endswith("\\"):
            after += 1
        end = after
        while prompt and end < len(lines) and not lines[end].startswith(prompt):
            end += 1
        yield start, "\n".join(lines[start:after]).removeprefix(prompt), "\n".join(lines[after:end])
        start = end


def matches(expected: str, actual: str) -> bool:
    """Return whether an output is the one that a page shows; numbers, ids and line breaks may differ."""
    pieces = [re.escape(_comparable(piece)) for piece in expected.split("…")]
    return re.fullmatch(r"\s*" + r".*?".join(pieces) + r"\s*", _comparable(actual), re.DOTALL) is not None


_RUN_ID: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{4}")
_NUMBER: Final = re.compile(r"\d+([.,]\d+)*")


def _comparable(text: str) -> str:
    return " ".join(_NUMBER.sub("0", _RUN_ID.sub("RUN_ID", text)).split())
