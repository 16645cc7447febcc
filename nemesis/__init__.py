"""What breaks, and when: one fault a file, each with `leave` and `come_back`, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.suggest import nearest
from nemesis import kill, none, pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.runtimes.base import Runtime


@dataclass(frozen=True)
class Nemesis:
    """A fault that takes one broker away and gives it back.

    ``takes_away`` is False only for the healthy control. ``leaving`` and ``returning`` are the words for the
    progress display, to be formatted with ``broker``.
    """

    name: str
    takes_away: bool
    leaving: str
    returning: str
    leave: Callable[[Runtime, int], None]
    come_back: Callable[[Runtime, int], None]


NEMESES = {
    "kill": Nemesis("kill", True, "kill broker {broker}", "restart broker {broker}", kill.leave, kill.come_back),
    "pause": Nemesis("pause", True, "pause broker {broker}", "resume broker {broker}", pause.leave, pause.come_back),
    "none": Nemesis("none", False, "no fault", "no fault", none.leave, none.come_back),
}


def find_nemesis(name: str) -> Nemesis:
    """Return the nemesis of that name. Raises `UsageError` with the nearest names."""
    if name not in NEMESES:
        raise UsageError(nearest("nemesis", name, list(NEMESES)))
    return NEMESES[name]
