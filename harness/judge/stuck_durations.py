"""How long replicas stayed stuck: which were still stuck at each step, by ``aftermath.jsonl``.

`harness.play.aftermath` has the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class StuckReplica:
    """A replica that was stuck when the finding was made, with its status at a later step.

    ``outcome``: the outcome of its transaction for consumers; None while the transaction is open on the replica.
    """

    broker: int
    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    outcome: str | None = None

    def __str__(self) -> str:
        """Return the status in one phrase."""
        where = f"{self.topic}-{self.partition} on broker {self.broker}"
        return f"{where} at {self.last_stable_offset} of {self.high_watermark}"


@dataclass(frozen=True, kw_only=True)
class AftermathStep:
    """A step after the finding: ``after_s`` seconds later, the replicas that are still ``stuck`` and the others."""

    step: str
    summary: str
    after_s: float
    stuck: tuple[StuckReplica, ...]
    ended: tuple[StuckReplica, ...]


def stuck_durations(lines: Sequence[Mapping[str, Any]]) -> tuple[AftermathStep, ...]:
    """Return one entry a step. A replica is stuck as long as a transaction is open that was open at the first step."""
    steps = [list(group) for _, group in groupby(lines, key=lambda line: line["step"])]
    open_at_first = {_replica(line): _open(line) for line in steps[0] if line["open"]} if steps else {}
    entries = []
    for step in steps:
        stuck, ended = [], []
        for line in step:
            transactions = open_at_first.get(_replica(line))
            if transactions is None:
                continue
            status = StuckReplica(
                broker=line["broker"],
                topic=line["topic"],
                partition=line["partition"],
                last_stable_offset=line["last_stable_offset"],
                high_watermark=line["high_watermark"],
            )
            if transactions & _open(line):
                stuck.append(status)
            else:
                is_aborted = transactions & {tuple(pair) for pair in line["aborted"]}
                ended.append(replace(status, outcome="aborted" if is_aborted else "committed"))
        after_s = (step[0]["time_ms"] - lines[0]["time_ms"]) / 1000
        entries.append(
            AftermathStep(
                step=step[0]["step"],
                summary=step[0]["summary"],
                after_s=after_s,
                stuck=tuple(stuck),
                ended=tuple(ended),
            )
        )
    return tuple(entries)


def _replica(line: Mapping[str, Any]) -> tuple[int, str, int]:
    return line["broker"], line["topic"], line["partition"]


def _open(line: Mapping[str, Any]) -> set[tuple[int, int]]:
    """Return producer id and first offset of open transactions; the epoch may differ after a restart."""
    return {(producer_id, first_offset) for producer_id, _, first_offset in line["open"]}
