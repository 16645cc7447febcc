"""What the terminal says of a selection."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiers.selection import Selection


def summary(selection: Selection, *, record: str, note: str) -> list[str]:
    """Say what is selected and why, and name what is left out, by file."""
    by_reason = Counter(selection.reasons.values())
    selected = ", ".join(f"{count} {reason}" for reason, count in by_reason.items())
    left_out_s = sum(selection.left_out_s.values())
    lines = [
        f"selected: {len(selection.reasons)} tests ({selected}), {selection.selected_s:.0f} s by {record}; {note}",
        f"left out: {len(selection.left_out)} tests, {left_out_s:.0f} s; --tier full runs them",
    ]
    if selection.missing:
        lines.append(f"only --tier full exercises: {', '.join(sorted(selection.missing))}")
    by_file: dict[str, list[str]] = {}
    for name in selection.left_out:
        by_file.setdefault(name.partition("::")[0], []).append(name)
    for file, names in sorted(by_file.items()):
        seconds = sum(selection.left_out_s[name] for name in names)
        lines.append(f"  {file}: {len(names)} tests, {seconds:.0f} s: {_listed(names)}")
    return lines


def _listed(names: Sequence[str]) -> str:
    functions = Counter(name.partition("::")[2].partition("[")[0] for name in names)
    return ", ".join(f"{function} ×{count}" if count > 1 else function for function, count in functions.items())  # noqa: RUF001
