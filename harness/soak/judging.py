"""Judges the rounds of a soak beside the rounds that follow, several in one job, and keeps what is worth it."""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from harness.judge.verdict import CLEAN
from harness.run_folder.store import BROKERS, FETCHED
from harness.soak.internal import INTERNAL
from harness.spark.release import release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark.sql import SparkSession

    from harness.run_folder.store import RunFolder
    from harness.soak.round import PlayedRound


@dataclass
class Judging:
    """Judges rounds in a thread of its own, beside the next ones: one job at a time."""

    expected: Collection[str]
    session: SparkSession
    on_round: Callable[[dict[str, Any]], None]
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "judge"))
    _job: Future[None] | None = None

    def begin(self, rounds: Mapping[RunFolder, PlayedRound]) -> None:
        """Judge these, once the job before is done. Raises what that raised."""
        self.wait()
        self._job = self._pool.submit(_judge, self.expected, self.session, rounds, self.on_round)

    def wait(self) -> None:
        """Wait until all is judged. Raises what that raised."""
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
    if not waiting:
        return
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

    One that cannot be judged then is unknown, and takes none of the others with it.
    """
    from harness.soak.judge import judge_rounds  # noqa: PLC0415  (pyspark and the checkers)
    from harness.soak.verdict import unjudged  # noqa: PLC0415  (pyspark and the checkers)

    try:
        return judge_rounds(session, waiting, expected)
    except Exception as error:  # noqa: BLE001  (whatever it is, it must not end a soak that took hours)
        if len(waiting) > 1:
            alone = [_verdicts(expected, session, {folder: played}) for folder, played in waiting.items()]
            return {name: verdict for one in alone for name, verdict in one.items()}
        return {folder.run_id: unjudged(f"it cannot be judged: {type(error).__name__}: {error}") for folder in waiting}


def _line(name: str, played: PlayedRound, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of a round: findings by name, and what it took to get there."""
    names = [one["anomaly"] for one in verdict["findings"]]
    operations = [type(step.operation).__name__ for step in played.steps]
    faults = [str(step.operation) for step in played.steps if type(step.operation).__name__ == "Inject"]
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
