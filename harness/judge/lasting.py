"""What ``aftermath.jsonl`` tells: at which step which replica was still stuck. Schema: `harness.run.aftermath`."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Line = dict[str, Any]


def lasting(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one entry a step: ``step``, ``summary``, ``after_s`` since the finding, ``stuck``, ``ended``.

    ``stuck`` and ``ended`` list the replicas that were stuck when found, with what each said then:
    ``{broker, topic, partition, last_stable_offset, high_watermark}``, and of one that is ended ``outcome``:
    what its consumers take the transaction for. A replica is stuck as long as a transaction that it held open
    when found is open on it.
    """
    steps = [list(group) for _, group in groupby(lines, key=lambda line: line["step"])]
    found = {_replica(line): _open(line) for line in steps[0] if line["open"]} if steps else {}
    told = []
    for step in steps:
        replicas = [(line, bool(found[_replica(line)] & _open(line))) for line in step if _replica(line) in found]
        told.append(
            {
                "step": step[0]["step"],
                "summary": step[0]["summary"],
                "after_s": (step[0]["time_ms"] - lines[0]["time_ms"]) / 1000,
                "stuck": [_said(line) for line, is_stuck in replicas if is_stuck],
                "ended": [
                    {**_said(line), "outcome": _outcome(line, found[_replica(line)])}
                    for line, is_stuck in replicas
                    if not is_stuck
                ],
            }
        )
    return told


def _replica(line: Line) -> tuple[int, str, int]:
    return line["broker"], line["topic"], line["partition"]


def _open(line: Line) -> set[tuple[int, int]]:
    """Return producer id and first offset of what is open; the epoch may be told differently after a restart."""
    return {(producer_id, first_offset) for producer_id, _, first_offset in line["open"]}


def _outcome(line: Line, found: set[tuple[int, int]]) -> str:
    return "aborted" if found & {tuple(pair) for pair in line["aborted"]} else "committed"


def _said(line: Line) -> dict[str, Any]:
    return {name: line[name] for name in ("broker", "topic", "partition", "last_stable_offset", "high_watermark")}
