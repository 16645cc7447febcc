"""Progress of a run, a check or an audit."""

from typing import Protocol


class Progress(Protocol):
    """Reports the progress of a run, a check or an audit."""

    def stage(self, text: str) -> None:
        """Report that a stage begins."""

    def jars(self, done: int, total: int) -> None:
        """Report the steps of fetching jars that are done."""

    def reading(self, fraction: float, done_bytes: int) -> None:
        """Report the fraction of an audited cluster's data, and the bytes, that were read."""

    def tasks(self, step: str, ended: int, count: int) -> None:
        """Report the running tasks of Spark for a step of a check: how many have ended, of how many."""
