"""Progress of a run, a check or an audit, and the result of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from harness.judge.verdict import Verdict
    from harness.run_folder.store import RunFolder


class Progress(Protocol):
    """Reports the progress of a run, a check or an audit."""

    def stage(self, text: str) -> None:
        """A new stage begins."""
        ...

    def jars(self, done: int, total: int) -> None:
        """So many of so many steps of fetching jars are done."""
        ...

    def reading(self, fraction: float, done_bytes: int) -> None:
        """A fraction of an audited cluster's data, and so many bytes, were read."""
        ...


@dataclass(frozen=True)
class RunResult:
    """A run's folder and verdict, and with ``--keep`` the addresses of its brokers."""

    folder: RunFolder
    verdict: Verdict
    kept: dict[int, str]
