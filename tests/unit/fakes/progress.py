"""Fake progress displays of runs, audits and nights, and the end of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.nightly.ledger import Attempt
from harness.run_folder.manifest import Manifest
from harness.run_folder.store import RunFolder

NO_FOLDER = RunFolder(Path("no-folder"))


@dataclass
class FakeProgress:
    """Implements `Progress` of runs and of audits. ``stages``: their texts, in order."""

    stages: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def jars(self, *_: object) -> None:
        """Nothing is shown."""

    reading = tasks = jars


@dataclass
class NightOfRuns:
    """Runs that end as given, by index of the outage and number of the attempt; time passes where a run ends."""

    attempts: Mapping[tuple[int, int], Attempt]
    now: float = 0.0
    lines: list[str] = field(default_factory=list)
    begun: list[tuple[int, int]] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)

    def run_one(self, index: int, number: int, limit_s: float | None) -> Attempt:
        self.begun.append((index, number))
        self.limits.append(limit_s)
        attempt = self.attempts[index, number]
        self.now += attempt.took_s
        return attempt


@dataclass
class FakeManifest(Manifest):
    """Records in ``ends`` how the run ended, and in ``written`` how often the file would have been replaced."""

    folder: RunFolder = NO_FOLDER
    ends: list[tuple[str, str | None]] = field(default_factory=list)
    written: int = 0

    def finish(self, status: str, _timings_s: Mapping[str, float], failure: str | None = None) -> None:
        self.ends.append((status, failure))

    def write(self) -> None:
        self.written += 1
