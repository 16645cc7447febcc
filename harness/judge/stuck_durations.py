"""How long replicas stayed stuck: which were still stuck at each step, by ``aftermath.jsonl``.

The schema is in `harness.play.aftermath`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Line = dict[str, Any]
STATUS = ("broker", "topic", "partition", "last_stable_offset", "high_watermark")


def stuck_durations(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one entry a step: ``step``, ``summary``, ``after_s`` since the finding, ``stuck``, ``ended``.

    ``stuck`` and ``ended`` list the replicas that were stuck when found, with their status at the step:
    ``{broker, topic, partition, last_stable_offset, high_watermark}``, and for an ended one ``outcome``:
    the outcome of the transaction for its consumers. A replica is stuck as long as a transaction that was open
    when found is open on it.
    """
    steps = [list(group) for _, group in groupby(lines, key=lambda line: line["step"])]
    open_when_found = {_replica(line): _open(line) for line in steps[0] if line["open"]} if steps else {}
    entries = []
    for step in steps:
        stuck, ended = [], []
        for line in step:
            transactions = open_when_found.get(_replica(line))
            if transactions is None:
                continue
            status = {name: line[name] for name in STATUS}
            if transactions & _open(line):
                stuck.append(status)
            else:
                is_aborted = transactions & {tuple(pair) for pair in line["aborted"]}
                ended.append({**status, "outcome": "aborted" if is_aborted else "committed"})
        first = {"step": step[0]["step"], "summary": step[0]["summary"]}
        after_s = (step[0]["time_ms"] - lines[0]["time_ms"]) / 1000
        entries.append({**first, "after_s": after_s, "stuck": stuck, "ended": ended})
    return entries


def _replica(line: Line) -> tuple[int, str, int]:
    return line["broker"], line["topic"], line["partition"]


def _open(line: Line) -> set[tuple[int, int]]:
    """Return producer id and first offset of open transactions; the epoch may differ after a restart."""
    return {(producer_id, first_offset) for producer_id, _, first_offset in line["open"]}
