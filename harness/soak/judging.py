"""Judges the rounds of a soak beside the rounds that follow, several in one job, and keeps what is worth it."""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from harness.errors import HarnessError
from harness.judge.verdict import CLEAN
from harness.run_folder.store import BROKERS, FETCHED
from harness.soak.play.internal import INTERNAL
from harness.spark.release import has_ended, release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark.sql import SparkSession

    from harness.run_folder.store import RunFolder
    from harness.soak.play.round import PlayedRound

MOST_IN_A_JOB: Final = 4
"""Rounds that are judged together: planning the checkers takes most of the time, however many rounds they read."""


@dataclass
class Judging:
    """Judges rounds in a thread of its own, beside the next ones: one job at a time.

    Its methods raise what a job has raised.
    """

    expected: Collection[str]
    session: SparkSession
    on_round: Callable[[dict[str, Any]], None]
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "judge"))
    _waiting: dict[RunFolder, PlayedRound] = field(default_factory=dict)
    _job: Future[None] | None = None

    def add(self, folder: RunFolder, played: PlayedRound) -> None:
        """Have a round judged, with the others that wait once there are enough of them."""
        self._waiting[folder] = played
        if len(self._waiting) >= MOST_IN_A_JOB:
            self._begin()

    def finish(self) -> None:
        """Judge what waits, and wait until all is judged."""
        if self._waiting:
            self._begin()
        self._wait()

    def _begin(self) -> None:
        self._wait()
        rounds, self._waiting = self._waiting, {}
        self._job = self._pool.submit(_judge, self.expected, self.session, rounds, self.on_round)

    def _wait(self) -> None:
        if self._job is not None:
            self._job.result()
            self._job = None

    def __enter__(self) -> Self:
        """Begin nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End with the job that goes on."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _judge(
    expected: Collection[str],
    session: SparkSession,
    waiting: Mapping[RunFolder, PlayedRound],
    on_round: Callable[[dict[str, Any]], None],
) -> None:
    """Judge the rounds that wait for it, note each, and keep the logs of those that are not clean."""
    verdicts = _verdicts(expected, session, waiting)
    release(session)
    for folder, played in waiting.items():
        verdict = verdicts[folder.run_id]
        folder.write_json(folder.verdict_path, {**verdict, "round": folder.run_id, "seed": played.plan.seed})
        if verdict["verdict"] == CLEAN and not verdict["findings"]:
            for name in (BROKERS, FETCHED, INTERNAL):
                shutil.rmtree(folder.path / name, ignore_errors=True)
        on_round(_line(folder.run_id, played, verdict))


def _verdicts(
    expected: Collection[str], session: SparkSession, waiting: Mapping[RunFolder, PlayedRound]
) -> dict[str, dict[str, Any]]:
    """Return the verdict of each round. Of several that cannot be judged together, each is judged alone.

    One that cannot be judged then is unknown, and takes none of the others with it. Raises `HarnessError` where Spark's
    JVM has ended, by itself or because the soak was interrupted: nothing is known of these rounds then.
    """
    from harness.soak.judge.judges import judge_rounds  # noqa: PLC0415  (pyspark and the checkers)
    from harness.soak.judge.verdict import unjudged  # noqa: PLC0415  (pyspark and the checkers)

    try:
        return judge_rounds(session, waiting, expected)
    except Exception as error:
        if has_ended(session):
            raise HarnessError(f"Spark's JVM ended while rounds were judged: {error}") from error
        # Whatever else it is, it must not end a soak that took hours.
        if len(waiting) > 1:
            alone = [_verdicts(expected, session, {folder: played}) for folder, played in waiting.items()]
            return {name: verdict for one in alone for name, verdict in one.items()}
        return {folder.run_id: unjudged(f"it cannot be judged: {type(error).__name__}: {error}") for folder in waiting}


def _line(name: str, played: PlayedRound, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of a round: findings by name, and what it took to get there."""
    names = [one["anomaly"] for one in verdict["findings"]]
    operations = [type(step.operation).__name__ for step in played.schedule.steps]
    faults = [str(step.operation) for step in played.schedule.steps if type(step.operation).__name__ == "Inject"]
    return {
        "name": name,
        "seed": played.plan.seed,
        "verdict": verdict["verdict"],
        "reason": verdict["reason"],
        "operations": len(operations),
        "faults": faults,
        "findings": {one: names.count(one) for one in sorted(set(names))},
        "unexplained": len(verdict["unexplained"]),
        "audit": verdict["audit"] and verdict["audit"]["counts"],
        "groups": verdict["groups"],
        "gates": verdict["gates"],
        "took_s": dict(played.took_s),
    }
