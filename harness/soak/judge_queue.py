"""Judge the rounds of a soak while the next rounds are played, several in one job. Logs of clean rounds are deleted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError
from harness.json_codec import to_json
from harness.judge.verdict import CLEAN, RoundLine, RoundVerdict
from harness.run_folder.store import BROKERS, FETCHED, RunFolder
from harness.schedules.operations import Inject
from harness.soak.evidence.internal_topics import INTERNAL
from harness.spark.workspace_session import has_ended, release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from harness.soak.play.round import PlayedRound

MOST_IN_A_JOB: Final = 4
"""Rounds that are judged together: planning the checkers takes most of the time, however many rounds they read."""


@dataclass
class JudgeQueue:
    """Judges rounds in another thread, one job at a time. `add` and `finish` raise the error of a job.

    ``expected``: names of tolerated findings. ``on_round`` is called with the line of each round.
    """

    expected: Collection[str]
    session: SparkSession
    on_round: Callable[[RoundLine], None]
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "judge"))
    _waiting: dict[RunFolder, PlayedRound] = field(default_factory=dict)
    _job: Future[None] | None = None

    def add(self, folder: RunFolder, played: PlayedRound) -> None:
        """Queue a round; a job begins once enough rounds are queued, and the former job has ended."""
        self._waiting[folder] = played
        if len(self._waiting) >= MOST_IN_A_JOB:
            self._begin()

    def finish(self) -> None:
        """Judge the queued rounds, and wait until all are judged."""
        self._begin()
        self._begin()

    def close(self) -> None:
        """Wait for the job that is running."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self) -> None:
        if self._job is not None:
            self._job.result()
        rounds, self._waiting = self._waiting, {}
        if rounds:
            self._job = self._pool.submit(self._judge, rounds)

    def _judge(self, rounds: Mapping[RunFolder, PlayedRound]) -> None:
        verdicts = self._verdicts(rounds)
        release(self.session)
        for folder, played in rounds.items():
            verdict = replace(verdicts[folder.run_id], round=folder.run_id, seed=played.plan.seed)
            folder.write_json(folder.verdict_path, to_json(verdict))
            if verdict.verdict == CLEAN:
                for name in (BROKERS, FETCHED, INTERNAL):
                    shutil.rmtree(folder.path / name, ignore_errors=True)
            operations = played.schedule.operations
            same = {name: getattr(verdict, name) for name in ("seed", "verdict", "reason", "groups", "gates")}
            line = RoundLine(
                **same,
                name=folder.run_id,
                operations=len(operations),
                faults=tuple(str(operation) for operation in operations if isinstance(operation, Inject)),
                findings=verdict.counts,
                unexplained=len(verdict.unexplained),
                audit=verdict.audit and verdict.audit["counts"],
                took_s=played.took_s,
            )
            self.on_round(line)

    def _verdicts(self, rounds: Mapping[RunFolder, PlayedRound]) -> dict[str, RoundVerdict]:
        """Return the verdict of each round, alone if need be. Raises `HarnessError` if Spark's JVM has ended."""
        from harness.soak.judge.judge_rounds import judge_rounds  # noqa: PLC0415  (pyspark and the checkers)
        from harness.soak.judge.round_verdict import unjudged  # noqa: PLC0415  (pyspark and the checkers)

        try:
            return judge_rounds(self.session, rounds, self.expected)
        except Exception as error:
            if has_ended(self.session):
                raise HarnessError(f"Spark's JVM ended while rounds were judged: {error}") from error
            # No other error ends a soak that took hours.
            if len(rounds) > 1:
                alone = [self._verdicts({folder: played}) for folder, played in rounds.items()]
                return {name: verdict for verdicts in alone for name, verdict in verdicts.items()}
            reason = f"it cannot be judged: {type(error).__name__}: {error}"
            return {folder.run_id: unjudged(reason) for folder in rounds}
